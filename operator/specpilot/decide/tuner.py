"""One tick of tuning: windows in, a better memory and a decision out. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from specpilot.api.vocabulary import Reason
from specpilot.decide import exploration as exploring
from specpilot.decide.explain import Row, rows
from specpilot.decide.goodput import Allowed, Landscape, landscape
from specpilot.decide.memory import Memory
from specpilot.decide.objective import admissible, scores
from specpilot.decide.schedule import depth_indices, run_lengths, shorten
from specpilot.estimate import constants as c
from specpilot.estimate import cost, load, survival
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import Exploration, ProfilePoint, Schedule, Step

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


def everywhere(_depth: int, _batch: int) -> bool:
    """Any depth at any batch."""
    return True


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user and the plan say. Times in seconds.

    `depths` are the candidates, ascending, 0 among them; `in_force` is the schedule that engines run now
    (in Observe and Recommend it is not the one last recommended). `allowed` tells which depths may run
    at which batch, from the plan's graph map.
    """

    depths: tuple[int, ...]
    max_batch: int
    in_force: Schedule
    minimum_gain: float = 0.03
    dwell: float = 120.0
    interval: float = 30.0
    exploration_price: float = 0.005
    max_inter_token_latency: float | None = None
    allowed: Allowed = everywhere


@dataclass(frozen=True, slots=True)
class Decision:
    """What to run from now on.

    `change`: `steps` or `exploration` differ from what is in force and should be published as a new
    generation; `steps_changed` tells the first. `predicted_gain` is the relative gain in goodput of
    `steps` over the schedule in force at the present load (0.08: 8%), None when nothing is known.
    """

    change: bool
    steps: tuple[Step, ...]
    exploration: Exploration
    reason: Reason
    message: str
    predicted_gain: float | None = None
    steps_changed: bool = False
    table: tuple[Row, ...] = ()


def initial_schedule(profile: Sequence[ProfilePoint], settings: Settings) -> tuple[Step, ...]:
    """The schedule of a deployment that has had no traffic.

    With a profile, what pays at the survival of no traffic in particular; without, the smallest depth
    above 0, which costs little where it is wrong.
    """
    prior = _prior(tuple(profile))
    land = _landscape(Memory(), prior, settings)
    reference = np.zeros(settings.max_batch, np.intp)
    if prior.measured:
        may = admissible(land, settings.max_inter_token_latency)
    else:
        may = land.allowed.copy()
        may[2:] = False
    score = scores(land, reference, may)
    if not prior.measured and len(settings.depths) > 1:
        score[0] = np.where(may[1], -1.0, score[0])
    return shorten(score, settings.depths, _all_sizes(settings.max_batch))


def tune(
    memory: Memory,
    windows: Sequence[Window],
    profile: Sequence[ProfilePoint],
    settings: Settings,
    now: float,
) -> tuple[Memory, Decision]:
    """Learn from the windows of one tick (all replicas') and decide.

    The decision holds the schedule in force unless another beats it by minimumGain beyond what is
    uncertain, and dwell has passed since it last changed or traffic has just shifted.
    """
    memory = _note_in_force(memory, settings, now)
    windows = [w for w in windows if w.cells]
    prior = _prior(tuple(profile))
    if not windows:
        text = "no decoding was seen since the last look, so the schedule holds"
        return memory, _hold(settings, Reason.WAITING_FOR_EVIDENCE, text)
    memory = _learn(memory, windows, prior, now)
    return memory, _decide(memory, prior, settings, now)


# A profile is the same at every tick.
_prior = lru_cache(maxsize=64)(CostPrior)


def _note_in_force(memory: Memory, settings: Settings, now: float) -> Memory:
    """Dwell counts from when another depth was first seen in force at the load, whoever put it there.

    A change at batch sizes that do not run costs nothing and starts no dwell.
    """
    steps, x = settings.in_force.steps, settings.in_force.exploration
    if memory.steps != steps:
        if memory.steps and _moved(memory, settings):
            memory = replace(memory, changed_at=now, left=memory.steps, load_then=memory.load)
        memory = replace(memory, steps=steps)
    if memory.exploration != x:
        memory = replace(memory, exploration=x, explored_at=now)
    return memory


