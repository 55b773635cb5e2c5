"""What to look at that the schedule does not show, and at which price.

One exploring step at depth k takes C_k, in which the schedule's depth would have emitted
(C_k / C) L tokens per request instead of L_k: it costs C_k/C - L_k/L of a step's goodput. The engine
divides the price by that cost and so knows how many steps it may explore. The price is paid in full
while what is not known could change the decision, and falls to a trace when it could not: a
shift that only deeper slots show would otherwise never be seen.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from specpilot.decide.goodput import Landscape
from specpilot.decide.schedule import ROUND
from specpilot.estimate import constants as c
from specpilot_engine.protocol import Exploration

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
OFF = Exploration()


def explore(
    land: Landscape,
    in_force: Indices,
    weights: Floats,
    price: float,
    worth: float,
    present: Exploration,
) -> Exploration:
    """The exploration to run beside depth indices in_force[B], loads weighted by `weights`.

    `worth` is the log gain that would change the decision. The present exploration is kept where it is
    about right, so that trembling estimates change nothing.
    """
    if price <= 0 or not weights.any():
        return OFF if price <= 0 else present
    batches = np.arange(len(in_force))
    gain = land.log_goodput - land.log_goodput[in_force, batches]
    deviation = land.deviation(in_force)
    may = land.allowed & (np.arange(len(land.depths))[:, None] != in_force)
    share = np.where(may, weights, 0.0)
    # How likely and by how much each depth is better, over the load.
    hope = (share * _expected_excess(gain, deviation)).sum(axis=1)
    if not hope.any():
        return OFF
    index = _depth(land, hope, weights, present, share)
    low, high = ((share * np.maximum(gain + z * deviation, 0.0)).sum(axis=1).max() for z in c.EXPLORE_Z)
    level = _level(present, price, bool(low > worth), bool(high > worth), _blind(land, in_force, weights))
    cost = _cost(land, index, in_force, gain, deviation)
    stated = _stated(cost, share[index], present if present.tokens == land.depths[index] else OFF)
    return Exploration(
        price * level, land.depths[index], stated, _widest(land, index, in_force, cost, stated)
    )


def _expected_excess(mean: Floats, deviation: Floats) -> Floats:
    """E[max(X, 0)] of X ~ N(mean, deviation), elementwise, by the logistic stand-in for the normal."""
    scale = np.maximum(deviation, 1e-9) * math.sqrt(3) / math.pi
    return np.asarray(scale * np.logaddexp(0.0, mean / scale))


def _depth(land: Landscape, hope: Floats, weights: Floats, present: Exploration, share: Floats) -> int:
    """The most hopeful depth; the present one while it is half as hopeful."""
    best = int(np.argmax(hope))
    if present.price > 0 and present.tokens in land.depths:
        index = land.depths.index(present.tokens)
        if share[index].sum() > 0.5 * weights.sum() and hope[index] >= c.EXPLORE_KEEP * hope[best]:
            return index
    return best


def _blind(land: Landscape, in_force: Indices, weights: Floats) -> bool:
    """Whether depth 0 runs most of the time, where nothing but exploring shows acceptance."""
    depth_zero = np.array(land.depths)[in_force] == 0
    return bool(weights[depth_zero].sum() > 0.5 * weights.sum())


def _level(present: Exploration, price: float, surely: bool, possibly: bool, blind: bool) -> float:
    """Share of the price: up a level where exploring surely matters, down where it cannot."""
    levels = c.EXPLORE_LEVELS[1:] if not blind else c.EXPLORE_LEVELS[1:2]
    levels = (c.EXPLORE_LEVELS[0], *levels)
    if present.price <= 0:
        return levels[0]
    at = min(range(len(levels)), key=lambda i: abs(math.log(present.price / (price * levels[i]))))
    if surely:
        return levels[0]
    if not possibly:
        at = min(at + 1, len(levels) - 1)
    return levels[at]


def _cost(land: Landscape, index: int, in_force: Indices, gain: Floats, deviation: Floats) -> Floats:
    """Cautious cost of one exploring step by batch, of a step's goodput."""
    batches = np.arange(len(in_force))
    slower = np.exp(land.log_seconds[index] - land.log_seconds[in_force, batches])
    worse = 1 - np.exp(gain[index] - deviation[index])
    return np.asarray(np.maximum(slower * worse, c.LEAST_COST))


def _stated(cost: Floats, share: Floats, present: Exploration) -> float:
    """The load's mean cost, rounded up to a half power of two; the present one where it is near.

    Not less than a part of what a step costs at smaller batches, which the load may fall to before the
    next look.
    """
    mean = float((cost * share).sum() / share.sum()) if share.any() else float(cost.max())
    below = float(cost[: int(np.flatnonzero(share)[-1]) + 1].max()) if share.any() else 0.0
    mean = max(mean, below / c.EXPLORATION_EDGE)
    if present.price > 0 and mean <= present.cost <= 2.5 * mean:
        return present.cost
    return float(f"{2 ** (math.ceil(2 * math.log2(mean)) / 2):.4g}")


def _widest(land: Landscape, index: int, in_force: Indices, cost: Floats, stated: float) -> int:
    """The round batch up to which the depth is allowed and no step costs much more than stated."""
    fine = (land.allowed[index] & (cost <= 1.001 * c.EXPLORATION_EDGE * stated)) | (in_force == index)
    first_bad = len(fine) if fine.all() else int(np.argmin(fine))
    return max((b for b in (*ROUND, len(fine)) if b <= first_bad), default=0)
