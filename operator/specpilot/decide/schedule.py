"""From a score for each (depth, batch) to a short schedule."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from specpilot.estimate import constants as c
from specpilot.estimate.cost import SIZES
from specpilot_engine.protocol import Step

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Full = Callable[[int, int], bool]  # (depth, batch): whether one request more would take a larger graph

ROUND = frozenset(SIZES)


def depth_indices(steps: Sequence[Step], depths: Sequence[int], max_batch: int) -> Indices:
    """The index in `depths` in force at each batch 1..max_batch; a depth not listed counts as the next lower."""
    tokens = depths_at(steps, max_batch)
    return np.asarray(np.maximum(np.searchsorted(np.array(depths), tokens, side="right") - 1, 0), np.intp)


def depths_at(steps: Sequence[Step], max_batch: int) -> Indices:
    """The depth itself at each batch 1..max_batch."""
    ends = np.array([s.up_to for s in steps])
    at = np.minimum(np.searchsorted(ends, np.arange(1, max_batch + 1)), len(steps) - 1)
    return np.asarray(np.array([s.tokens for s in steps])[at], np.intp)


def run_lengths(indices: Indices, depths: Sequence[int]) -> tuple[Step, ...]:
    """Steps that say exactly `indices`."""
    ends = np.append(np.flatnonzero(np.diff(indices)) + 1, len(indices))
    return tuple(Step(int(end), depths[indices[end - 1]]) for end in ends)


def in_words(steps: Sequence[Step], said: str = "depth {}") -> str:
    """A schedule as a person reads it: "depth 7 up to 8 requests, 3 up to 64, then 1". `said`: of its first depth."""
    first, *others = steps
    if not others:
        return f"{said.format(first.tokens)} at any load"
    *between, last = others
    parts = [f"{said.format(first.tokens)} up to {first.up_to} requests"]
    parts += [f"{s.tokens} up to {s.up_to}" for s in between]
    return f"{', '.join(parts)}, then {last.tokens}"


def shorten(
    scores: Floats,
    depths: Sequence[int],
    weights: Floats,
    keep: Sequence[int] = (),
    load: NDArray[np.bool_] | None = None,
) -> tuple[Step, ...]:
    """The best schedule of at most MAX_STEPS steps.

    `scores` [depths, batches] are log goodputs, -inf where a depth is out of the question; every batch
    has one that is not. At each batch the chosen depth loses at most MERGE_TOLERANCE to the best. Where so
    few steps cannot do that, the tolerance doubles until they can, first for batches that are not of the
    `load`. Within it, the weighted loss is least, a step costing STEP_PRICE and a boundary that is neither
    round nor in `keep` ROUGH_PRICE.
    """
    best = scores.max(axis=0)
    loss = best - scores
    runs = np.zeros(len(best), bool) if load is None else load
    ends = _boundaries(np.argmax(scores, axis=0), keep)
    price = np.array([0.0 if e in ROUND or e in keep or e == len(best) else c.ROUGH_PRICE for e in ends])
    starts = np.concatenate(([0], ends[:-1]))
    there = np.maximum.reduceat(np.where(runs, loss, 0.0), starts, axis=1)
    elsewhere = np.maximum.reduceat(np.where(runs, 0.0, loss), starts, axis=1)
    finite = np.where(np.isfinite(loss), loss, 0.0)
    totals = np.add.reduceat(finite * weights, starts, axis=1)
    least, *more = (c.MERGE_TOLERANCE * 2**i for i in range(15))
    for levels in ([(least, least), *((least, t) for t in more)], [(t, t) for t in more]):
        tolerated = [np.maximum(there / at_load, elsewhere / beside) for at_load, beside in levels]
        # What fits under one level fits under those after it, which tolerate more.
        first = bisect_left(tolerated, True, key=_fits)
        found = _cut(tolerated[first], totals, price) if first < len(levels) else None
        if found is not None:
            return _joined([Step(int(ends[end]), depths[k]) for end, k in found])
    return (Step(len(best), depths[int(np.argmin(np.where(np.isfinite(loss), loss, 1e9).max(axis=1)))]),)


def aligned(
    steps: Sequence[Step], scores: Floats, depths: Sequence[int], full: Full, keep: Sequence[int] = ()
) -> tuple[Step, ...]:
    """`steps` that end where a captured graph is full, as far as that loses no more than MERGE_TOLERANCE at any batch.

    One request more takes the next graph, and pays for all its rows: where the depth below ends just short of that,
    it ends there instead. Ends in `keep`, those of the present schedule, stay.
    """
    loss = scores.max(axis=0) - scores
    ends = [step.up_to for step in steps]

    def reach(tokens: int, end: int, last: int, way: int) -> Iterator[int]:
        """Ends from `end` on to which depth `tokens` loses little at the batches between."""
        row = loss[depths.index(tokens)]
        while end != last and row[end if way > 0 else end - 1] <= c.MERGE_TOLERANCE:
            end += way
            yield end

    for i, (below, above) in enumerate(pairwise(steps)):
        end, first = below.up_to, ends[i - 1] + 1 if i else 1
        if end not in keep and not full(below.tokens, end):
            near = [*reach(below.tokens, end, ends[i + 1] - 1, 1), *reach(above.tokens, end, first, -1)]
            fitting = (e for e in near if full(below.tokens, e))
            ends[i] = min(fitting, key=lambda e: abs(e - end), default=end)
    return tuple(Step(end, step.tokens) for end, step in zip(ends, steps, strict=True))


def _boundaries(best: Indices, keep: Sequence[int]) -> Indices:
    """Where steps may end: round sizes, ends of the present schedule, and where the best depth changes."""
    count = len(best)
    changes = np.flatnonzero(np.diff(best)) + 1
    ends = {count, *(b for b in ROUND if b < count), *(b for b in keep if b < count), *changes.tolist()}
    return np.array(sorted(ends), np.intp)


def _until(worst: Floats) -> Indices:
    """[depths, blocks]: the first block from each on where a depth loses more than is tolerated."""
    count = worst.shape[1]
    bad = np.where(worst > 1.0, np.arange(count), count)
    return np.asarray(np.minimum.accumulate(bad[:, ::-1], axis=1)[:, ::-1], np.intp)


def _fits(worst: Floats) -> bool:
    """Whether MAX_STEPS segments suffice, each as long as some depth allows."""
    until, block = _until(worst).max(axis=0), 0
    for _ in range(c.MAX_STEPS):
        block = int(until[block])
        if block == worst.shape[1]:
            return True
    return False


def _cut(worst: Floats, totals: Floats, price: Floats) -> list[tuple[int, int]] | None:
    """Best cut of the blocks into at most MAX_STEPS segments as (last block, depth index), or None.

    `worst` and `totals` [depths, blocks]: largest loss of a depth in a block, of what is tolerated, and the
    weighted loss.
    """
    blocks = worst.shape[1]
    sums = np.concatenate((np.zeros((len(totals), 1)), np.cumsum(totals, axis=1)), axis=1)
    first, last = np.arange(blocks)[:, None], np.arange(blocks)
    # [depths, first block, last block]
    fits = (last >= first) & (last < _until(worst)[:, :, None])
    segments = np.where(fits, sums[:, None, 1:] - sums[:, :-1, None], np.inf)
    depth, cost = segments.argmin(axis=0), segments.min(axis=0) + price + c.STEP_PRICE
    reach = [cost[0]]
    origin: list[Indices] = []
    for _ in range(c.MAX_STEPS - 1):
        # [first, last]: the best so far up to block first - 1, then one segment.
        through = np.concatenate(([np.inf], reach[-1][:-1]))[:, None] + cost
        origin.append(np.asarray(np.argmin(through, axis=0), np.intp))
        reach.append(through.min(axis=0))
    count = int(np.argmin([r[-1] for r in reach]))
    if not np.isfinite(reach[count][-1]):
        return None
    found, end = [], blocks - 1
    for level in range(count, -1, -1):
        begin = int(origin[level - 1][end]) if level else 0
        found.append((end, int(depth[begin, end])))
        end = begin - 1
    return found[::-1]


def _joined(steps: list[Step]) -> tuple[Step, ...]:
    """Neighbours with one depth become one step."""
    return tuple(
        s for s, after in zip(steps, [*steps[1:], None], strict=True) if not after or after.tokens != s.tokens
    )