def _moved(memory: Memory, settings: Settings) -> bool:
    before, after = (
        depth_indices(steps, settings.depths, settings.max_batch)
        for steps in (memory.steps, settings.in_force.steps)
    )
    weights = memory.load.weights(settings.max_batch)
    return bool(weights[before != after].sum() > c.MOVED_SHARE or not weights.any())


def _returns(
    memory: Memory, settings: Settings, new: Indices, old: Indices, weights: Floats, now: float
) -> bool:
    """Whether most of what depth indices new[B] change only goes back to what was left lately."""
    if not memory.left or now - memory.changed_at > c.RETURN_SECONDS:
        return False
    left = depth_indices(memory.left, settings.depths, settings.max_batch)
    moved = weights * (new != old)
    return bool((moved * (new == left)).sum() > 0.5 * moved.sum())


def _learn(memory: Memory, windows: Sequence[Window], prior: CostPrior, now: float) -> Memory:
    acceptance, traffic = survival.learn(memory.survival, windows)
    step_times, slower = cost.learn(memory.cost, windows, prior)
    shift = "survival" if traffic else "cost" if slower else ""
    return replace(
        memory,
        survival=acceptance,
        cost=step_times,
        load=load.learn(memory.load, windows),
        shift=shift or memory.shift,
        shifted_at=now if shift else memory.shifted_at,
        fresh=memory.fresh + 1,
        note="",
    )


def _landscape(memory: Memory, prior: CostPrior, settings: Settings) -> Landscape:
    depths, context = settings.depths, memory.load.context
    costs = cost.Costs(memory.cost, prior, depths, settings.max_batch, context)
    land = landscape(depths, survival.believe(memory.survival, depths[-1]), costs, settings.allowed)
    return replace(land, noise=memory.cost.dispersion.value)


def _all_sizes(max_batch: int) -> Floats:
    """Weights of batch sizes nothing is known of: each doubling counts alike."""
    weights = 1 / np.arange(1, max_batch + 1)
    return np.asarray(weights / weights.sum())


def _decide(memory: Memory, prior: CostPrior, settings: Settings, now: float) -> Decision:
    depths, in_force = settings.depths, settings.in_force
    land = _landscape(memory, prior, settings)
    may = admissible(land, settings.max_inter_token_latency)
    old = depth_indices(in_force.steps, depths, settings.max_batch)
    weights = memory.load.weights(settings.max_batch)
    score = scores(land, old, may)
    mixed = c.LOAD_WEIGHT * weights + (1 - c.LOAD_WEIGHT) * _all_sizes(settings.max_batch)
    steps = shorten(score, depths, mixed, [s.up_to for s in in_force.steps])
    new = depth_indices(steps, depths, settings.max_batch)
    verdict = _verdict(memory, land, settings, old, new, score, weights, now)
    chosen = new if verdict.passed else old
    recent = _recent(memory, settings, now)
    exploration = exploring.explore(
        land, chosen, weights, settings.exploration_price, _needed(settings), recent, in_force.exploration
    )
    rested = now - memory.explored_at >= c.EXPLORATION_DWELL or in_force.exploration.price == 0
    if not (verdict.passed or rested or recent):
        exploration = in_force.exploration
    return Decision(
        change=verdict.passed or exploration != in_force.exploration,
        steps=steps if verdict.passed else in_force.steps,
        exploration=exploration,
        reason=verdict.reason,
        message=verdict.message,
        predicted_gain=math.expm1(verdict.gain),
        steps_changed=verdict.passed,
        table=rows(land, chosen, weights),
    )


@dataclass(frozen=True, slots=True)
class _Verdict:
    passed: bool
    reason: Reason
    message: str
    gain: float = 0.0


