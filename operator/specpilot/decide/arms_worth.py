"""What an arm is worth: the goodput that the tuner's estimates give its depths, and what was measured beyond.

An arm is a black box that is judged by tokens per second of the requests that run. So that what was
measured in one hour says something of another, it is kept as what it was beyond the estimate of the same
depth at the same load: traffic and load move the estimate, the arm's own effect stays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specpilot.decide import arms_constants as a
from specpilot.decide.arm import Arm, Kind
from specpilot.decide.arms_memory import Seen
from specpilot.decide.caps import depths_of, steps_of
from specpilot.decide.goodput import Landscape
from specpilot.decide.known import known, prior_of
from specpilot.decide.memory import Memory
from specpilot.decide.objective import admissible, scores
from specpilot.decide.schedule import depth_indices
from specpilot.decide.settings import Settings
from specpilot.estimate import constants as c
from specpilot.estimate.load import LoadMemory
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import ProfilePoint, bucket

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Measured = Mapping[Arm, Mapping[int, Seen]]  # by batch bucket (upper edge)


@dataclass(frozen=True, slots=True)
class View:
    """The tuner's estimates at the present load. `scheduled` [batches]: depth index of a schedule, the one in
    force or (where an arm without one is in force) the best; `graphs`: whether engines replay CUDA graphs;
    `capped` [batches]: depths of an adaptive arm in force, None of others."""

    land: Landscape
    weights: Floats
    scheduled: Indices
    graphs: bool
    load: LoadMemory
    capped: Indices | None = None

    def indices(self, arm: Arm) -> Indices:
        """Depth index at each batch size whose estimate an arm is held against."""
        if arm.kind is Kind.STATIC:
            return np.full_like(self.scheduled, self.land.depths.index(arm.tokens))
        return np.zeros_like(self.scheduled) if arm.kind is Kind.NONE else self.scheduled

    @property
    def length(self) -> float:
        """Log of the accepted length of the deepest draft: what traffic is like."""
        return float(np.log(self.land.lengths[-1]))


def view(
    memory: Memory, points: Sequence[ProfilePoint], settings: Settings, in_force: Arm, graphs: bool
) -> View:
    """Put together what the tuner knows."""
    depths, most = settings.depths, settings.max_batch
    land = known(memory, prior_of(points, memory.shape), depths, most, settings.allowed)
    scheduled = depth_indices(settings.in_force.steps, depths, most)
    if in_force.kind in (Kind.STATIC, Kind.NONE):
        # A schedule would follow the traffic: it would have what is better than the present depth beyond doubt.
        own = View(land, np.zeros(most), scheduled, graphs, memory.load).indices(in_force)
        scheduled = scores(land, own, admissible(land, settings.max_inter_token_latency)).argmax(axis=0)
    capped = depths_of(steps_of(settings.in_force, in_force.tokens), most) if in_force.capped else None
    return View(land, memory.load.weights(most), scheduled, graphs, memory.load, capped)


def prior(arm: Arm, batch: float, graphs: bool) -> tuple[float, float]:
    """(mean, deviation) of an arm's log goodput beyond the estimate, before any of it was measured."""
    if arm.kind is Kind.SCHEDULE:
        return a.SCHEDULE_PRIOR
    if arm.kind is Kind.ADAPTIVE:
        (low, gain), (high, least) = a.ADAPTIVE_GAIN
        return float(np.interp(batch, (low, high), (gain, least))), a.ADAPTIVE_DOUBT
    if not graphs:
        return a.NO_GRAPHS_PRIOR
    if arm.kind is Kind.STATIC:
        return a.PADDED_PRIOR
    sizes, ratios = zip(*a.ZERO_DEPTH_OVERHEAD, strict=True)
    gain = float(np.interp(math.log(batch), np.log(sizes), np.log(ratios)))
    return gain, gain * a.ZERO_DEPTH_DOUBT


def beyond(measured: Measured, arm: Arm, batch: float, graphs: bool) -> tuple[float, float]:
    """The same with what was measured at like batch sizes taken in."""
    mean, deviation = prior(arm, batch, graphs)
    seen = measured.get(arm, {}).get(bucket(round(batch)))
    if seen is None or not seen.precision:
        return mean, deviation
    own = deviation**-2
    total = own + seen.precision
    return (own * mean + seen.precision * seen.mean) / total, math.sqrt(1 / total + a.FLOOR**2)


def gain(view: View, measured: Measured, new: Arm, old: Arm) -> tuple[float, float]:
    """(mean, deviation) of the log goodput of `new` over `old` at the present load.

    What is not known of one arm is taken to be wrong alike at all batch sizes, so the load averages nothing
    away.
    """
    ours, theirs = view.indices(new), view.indices(old)
    column = np.arange(len(view.weights))
    difference = view.land.log_goodput[ours, column] - view.land.log_goodput[theirs, column]
    mean = float(difference @ view.weights)
    variance = view.land.total_deviation(ours, theirs, view.weights) ** 2
    for arm, sign in ((new, 1.0), (old, -1.0)):
        doubt = 0.0
        for i in np.flatnonzero(view.weights):
            value, deviation = beyond(measured, arm, float(i + 1), view.graphs)
            mean += sign * float(view.weights[i]) * value
            doubt += float(view.weights[i]) * deviation
        variance += doubt**2
    return mean, math.sqrt(variance)


def learn(
    measured: Measured, arm: Arm, view: View, windows: Sequence[Window]
) -> tuple[dict[Arm, Mapping[int, Seen]], int]:
    """Take in one tick's windows (all replicas') of engines that ran one arm; 1 where they told something, else 0.

    Of an arm without a drafter every step counts, of others those at the depth that the arm drafts at: a
    schedule's exploring steps are not its own, nor are those of a cap on trial.
    """
    indices = view.indices(arm)
    told: dict[int, list[tuple[float, float]]] = {}  # (value, precision) by bucket
    for window in windows:
        for (depth, edge), cell in window.cells.items():
            column = min(max(round(cell.requests / cell.steps), 1), len(indices)) - 1
            own = view.land.depths[indices[column]] if view.capped is None else view.capped[column]
            if depth != own or cell.steps < c.LEAST_STEPS or cell.emitted <= 0:
                continue
            rate = math.log(cell.emitted / (cell.seconds * cell.requests / cell.steps))
            value = rate - float(view.land.log_goodput[indices[column], column])
            noise = c.WINDOW_NOISE**2 + c.STEP_NOISE**2 / cell.steps + c.LENGTH_NOISE**2 / cell.requests
            told.setdefault(edge, []).append((value, 1 / noise))
    passed = max((w.seconds for w in windows), default=0.0)
    keep, fade = (0.5 ** (passed / life) for life in (a.HALF_LIFE, a.STALE_HALF_LIFE))
    before = measured.get(arm, {})
    ours = {**before, **{edge: _added(before.get(edge, Seen()), new, keep) for edge, new in told.items()}}
    others = {
        other: {edge: replace(seen, precision=seen.precision * fade) for edge, seen in theirs.items()}
        for other, theirs in measured.items()
        if other != arm
    }
    return {**others, arm: ours}, int(bool(told))


def _added(seen: Seen, told: Sequence[tuple[float, float]], keep: float) -> Seen:
    """With what one tick told; what was known before fades by `keep`."""
    old = seen.precision * keep
    total = old + sum(precision for _, precision in told)
    mean = (old * seen.mean + sum(precision * value for value, precision in told)) / total
    return Seen(total, mean)
