"""The trial of a change, from its begin to what becomes of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specpilot.api.vocabulary import Reason
from specpilot.decide import exploration, undone
from specpilot.decide.decision import Decision
from specpilot.decide.goodput import Landscape
from specpilot.decide.memory import Memory, Tried
from specpilot.decide.proof import Answer, borne_out, extent, favour, refuted, weigh
from specpilot.decide.schedule import depth_indices
from specpilot.decide.settings import Settings
from specpilot.decide.verdict import can_be_tried, depths_named, shifted_lately
from specpilot.estimate import constants as c
from specpilot.estimate.counters import TrialCount
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import Trial

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

ALTERNATING = "the schedule in force alternates with the one before, until their goodput is told apart"


def note(memory: Memory, settings: Settings, now: float) -> Memory:
    """What is in force decides whether there is a trial: it may have been begun by an operator that died
    before it could write that down, or have been written down and never come into force."""
    generation, tried = settings.in_force.generation, memory.trial
    if settings.in_force.trial is None:
        return memory if tried is None else replace(memory, trial=None)
    if tried is None or tried.generation != generation:
        memory = replace(memory, trial=Tried(generation, now))
    return memory


def begin(
    land: Landscape,
    settings: Settings,
    old: Indices,
    new: Indices,
    weights: Floats,
    gain: float,
) -> Trial | None:
    """The trial with which a change from depth indices old[B] to new[B] begins; None where little or nothing
    of the load is at batch sizes that change, and so little to measure."""
    if not can_be_tried(settings, old, new, weights):
        return None
    share = np.where(old != new, weights, 0.0)
    batch = float(share @ np.arange(1, len(share) + 1) / share.sum())
    at = min(round(batch), len(share)) - 1
    seconds = float(np.exp(land.log_seconds[[old[at], new[at]], at]).mean())
    noise = c.STEP_NOISE * math.sqrt(land.noise)
    ratio = favour(*_believed(land, old, new, weights))
    steps, pairs = extent(batch, gain / float(share.sum()), ratio, seconds, noise)
    return Trial(settings.in_force.steps, steps, pairs, ratio)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a trial stands. `settled` ends it; otherwise `released`: the tuner may decide as if there were
    none, and if it then has nothing to change, `given_up` ends it with the new schedule."""

    memory: Memory
    settled: Decision | None = None
    released: bool = False
    given_up: Decision | None = None


def follow(
    memory: Memory,
    land: Landscape,
    settings: Settings,
    counts: Sequence[TrialCount],
    windows: Sequence[Window],
    now: float,
) -> Progress:
    """One look at the trial of the schedule in force. `windows` are those of this tick, none without cells."""
    trial, tried = settings.in_force.trial, memory.trial
    assert trial is not None
    assert tried is not None
    old, new = (
        depth_indices(steps, settings.depths, settings.max_batch)
        for steps in (trial.against, settings.in_force.steps)
    )
    weights = memory.load.weights(settings.max_batch)
    there = _told_apart(old, new, weights)
    what = f"{depths_named(land, new, there)} instead of {depths_named(land, old, there)}"
    proof = weigh([count for count in counts if count.generation == settings.in_force.generation])
    tried = tried.after(proof.pairs.count, max(window.seconds for window in windows))
    memory = replace(memory, trial=tried)
    predicted = None if tried.predicted is None else math.expm1(tried.predicted)

    def settled(reason: Reason, message: str, chosen: Indices) -> Decision:
        """`chosen` without a trial. What explored before, and at which cost, was another schedule's."""
        x = exploration.beside(memory, land, chosen, settings, now)
        steps = settings.in_force.steps if chosen is new else trial.against
        moved = chosen is not new
        text = f"{what}: {message}"
        return Decision(True, steps, x, reason, text, predicted, moved, settled=True)

    believed = _believed(land, old, new, weights)
    if proof.answer is Answer.KEEP or borne_out(proof, *believed):
        together = "" if proof.answer is Answer.KEEP else ", enough with what is known of the two besides"
        kept = settled(Reason.GAIN_CONFIRMED, f"{proof.measured}{together}", new)
        return Progress(memory, replace(kept, measured=proof.measured))
    away = _away(windows, old, new)
    stalled = tried.stalled(settings.interval)
    spent = proof.answer is Answer.INCONCLUSIVE or (stalled and proof.pairs.count >= c.TRIAL_ENOUGH)
    fell = tried.predicted is not None and tried.predicted - believed[0] >= c.SURE_GAIN
    wrong = fell and not away and refuted(proof, *believed, settings.needed)
    if proof.answer is Answer.UNDO or wrong or (spent and not away):
        memory = undone.remember(memory, land, old, new, weights, now)
        reason, why = Reason.GAIN_INCONCLUSIVE, "not told from none, so undone"
        if proof.answer is Answer.UNDO:
            reason, why = Reason.CHANGE_UNDONE, "undone"
        elif wrong:
            reason, why = Reason.CHANGE_UNDONE, "with what is known of the two besides too little, so undone"
        back = settled(reason, f"{proof.measured}, {why}", old)
        return Progress(memory, replace(back, measured=proof.measured))
    if away or stalled or proof.answer is Answer.UNMEASURED:
        reason, why = Reason.GAIN_INCONCLUSIVE, "too few steps could be compared"
        if away:
            reason, why = Reason.LOAD_SHIFT, "the load at which the two differ is gone"
        text = f"{why}, so it is kept as estimated, unproved"
        return Progress(memory, released=True, given_up=settled(reason, text, new))
    another_load = memory.load_then.moved(memory.load) >= c.LOAD_SHIFT
    return Progress(memory, released=another_load or shifted_lately(memory, settings, now))


def _believed(land: Landscape, old: Indices, new: Indices, weights: Floats) -> tuple[float, float]:
    """Log gain of depth indices new[B] over old[B] where the two differ, and its deviation."""
    share = np.where(old != new, weights, 0.0)
    share /= max(share.sum(), 1e-9)
    batches = np.arange(len(old))
    gain = float((land.log_goodput[new, batches] - land.log_goodput[old, batches]) @ share)
    return gain, land.total_deviation(new, old, share)


def _told_apart(old: Indices, new: Indices, weights: Floats) -> Floats:
    """Weights of the batch sizes by which to name the two: where they differ at the load, else where they differ."""
    differ = old != new
    ones = np.ones(len(old))
    for share in (np.where(differ, weights, 0.0), np.where(differ, ones, 0.0)):
        if share.any():
            return share
    return ones


def _away(windows: Sequence[Window], old: Indices, new: Indices) -> bool:
    """Whether hardly any time of this tick went by at batch sizes where the two differ."""
    total = there = 0.0
    for window in windows:
        for cell in window.cells.values():
            batch = min(max(round(cell.requests / cell.steps), 1), len(old))
            total += cell.seconds
            there += cell.seconds * float(old[batch - 1] != new[batch - 1])
    return there < c.TRIAL_GONE * total
