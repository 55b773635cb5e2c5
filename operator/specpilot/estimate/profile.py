"""Step times between the measured points of a profile, and an estimate where there is none.

C_k(B, ctx): linear in B between points and beyond them by the last slope, linear in context between
measured lengths (the nearest one outside them), linear in k between measured depths. Anything may be
missing: a profile is usable from its first point on. The model's shape (shape.py) fills in ratios, or stands alone;
where that is not known either, a generic one does.
"""

from __future__ import annotations

import math
from bisect import bisect_right as bisect
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from specpilot.estimate import constants as c
from specpilot.estimate.shape import step_time
from specpilot_engine.protocol import ModelShape, ProfilePoint

Floats = NDArray[np.float64]
FAR = 1e5  # a batch beyond any
KNOTS = np.array([1.0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, FAR])


def generic(depth: float, batch: Floats | float) -> Floats:
    """Step time of no engine in particular: a fixed cost, rows verified, slots drafted; seconds."""
    rows = np.asarray(batch, float) * (1 + depth)
    return np.asarray(c.GENERIC_STEP * (1 + c.GENERIC_ROW * rows + c.GENERIC_DRAFT * depth))


class Curve:
    """Step time over the batch at one depth and context: knots and what is linear between them."""

    __slots__ = ("_ends", "_heights", "knots", "values")

    def __init__(self, knots: Floats, values: Floats) -> None:
        self.knots, self.values = knots, values
        self._ends: list[float] = knots.tolist()
        self._heights: list[float] = values.tolist()

    def at(self, batch: Floats) -> Floats:
        """Seconds at each batch size."""
        return np.interp(batch, self.knots, self.values)

    def one(self, batch: float) -> float:
        """Seconds at one batch size: the same, without numpy's cost of a call."""
        ends, heights = self._ends, self._heights
        high = min(max(bisect(ends, batch), 1), len(ends) - 1)
        share = (min(max(batch, ends[0]), ends[-1]) - ends[high - 1]) / (ends[high] - ends[high - 1])
        return heights[high - 1] + share * (heights[high] - heights[high - 1])


class CostPrior:
    """What is believed of step times before traffic: a profile, or an estimate without points.

    `disorder` is how wrong its points prove each other, as a log deviation; `sigma` the errors expected otherwise.
    """

    def __init__(self, points: Sequence[ProfilePoint], shape: ModelShape | None = None) -> None:
        self._shape = shape
        contexts: dict[int, dict[int, dict[int, float]]] = {}
        for p in points:
            if 0 < p.seconds < math.inf and p.batch > 0:
                contexts.setdefault(p.context, {}).setdefault(p.tokens, {})[p.batch] = p.seconds
        self.disorder = _disorder(contexts)
        self._lengths = sorted(contexts)
        self._curves = {
            (x, k): curve
            for x in self._lengths
            for k, curve in _curves(contexts[x], partial(self._typical, context=x)).items()
        }
        self._known = {x: sorted(contexts[x]) for x in self._lengths}

    @property
    def measured(self) -> bool:
        """Whether there is any point."""
        return bool(self._lengths)

    @property
    def sigma(self) -> tuple[float, float, float, float]:
        """Log errors expected: common to everything, by depth, by batch, by point."""
        if self.measured:
            return c.SIGMA_PROFILED
        return c.SIGMA_SHAPED if self._shape else c.SIGMA_GENERIC

    def seconds(self, depth: int, batches: Floats, context: float | None) -> Floats:
        """Step time at each batch; the longest measured context where `context` is None."""
        if not self._lengths:
            return np.asarray(self._typical(depth, batches, context))
        low, high, share = self._around(context)
        above = self._curve(high, depth).at(batches)
        return above if low == high else (1 - share) * self._curve(low, depth).at(batches) + share * above

    def second(self, depth: int, batch: float, context: float | None) -> float:
        """`seconds` at one batch."""
        if not self._lengths:
            return float(self._typical(depth, batch, context))
        low, high, share = self._around(context)
        above = self._curve(high, depth).one(batch)
        return above if low == high else (1 - share) * self._curve(low, depth).one(batch) + share * above

    def _typical(self, depth: float, batch: Floats | float, context: float | None) -> Floats | float:
        """Step time where nothing was measured."""
        if self._shape is None:
            return generic(depth, batch)
        return step_time(self._shape, depth, batch, context)

    def _around(self, context: float | None) -> tuple[int, int, float]:
        """The measured lengths on both sides of a context, and its place between them."""
        lengths = self._lengths
        at = lengths[-1] if context is None else min(max(context, lengths[0]), lengths[-1])
        high = next(x for x in lengths if x >= at)
        if high == at:
            return high, high, 1.0
        low = lengths[lengths.index(high) - 1]
        return low, high, (at - low) / (high - low)

    def _curve(self, length: int, depth: int) -> Curve:
        curve = self._curves.get((length, depth))
        if curve is None:
            curve = self._curves[length, depth] = self._between_depths(length, depth)
        return curve

    def _between_depths(self, length: int, depth: int) -> Curve:
        known = self._known[length]
        below = [k for k in known if k < depth]
        above = [k for k in known if k > depth]
        if below and above:
            low, high = below[-1], above[0]
        elif len(below) > 1:
            low, high = below[-2], below[-1]
        else:
            near = below[-1] if below else above[0]
            ratio = self._typical(depth, KNOTS, length) / self._typical(near, KNOTS, length)
            return Curve(KNOTS, self._curve(length, near).at(KNOTS) * ratio)
        a, b = self._curve(length, low), self._curve(length, high)
        knots = np.union1d(a.knots, b.knots)
        slope = (b.at(knots) - a.at(knots)) / (high - low)
        if depth > high:
            # A deeper draft is no cheaper, whatever the noise between the two deepest says.
            return Curve(knots, b.at(knots) + np.maximum(slope, 0.0) * (depth - high))
        return Curve(knots, a.at(knots) + slope * (depth - low))


