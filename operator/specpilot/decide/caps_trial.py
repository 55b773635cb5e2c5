"""What becomes of the trial of a cap: measured goodput alone decides, since nothing predicts it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specpilot.api.vocabulary import Reason
from specpilot.decide.caps_memory import CapMemory
from specpilot.decide.proof import Answer, Measured, weigh
from specpilot.decide.settings import Settings
from specpilot.estimate import constants as c
from specpilot.estimate.counters import TrialCount
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import BUCKETS, Caps, Schedule

Change = tuple[int, int, int]  # bucket's upper edge, cap before, cap on trial


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial that is over: whether the cap stays, and whether it was `told`, so that it is not to be repeated."""

    kept: bool
    told: bool
    reason: Reason
    message: str
    changes: tuple[Change, ...]
    measured: Measured | None


def follow(
    memory: CapMemory,
    caps: Caps,
    settings: Settings,
    windows: Sequence[Window],
    counts: Sequence[TrialCount],
) -> tuple[CapMemory, Ended | None]:
    """One look at the trial of `caps`; `windows` are those of this tick, none without cells."""
    tried = memory.trial
    assert tried is not None
    changes = _changes(caps)
    proof = weigh([count for count in counts if count.generation == settings.in_force.generation])
    pairs = proof.pairs
    tried = tried.after(pairs.count, max(window.seconds for window in windows))
    memory = replace(memory, trial=tried)
    what = "; ".join(name(new, old, edge) for edge, old, new in changes) or "caps that are the same"

    def ended(kept: bool, told: bool, reason: Reason, message: str) -> tuple[CapMemory, Ended]:
        measured = f"{proof.measured}, " if proof.measured else ""
        return memory, Ended(kept, told, reason, f"{what}: {measured}{message}", changes, proof.measured)

    if proof.answer is Answer.KEEP and pairs.mean >= settings.needed:
        return ended(True, True, Reason.GAIN_CONFIRMED, "kept")
    asked = f"less than the {math.expm1(settings.needed):.1%} asked for, so undone"
    if proof.answer is Answer.UNDO:
        return ended(False, True, Reason.CHANGE_UNDONE, "undone")
    if proof.answer is Answer.KEEP or (pairs.count >= c.TRIAL_ENOUGH and pairs.high < settings.needed):
        return ended(False, True, Reason.CHANGE_UNDONE, asked)
    stalled = tried.stalled(settings.interval)
    away = _away(windows, changes)
    if proof.answer is Answer.INCONCLUSIVE or (stalled and not away and pairs.count >= c.TRIAL_ENOUGH):
        return ended(False, True, Reason.GAIN_INCONCLUSIVE, "not told from none, so undone")
    if away:
        return ended(False, False, Reason.LOAD_SHIFT, "the load at which the two differ is gone, so undone")
    if stalled or proof.answer is Answer.UNMEASURED:
        return ended(False, False, Reason.GAIN_INCONCLUSIVE, "too few steps could be compared, so undone")
    return memory, None


def name(new: int, old: int, edge: int) -> str:
    """One change of cap, for people."""
    few = "1 request" if edge == 1 else f"{edge} requests"
    least = f"{edge // 2 + 1} to " if edge > 2 else ""
    where = f"{least}{few}" if edge < BUCKETS[-1] else f"{edge // 2 + 1} requests and more"
    return f"at most {new} drafts instead of {old} at {where}"


def _changes(caps: Caps) -> tuple[Change, ...]:
    """Where the caps on trial and those before differ, by bucket."""
    assert caps.trial is not None
    new, old = Schedule(0, caps.steps), Schedule(0, caps.trial.against)
    widest = max(caps.steps[-1].up_to, caps.trial.against[-1].up_to)
    found = []
    for edge in BUCKETS:
        batch = min(edge, widest)
        if batch > edge // 2 and new.tokens_at(batch) != old.tokens_at(batch):
            found.append((edge, old.tokens_at(batch), new.tokens_at(batch)))
    return tuple(found)


def _away(windows: Sequence[Window], changes: Sequence[Change]) -> bool:
    """Whether hardly any time of this tick went by in buckets where the two differ."""
    edges = {edge for edge, _, _ in changes}
    total = there = 0.0
    for window in windows:
        for (_, edge), cell in window.cells.items():
            total += cell.seconds
            there += cell.seconds * float(edge in edges)
    return there < c.TRIAL_GONE * total
