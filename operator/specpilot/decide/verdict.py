"""Whether another schedule replaces the one in force: a chain of rules, the first that speaks decides."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specpilot.api.vocabulary import Reason
from specpilot.decide import undone
from specpilot.decide.goodput import Landscape
from specpilot.decide.memory import Memory, Undone
from specpilot.decide.schedule import depth_indices
from specpilot.decide.settings import Settings
from specpilot.estimate import constants as c
from specpilot_engine.protocol import Schedule

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Verdict:
    passed: bool
    reason: Reason
    message: str
    gain: float = 0.0


def judge(
    memory: Memory,
    land: Landscape,
    settings: Settings,
    old: Indices,
    new: Indices,
    score: Floats,
    weights: Floats,
    now: float,
) -> Verdict:
    """Whether depth indices new[B] replace old[B], and why: the first rule that speaks decides."""
    batches = np.arange(len(old))
    if memory.fresh < c.FRESH_WINDOWS:
        text = f"{memory.fresh} of {c.FRESH_WINDOWS} looks with traffic since the operator started"
        return Verdict(False, Reason.WAITING_FOR_EVIDENCE, f"{text}: the schedule holds")
    difference = land.log_goodput[new, batches] - land.log_goodput[old, batches]
    gain = float(difference @ weights)
    noise = land.total_deviation(new, old, weights)
    recent = shifted_lately(memory, settings, now)
    back = not recent and _returns(memory, settings, new, old, weights, now)
    z = c.RETURN_Z if back else c.GATE_Z
    sure = gain - z * noise
    needed = settings.needed
    what = f"{depths_named(land, new, weights)} instead of {depths_named(land, old, weights)}"
    numbers = f"{_percent(gain)} ± {_percent(noise)} more goodput at the present load"
    barred = ~np.isfinite(score[old, batches]) & (old != new)
    if (barred & (weights > 0)).any():
        text = f"{what}: the depth in force is not allowed at the present load or misses the latency ceiling"
        return Verdict(True, Reason.BETTER_SCHEDULE, text, gain)
    idle = float(score[new, batches].max())
    if not ((old != new) & (weights > 0)).any():
        if idle < max(needed, c.IDLE_GAIN):
            text = "the schedule in force is the best known at the present load"
            if undone.at_load(memory, land, old, weights):
                text += ", besides what was tried there and undone"
            return Verdict(False, Reason.HOLDING, text)
        return Verdict(True, Reason.BETTER_SCHEDULE, _elsewhere(land, old, new, score[new, batches]), gain)
    # What a trial can tell needs be likely only: it will be told.
    worth_a_trial = not back and gain - c.TRIAL_GATE_Z * noise >= max(needed, c.TRIAL_LEAST_AIM)
    if sure < needed and not (worth_a_trial and can_be_tried(settings, old, new, weights)):
        text = f"{what} would give {numbers}, and {settings.minimum_gain:.1%} beyond that uncertainty is asked for"
        return Verdict(False, Reason.BELOW_MINIMUM_GAIN, text, gain)
    waited = now - memory.changed_at
    certain = gain - c.SURE_Z * noise >= max(needed, c.SURE_GAIN)
    if waited < settings.dwell and not (recent or certain or _came_back(memory, settings)):
        text = f"{what} would give {numbers}; {settings.dwell - waited:.0f} s of dwell are left"
        return Verdict(False, Reason.DWELLING, text, gain)
    return Verdict(True, _why(memory, recent), f"{what}: {numbers}", gain)


def can_be_tried(settings: Settings, old: Indices, new: Indices, weights: Floats) -> bool:
    """Whether a trial could prove the change from depth indices old[B] to new[B]: it needs engines that compare, one
    trial at a time, and enough of the load at batch sizes that change."""
    share = float(weights[old != new].sum())
    return settings.prove and settings.in_force.trial is None and share >= 2 * c.TRIAL_GONE


def _elsewhere(land: Landscape, old: Indices, new: Indices, gains: Floats) -> str:
    batch = int(np.argmax(gains))
    depths = f"{land.depths[new[batch]]} instead of {land.depths[old[batch]]}"
    return (
        f"at batch {batch + 1}, which does not run now, depth {depths} gives"
        f" {_percent(float(gains[batch]))} more goodput or better"
    )


def shifted_lately(memory: Memory, settings: Settings, now: float) -> bool:
    """Whether traffic or step times shifted so lately that waiting would serve the wrong depth."""
    waiver = max(c.SHIFT_WAIVER, 4 * settings.interval)
    return bool(memory.shift) and 0 <= now - memory.shifted_at <= waiver


def _why(memory: Memory, recent: bool) -> Reason:
    if recent:
        return Reason.TRAFFIC_SHIFT if memory.shift == "survival" else Reason.COST_SHIFT
    if memory.load_then.moved(memory.load) >= c.LOAD_SHIFT:
        return Reason.LOAD_SHIFT
    return Reason.BETTER_SCHEDULE


def _returns(
    memory: Memory, settings: Settings, new: Indices, old: Indices, weights: Floats, now: float
) -> bool:
    """Whether most of what depth indices new[B] change only goes back to what was left lately."""
    if not memory.left or now - memory.changed_at > c.RETURN_SECONDS:
        return False
    left = depth_indices(memory.left, settings.depths, settings.max_batch)
    moved = weights * (new != old)
    return bool((moved * (new == left)).sum() > 0.5 * moved.sum())


def _came_back(memory: Memory, settings: Settings) -> bool:
    """Whether the last change only took back one that was tried: it settled nothing that should be let rest, and what
    was undone is barred."""
    if not (memory.left and memory.steps):
        return False
    left, present = (Schedule(0, steps) for steps in (memory.left, memory.steps))

    def took_back(u: Undone) -> bool:
        batch = max(round(u.batch), 1)
        return (left.tokens_at(batch), present.tokens_at(batch)) == (u.new, u.old)

    lately = (u for u in memory.undone if abs(u.at - memory.changed_at) <= 2 * settings.interval)
    return any(map(took_back, lately))


def depths_named(land: Landscape, indices: Indices, weights: Floats) -> str:
    """The depths in use over the load, most used first: "depth 3", "depths 3 and 1"."""
    share: dict[int, float] = {}
    for batch in np.flatnonzero(weights):
        k = land.depths[indices[batch]]
        share[k] = share.get(k, 0.0) + float(weights[batch])
    names = [str(k) for k in sorted(share, key=lambda k: -share[k])]
    return f"depth {names[0]}" if len(names) == 1 else f"depths {', '.join(names[:-1])} and {names[-1]}"


def _percent(log: float) -> str:
    return f"{math.expm1(log):.1%}"