def _disorder(contexts: dict[int, dict[int, dict[int, float]]]) -> float:
    """Log deviation of points that would put a deeper or a larger step below a smaller one as often as seen.

    Neither takes less time. Where two times are truly equal, points that are wrong by independent errors of
    deviation s fall by d with E[max(d, 0)^2] = s^2; where they are not it is less, so this errs on the
    trusting side, and a staircase is no error.
    """
    falls = []
    for depths in contexts.values():
        for k, after in pairwise(sorted(depths)):
            falls += [
                math.log(depths[k][b] / depths[after][b]) for b in depths[k].keys() & depths[after].keys()
            ]
        for curve in depths.values():
            falls += [math.log(curve[a] / curve[b]) for a, b in pairwise(sorted(curve))]
    return math.sqrt(sum(max(d, 0.0) ** 2 for d in falls) / len(falls)) if falls else 0.0


Typical = Callable[[float, Floats | float], Floats | float]  # step time where nothing was measured


def _curves(depths: dict[int, dict[int, float]], typical: Typical) -> dict[int, Curve]:
    """The curve of each measured depth, by depth, at one context."""
    shapes = {k: _measured(points) for k, points in depths.items() if len(points) > 1}
    return {
        k: shapes[k] if k in shapes else _through_one(k, *next(iter(points.items())), shapes, typical)
        for k, points in sorted(depths.items())
    }


def _through_one(
    depth: int, size: float, seconds: float, shapes: dict[int, Curve], typical: Typical
) -> Curve:
    """Through a depth's only point, with the shape of the nearest depth that has one.

    A profile whose time ran out lacks its last depths at its last batch size. How the step grows with the
    batch is then known from the shallower ones; what is typical only tells how depths differ in that.
    """
    if not shapes:
        return Curve(KNOTS, np.asarray(seconds * typical(depth, KNOTS) / typical(depth, size)))
    near = min(shapes, key=lambda k: (abs(k - depth), k))
    knots = np.union1d(KNOTS, shapes[near].knots)
    growth = typical(depth, knots) / typical(depth, size) * typical(near, size) / typical(near, knots)
    return Curve(knots, seconds * growth * shapes[near].at(knots) / shapes[near].one(size))


def _measured(points: dict[int, float]) -> Curve:
    """Through the points of one depth; beyond them by the nearest slope, never falling with the batch."""
    sizes = np.array(sorted(points), float)
    seconds = np.array([points[int(b)] for b in sizes])
    slopes = np.diff(seconds) / np.diff(sizes)
    first = seconds[0] - max(float(slopes[0]), 0.0) * (sizes[0] - 1.0)
    last = seconds[-1] + max(float(slopes[-1]), 0.0) * (FAR - sizes[-1])
    before = [] if sizes[0] == 1 else [1.0]
    values = np.concatenate(([max(first, 0.5 * float(seconds[0]))] if before else [], seconds, [last]))
    return Curve(np.concatenate((before, sizes, [FAR])), values)
