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
from specpilot.decide.memory import Memory
from specpilot.decide.schedule import ROUND
from specpilot.decide.settings import Settings
from specpilot.decide.verdict import shifted_lately
from specpilot.estimate import constants as c
from specpilot_engine.protocol import Exploration

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
OFF = Exploration()


def beside(memory: Memory, land: Landscape, in_force: Indices, settings: Settings, now: float) -> Exploration:
    """The exploration to run beside depth indices in_force[B] from now on, at the load as it is."""
    return explore(
        land,
        in_force,
        memory.load.weights(settings.max_batch),
        settings.exploration_price,
        settings.needed,
        shifted_lately(memory, settings, now),
        settings.in_force.exploration,
    )


def explore(
    land: Landscape,
    in_force: Indices,
    weights: Floats,
    price: float,
    needed: float,
    shifted: bool,
    present: Exploration,
) -> Exploration:
    """The exploration to run beside depth indices in_force[B], loads weighted by `weights`.

    `needed` is the log gain that would change the decision; `shifted`: what was known has just become
    doubtful. The present exploration is kept where it is about right, so that trembling estimates change
    nothing.
    """
    if price <= 0:
        return OFF
    if not weights.any():
        return present
    gain = land.log_goodput - land.log_goodput[in_force, np.arange(len(in_force))]
    deviation = land.deviation(in_force)
    # The engine explores at every batch up to a largest: a depth must be allowed at all of them.
    other = np.arange(len(land.depths))[:, None] != in_force
    share = np.where(other & np.logical_and.accumulate(land.allowed | ~other, axis=1), weights, 0.0)
    cost = _cost(land, in_force, gain, deviation)
    usable = share.sum(axis=1) > c.EXPLORE_REACH * weights.sum()
    if not usable.any():
        return OFF
    promise = (share * _gain_of_knowing(land, gain - needed, deviation, cost, price)).sum(axis=1)
    promise = np.where(usable, promise, 0.0)  # what cannot be looked at is worth no price
    worth = promise.max() * c.EXPLORE_HORIZON / (price * c.EXPLORE_AHEAD)
    least = c.EXPLORE_BLIND if _blind(land, in_force, weights) else c.EXPLORE_TRACE
    whole = present.price > (1 + least) / 2 * price
    full = shifted or worth > (c.EXPLORE_LESS if whole else c.EXPLORE_MORE)
    # At a trace another depth is worth a new schedule only if what it promises outweighs the trace.
    keep = c.EXPLORE_KEEP if full else c.EXPLORE_KEEP_TRACE if worth > least else 0.0
    index = _depth(land, np.where(usable, promise, -1.0), keep, present)
    least_batch = int((np.flatnonzero(weights)[0] + 1) / c.EXPLORATION_FALL)
    before = present if present.tokens == land.depths[index] else OFF
    stated = _stated(cost[index], share[index], least_batch, before, full)
    widest = _widest(land, index, in_force, cost[index], least_batch, stated)
    return Exploration(price if full else price * least, land.depths[index], stated, widest)


def _gain_of_knowing(land: Landscape, gain: Floats, deviation: Floats, cost: Floats, price: float) -> Floats:
    """What exploring a depth for a while may be expected to gain, [depths, batches].

    The knowledge gradient: what is not known of the gain shrinks from variance v to v n / (v + n), n
    being the variance of what would be seen, so the estimate will move by v / sqrt(v + n), and what can
    be gained is E[max(gain, 0)] over that move, gain being what is beyond a change's threshold. A depth
    that costs more to look at is looked at less, which makes n larger.
    """
    sizes = np.arange(1, gain.shape[1] + 1)
    steps = c.EXPLORE_AHEAD * np.minimum(price / cost, c.MOST_EXPLORED) / np.exp(land.log_seconds)
    noise = land.noise * c.STEP_NOISE**2 / (c.EXPLORE_CLEAN * steps) + c.LENGTH_NOISE**2 / (steps * sizes)
    move = deviation**2 / np.sqrt(deviation**2 + noise)
    scale = np.maximum(move, 1e-9) * math.sqrt(3) / math.pi  # the logistic stands in for the normal
    return np.asarray(scale * np.logaddexp(0.0, gain / scale))


def _depth(land: Landscape, promise: Floats, keep: float, present: Exploration) -> int:
    """The most promising depth; the present one while it promises `keep` of that."""
    best = int(np.argmax(promise))
    if present.price > 0 and present.tokens in land.depths:
        index = land.depths.index(present.tokens)
        if promise[index] >= keep * promise[best]:
            return index
    return best


def _blind(land: Landscape, in_force: Indices, weights: Floats) -> bool:
    """Whether depth 0 runs most of the time, where nothing but exploring shows acceptance."""
    depth_zero = np.array(land.depths)[in_force] == 0
    return bool(weights[depth_zero].sum() > 0.5 * weights.sum())


def _cost(land: Landscape, in_force: Indices, gain: Floats, deviation: Floats) -> Floats:
    """Cautious cost of one exploring step, of a step's goodput, [depths, batches]."""
    slower = np.exp(land.log_seconds - land.log_seconds[in_force, np.arange(len(in_force))])
    return np.asarray(np.maximum(slower * (1 - np.exp(gain - deviation)), c.LEAST_COST))


def _stated(cost: Floats, share: Floats, least_batch: int, present: Exploration, full: bool) -> float:
    """The load's mean cost, rounded up to a half power of two; the present one where it is near, and at a
    trace where it is not far: exploring a little less than a trace is worth no new schedule.

    Not less than a part of what a step costs at smaller batches, which the load may fall to before the
    next look: those above `least_batch`.
    """
    mean = float((cost * share).sum() / share.sum()) if share.any() else float(cost.max())
    largest = int(np.flatnonzero(share)[-1]) + 1 if share.any() else 0
    mean = max(mean, float(cost[least_batch:largest].max(initial=0.0)) / c.EXPLORATION_EDGE)
    if present.price > 0 and mean <= present.cost <= (c.DEAR_COST if full else c.STALE_COST) * mean:
        return present.cost
    return float(f"{2 ** (math.ceil(2 * math.log2(mean)) / 2):.4g}")


def _widest(
    land: Landscape, index: int, in_force: Indices, cost: Floats, least_batch: int, stated: float
) -> int:
    """The round batch up to which the depth is allowed and no step above `least_batch` costs much more than
    stated."""
    near = np.arange(len(cost)) >= least_batch
    dear = near & (cost > 1.001 * c.EXPLORATION_EDGE * stated)
    fine = (land.allowed[index] & ~dear) | (in_force == index)
    first_bad = len(fine) if fine.all() else int(np.argmin(fine))
    return max((b for b in (*ROUND, len(fine)) if b <= first_bad), default=0)
