"""Caps on depth where vLLM itself sizes what is verified of a draft. Pure.

Under adaptive verification nobody sees what whole drafts are worth, so nothing predicts what a cap gives. It
is tried: at the batch sizes that run, now and then, a neighbouring cap alternates with the one in force, and the
measured goodput decides. What wins by minimumGain stays; anything else is undone and barred while traffic is as
it was. Without a trial, and wherever none has run, the cap is all drafts of the arm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specpilot.api.vocabulary import Reason
from specpilot.decide import caps_constants as k
from specpilot.decide.caps_memory import BarredCap, CapMemory
from specpilot.decide.caps_trial import Ended, follow, name
from specpilot.decide.decision import Decision
from specpilot.decide.memory import Tried
from specpilot.decide.proof import Measured, extent
from specpilot.decide.schedule import depths_at, shorten
from specpilot.decide.schedule import in_words as schedule_in_words
from specpilot.decide.settings import Settings
from specpilot.estimate import constants as c
from specpilot.estimate.counters import TrialCount
from specpilot.estimate.load import LoadMemory
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import BUCKETS, Caps, Schedule, Step, Trial

Depths = NDArray[np.intp]  # at each batch 1..n
Hint = Callable[[int, int], float]  # (depth, batch) → log goodput that the tuner would expect of whole drafts

AS_IT_IS = "the caps in force stay"


@dataclass(frozen=True, slots=True)
class Situation:
    """Facts of one tick. `of`: the spec and the arm in force, `tokens` its drafts. `able`: every engine changes
    depths live and can compare two of them; `settled`: all pods run the arm, and nothing else is under way."""

    of: str
    tokens: int
    able: bool
    settled: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """A decision, and the schedule that carries it out: a new generation, None where the caps stay."""

    decision: Decision
    schedule: Schedule | None = None


def decide(
    memory: CapMemory,
    facts: Situation,
    settings: Settings,
    load: LoadMemory,
    windows: Sequence[Window],
    counts: Sequence[TrialCount],
    now: float,
    hint: Hint | None = None,
) -> tuple[CapMemory, Turn]:
    """One look. `settings.prove` is leave to try: mode Apply; minimumGain is what a cap must win by, and
    explorationPrice bounds how often one is tried, 0 that none is. `hint` orders what to try next."""
    if memory.of and memory.of != facts.of and settings.in_force.caps is not None:
        text = "the caps in force were found under other arguments: all drafts at any load again"
        return CapMemory(facts.of, now), _turn(settings, None, Reason.INITIAL, text, changed=True)
    memory = _noted(memory, facts, settings, now)
    windows = [w for w in windows if w.cells]
    if not windows:
        return memory, _hold(settings, Reason.WAITING_FOR_EVIDENCE, f"no decoding was seen: {AS_IT_IS}")
    memory = memory.after(windows)
    caps = settings.in_force.caps
    if caps is not None and caps.trial is not None:
        memory, ended = follow(memory, caps, settings, windows, counts)
        if ended is None:
            return memory, _hold(settings, Reason.VERIFYING, "two caps alternate")
        return _settled(memory, ended, caps, settings, load, now)
    return _propose(memory, facts, settings, load, windows, now, hint)


def depths_of(caps: Sequence[Step], least: int) -> Depths:
    """The depth at each batch 1..n, n being at least `least` and so many as `caps` tell apart."""
    return depths_at(caps, max(least, caps[-1].up_to))


def steps_of(schedule: Schedule, tokens: int) -> tuple[Step, ...]:
    """Caps that are taken to hold: those before while others are on trial, `tokens` where there are none."""
    caps = schedule.caps
    if caps is None:
        return (Step(schedule.steps[-1].up_to if schedule.steps else 1, tokens),)
    return caps.trial.against if caps.trial is not None else caps.steps


def in_words(caps: Sequence[Step]) -> str:
    """For people: "at most 7 drafts up to 128 requests, then 0"."""
    return schedule_in_words(caps, "at most {} drafts")


def _noted(memory: CapMemory, facts: Situation, settings: Settings, now: float) -> CapMemory:
    """Memory of the arm in force; its trial is the one that the schedule in force has, whoever began it."""
    if memory.of != facts.of:
        memory = CapMemory(facts.of, now)
    caps, generation = settings.in_force.caps, settings.in_force.generation
    if caps is None or caps.trial is None:
        return replace(memory, trial=None)
    if memory.trial is None or memory.trial.generation != generation:
        return replace(memory, trial=Tried(generation, now))
    return memory


def _settled(
    memory: CapMemory,
    ended: Ended,
    caps: Caps,
    settings: Settings,
    load: LoadMemory,
    now: float,
) -> tuple[CapMemory, Turn]:
    assert caps.trial is not None
    steps = caps.steps if ended.kept else caps.trial.against
    fruitless, barred = dict(memory.fruitless), list(memory.barred)
    for edge, old, new in ended.changes if ended.reason is not Reason.LOAD_SHIFT else ():
        fruitless[edge] = 0 if ended.kept else fruitless.get(edge, 0) + 1
        if not ended.told:
            continue
        # What was just found better is not left the way it came, either.
        old, new = (new, old) if ended.kept else (old, new)
        barred = [b for b in barred if (b.edge, b.old, b.new) != (edge, old, new)]
        batch = load.batch.get(edge, float(edge))
        barred.append(BarredCap(edge, old, new, memory.length(edge, old), round(batch, 2), now))
    memory = replace(
        memory,
        trial=None,
        ended_at=now,
        barred=tuple(barred)[-k.MOST_BARRED :],
        fruitless={edge: n for edge, n in fruitless.items() if n},
    )
    return memory, _turn(
        settings,
        Caps(steps),
        ended.reason,
        ended.message,
        changed=not ended.kept,
        settled=True,
        measured=ended.measured,
    )


def _propose(
    memory: CapMemory,
    facts: Situation,
    settings: Settings,
    load: LoadMemory,
    windows: Sequence[Window],
    now: float,
    hint: Hint | None,
) -> tuple[CapMemory, Turn]:
    price = settings.exploration_price
    if not settings.prove or price <= 0:
        return memory, _hold(settings, Reason.HOLDING, f"spec.tuning lets none be tried: {AS_IT_IS}")
    if not facts.able:
        return memory, _hold(settings, Reason.HOLDING, f"engines cannot compare caps: {AS_IT_IS}")
    edge, share = max(load.shares().items(), key=lambda row: row[1], default=(0, 0.0))
    there = [cell for w in windows for (_, e), cell in w.cells.items() if e == edge]
    if not facts.settled or share < 2 * c.TRIAL_GONE or not there:
        return memory, _hold(settings, Reason.WAITING_FOR_EVIDENCE, f"nothing can be tried now: {AS_IT_IS}")
    batch = load.batch[edge]
    memory = _lifted(memory, edge, batch, now)
    rest = max(k.REST_DWELLS * settings.dwell, k.TRIAL_COST / price)
    rest *= 2.0 ** min(memory.fruitless.get(edge, 0), k.MOST_DOUBLED)
    if now - memory.since < settings.dwell or now - memory.ended_at < rest:
        return memory, _hold(settings, Reason.DWELLING, f"the next trial is not due: {AS_IT_IS}")
    present = steps_of(settings.in_force, facts.tokens)
    at = depths_of(present, max(settings.max_batch, edge))
    old = int(at[min(round(batch), len(at)) - 1])
    known = sorted({0, facts.tokens, *(d for d in settings.depths if d <= facts.tokens)})
    barred = {b.new for b in memory.barred if (b.edge, b.old) == (edge, old)}
    options = [new for new in _options(old, known, at, edge) if new not in barred]
    if hint is not None:
        options.sort(key=lambda new: -hint(new, round(batch)))
    wanted = at.copy()
    for new in options:
        wanted[_bucket(edge)] = new
        steps = _merged(wanted, known, edge)
        if not np.array_equal(depths_of(steps, len(at)), at):
            seconds = sum(cell.seconds for cell in there) / sum(cell.steps for cell in there)
            length, pairs = extent(batch, 2 * settings.needed, 1.0, seconds, c.STEP_NOISE)
            text = f"{name(new, old, edge)}: the two alternate, until their goodput is told apart"
            caps = Caps(steps, Trial(present, length, pairs))
            memory = replace(memory, trial=Tried(settings.in_force.generation + 1, now))
            return memory, _turn(settings, caps, Reason.VERIFYING, text, changed=True)
    return memory, _hold(settings, Reason.HOLDING, f"no other cap is left to try at this load: {AS_IT_IS}")


def _options(old: int, known: Sequence[int], at: Depths, edge: int) -> list[int]:
    """What to try instead of cap `old`, in order: what is in force at larger batches, the next lower one, none (which
    alone may save the drafter's own time), the next deeper one."""
    i = known.index(old) if old in known else 0
    above = int(at[edge]) if edge < len(at) else old
    found = [above] if above < old else []
    found += [known[i - 1], 0] if i > 0 else []
    found += [known[i + 1]] if i + 1 < len(known) else []
    return list(dict.fromkeys(found))


def _merged(wanted: Depths, known: Sequence[int], edge: int) -> tuple[Step, ...]:
    """At most as many steps as a schedule may have; where that is too few, batches that do not run get a cap too deep
    rather than one too shallow."""
    rank = np.searchsorted(known, wanted)
    distance = np.arange(len(known))[:, None] - rank[None, :]
    loss = np.where(distance > 0, k.MERGE_DEEPER * distance, -k.MERGE_SHALLOWER * distance)
    runs = np.zeros(len(wanted), bool)
    runs[_bucket(edge)] = True
    return shorten(-loss, known, 1 / np.arange(1, len(wanted) + 1), (), runs)


def _bucket(edge: int) -> slice:
    """Places of a bucket's batches; the last has all that are larger, too."""
    return slice(edge // 2, edge if edge < BUCKETS[-1] else None)


def _lifted(memory: CapMemory, edge: int, batch: float, now: float) -> CapMemory:
    """Without what is barred in this bucket no longer, since traffic is another; then a trial is due sooner, too.

    What was barred before enough was seen of its traffic stands for the traffic that is seen first.
    """
    here = [b for b in memory.barred if b.edge == edge]
    held = [b for b in here if _holds(b, batch, memory.length(edge, b.old), now)]
    held = [replace(b, length=memory.length(edge, b.old)) if b.length is None else b for b in held]
    fruitless = memory.fruitless
    if len(held) < len(here):
        fruitless = {e: n for e, n in fruitless.items() if e != edge}
    barred = (*(b for b in memory.barred if b.edge != edge), *held)
    return memory if held == here else replace(memory, barred=barred, fruitless=fruitless)


def _holds(barred: BarredCap, batch: float, length: float | None, now: float) -> bool:
    """`length`: as seen of late at the cap that was kept."""
    if barred.old == 0:
        return now - barred.at < k.LOOK_AGAIN
    if max(batch / barred.batch, barred.batch / batch) > k.BATCH_CHANGED:
        return False
    if length is None or barred.length is None:
        return True
    return abs(length - barred.length) < k.LENGTH_CHANGED


def _turn(
    settings: Settings,
    caps: Caps | None,
    reason: Reason,
    message: str,
    changed: bool,
    settled: bool = False,
    measured: Measured | None = None,
) -> Turn:
    held = settings.in_force
    decision = Decision(
        True,
        held.steps,
        held.exploration,
        reason,
        message,
        steps_changed=changed,
        settled=settled,
        measured=measured,
    )
    return Turn(decision, replace(held, generation=held.generation + 1, caps=caps))


def _hold(settings: Settings, reason: Reason, message: str) -> Turn:
    held = settings.in_force
    return Turn(Decision(False, held.steps, held.exploration, reason, message))
