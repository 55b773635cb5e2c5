"""Changes that a trial did not bear out: not tried again until what was believed of them has changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from specpilot.decide.goodput import Landscape
from specpilot.decide.memory import Memory, Undone
from specpilot.estimate import constants as c

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


def remember(
    memory: Memory, land: Landscape, old: Indices, new: Indices, weights: Floats, now: float
) -> Memory:
    """Memory that bars the change from depth indices old[B] to new[B] at each load where they differ."""
    records = []
    for a, b in sorted({(int(a), int(b)) for a, b in zip(old, new, strict=True) if a != b}):
        share = np.where((old == a) & (new == b), weights, 0.0)
        if share.sum() <= c.MOVED_SHARE:
            continue
        batch = float(share @ np.arange(1, len(share) + 1) / share.sum())
        length, seconds = _compared(land, a, b, batch)
        records.append(Undone(round(batch, 2), land.depths[a], land.depths[b], length, seconds, now))
    return replace(memory, undone=(*memory.undone, *records)[-c.MOST_UNDONE :])


def still(memory: Memory, land: Landscape) -> Memory:
    """Without those of which something has changed: traffic shifted since, or accepted lengths or step
    times of the two depths moved against each other by what counts as material."""
    kept = tuple(u for u in memory.undone if memory.shifted_at <= u.at and _unchanged(u, land))
    return memory if kept == memory.undone else replace(memory, undone=kept)


def bar(memory: Memory, land: Landscape, old: Indices, score: Floats) -> Floats:
    """`score` [depths, batches] with what was undone out of the question, near where it was."""
    if not memory.undone:
        return score
    score = score.copy()
    for u in memory.undone:
        if u.old in land.depths and u.new in land.depths:
            # Where the old depth is out of the question itself, what is left is not barred.
            there = _there(u, land, old) & np.isfinite(score[land.depths.index(u.old)])
            score[land.depths.index(u.new), there] = -np.inf
    return score


def at_load(memory: Memory, land: Landscape, old: Indices, weights: Floats) -> tuple[Undone, ...]:
    """What is barred at batch sizes that run, while depth indices old[B] are in force."""
    known = (u for u in memory.undone if u.old in land.depths and u.new in land.depths)
    return tuple(u for u in known if weights[_there(u, land, old)].any())


def _there(u: Undone, land: Landscape, old: Indices) -> NDArray[np.bool_]:
    """Batch sizes at which its old depth is in force, near that at which it was undone."""
    ratio = np.arange(1, len(old) + 1) / u.batch
    near = np.maximum(ratio, 1 / ratio) <= c.NEAR_LOAD
    return np.asarray(near & (old == land.depths.index(u.old)))


def _unchanged(u: Undone, land: Landscape) -> bool:
    if u.old not in land.depths or u.new not in land.depths:
        return True
    length, seconds = _compared(land, land.depths.index(u.old), land.depths.index(u.new), u.batch)
    return abs(length - u.length) <= c.MATERIAL_LENGTH and abs(seconds - u.seconds) <= c.MATERIAL_COST


def _compared(land: Landscape, old: int, new: int, batch: float) -> tuple[float, float]:
    """Logs of accepted length and step time at depth index `new` over those at `old`."""
    at = min(max(round(batch), 1), land.log_seconds.shape[1]) - 1
    lengths = np.log(land.lengths)
    return (
        round(float(lengths[new] - lengths[old]), 6),
        round(float(land.log_seconds[new, at] - land.log_seconds[old, at]), 6),
    )