def _verdict(
    memory: Memory,
    land: Landscape,
    settings: Settings,
    old: Indices,
    new: Indices,
    score: Floats,
    weights: Floats,
    now: float,
) -> _Verdict:
    """Whether depth indices new[B] replace old[B], and why: the first rule that speaks decides."""
    batches = np.arange(len(old))
    if memory.fresh < c.FRESH_WINDOWS:
        text = f"{memory.fresh} of {c.FRESH_WINDOWS} looks with traffic since the operator started"
        return _Verdict(False, Reason.WAITING_FOR_EVIDENCE, f"{text}: the schedule holds")
    difference = land.log_goodput[new, batches] - land.log_goodput[old, batches]
    gain = float(difference @ weights)
    noise = land.total_deviation(new, old, weights)
    recent = _recent(memory, settings, now)
    back = not recent and _returns(memory, settings, new, old, weights, now)
    z = c.RETURN_Z if back else c.GATE_Z
    sure = gain - z * noise
    needed = _needed(settings)
    what = f"{_depths(land, new, weights)} instead of {_depths(land, old, weights)}"
    numbers = f"{_percent(gain)} ± {_percent(noise)} more goodput at the present load"
    barred = ~np.isfinite(score[old, batches]) & (old != new)
    if (barred & (weights > 0)).any():
        text = f"{what}: the depth in force is not allowed at the present load or misses the latency ceiling"
        return _Verdict(True, Reason.BETTER_SCHEDULE, text, gain)
    idle = float(score[new, batches].max())
    elsewhere = idle >= max(needed, c.IDLE_GAIN) and sure >= -c.LEAST_GAIN
    if not elsewhere and not ((old != new) & (weights > 0)).any():
        return _Verdict(False, Reason.HOLDING, "the schedule in force is the best known at the present load")
    if sure < needed and not elsewhere:
        text = f"{what} would give {numbers}, and {settings.minimum_gain:.1%} beyond that uncertainty is asked for"
        return _Verdict(False, Reason.BELOW_MINIMUM_GAIN, text, gain)
    waited = now - memory.changed_at
    certain = gain - c.SURE_Z * noise >= max(needed, c.SURE_GAIN)
    if waited < settings.dwell and not recent and not certain:
        text = f"{what} would give {numbers}; {settings.dwell - waited:.0f} s of dwell are left"
        return _Verdict(False, Reason.DWELLING, text, gain)
    if sure < needed:
        where = int(np.argmax(score[new, batches])) + 1
        text = (
            f"at batch {where}, {land.depths[new[where - 1]]} instead of {land.depths[old[where - 1]]} gives"
        )
        return _Verdict(True, Reason.BETTER_SCHEDULE, f"{text} {_percent(idle)} more goodput or better", gain)
    return _Verdict(True, _why(memory, recent), f"{what}: {numbers}", gain)


def _needed(settings: Settings) -> float:
    """The log gain beyond uncertainty that is worth a change."""
    return max(math.log1p(settings.minimum_gain), c.LEAST_GAIN)


def _recent(memory: Memory, settings: Settings, now: float) -> bool:
    """Whether traffic or step times shifted so lately that waiting would serve the wrong depth."""
    waiver = max(c.SHIFT_WAIVER, 4 * settings.interval)
    return bool(memory.shift) and 0 <= now - memory.shifted_at <= waiver


def _why(memory: Memory, recent: bool) -> Reason:
    if recent:
        return Reason.TRAFFIC_SHIFT if memory.shift == "survival" else Reason.COST_SHIFT
    if memory.load_then.moved(memory.load) >= c.LOAD_SHIFT:
        return Reason.LOAD_SHIFT
    return Reason.BETTER_SCHEDULE


def _hold(settings: Settings, reason: Reason, message: str) -> Decision:
    return Decision(False, settings.in_force.steps, settings.in_force.exploration, reason, message)


def _depths(land: Landscape, indices: Indices, weights: Floats) -> str:
    """The depths in use over the load, most used first: "depth 3", "depths 3 and 1"."""
    share: dict[int, float] = {}
    for batch in np.flatnonzero(weights):
        k = land.depths[indices[batch]]
        share[k] = share.get(k, 0.0) + float(weights[batch])
    names = [str(k) for k in sorted(share, key=lambda k: -share[k])]
    return f"depth {names[0]}" if len(names) == 1 else f"depths {', '.join(names[:-1])} and {names[-1]}"


def _percent(log: float) -> str:
    return f"{math.expm1(log):.1%}"


__all__ = ["Decision", "Settings", "initial_schedule", "run_lengths", "tune"]
