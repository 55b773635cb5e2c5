"""Why this depth: what each alternative is worth, as rows for a person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specpilot.decide.goodput import Landscape, goodput, next_slot_pays, speedup

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
MOST_BATCHES = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One depth at one batch size. `pays` is the marginal rule's word on its last slots; None at depth 0."""

    batch: int
    tokens: int
    accepted_length: float  # L_k
    seconds: float  # C_k(B)
    goodput: float  # tokens per second
    speedup: float  # over depth 0
    uncertainty: float  # one standard deviation of log goodput against the chosen depth
    allowed: bool
    pays: bool | None
    chosen: bool
    share: float  # of time at this batch size


def rows(land: Landscape, chosen: Indices, weights: Floats, batches: Sequence[int] = ()) -> tuple[Row, ...]:
    """Rows for `batches`, by default for the load's and for doublings up to the largest batch."""
    deviation = land.deviation(chosen)
    found = []
    for batch in batches or _telling(weights):
        column = batch - 1
        seconds = np.exp(land.log_seconds[:, column])
        for i, k in enumerate(land.depths):
            length = float(land.lengths[i])
            found.append(
                Row(
                    batch,
                    k,
                    length,
                    float(seconds[i]),
                    goodput(batch, length, float(seconds[i])),
                    speedup(length, float(seconds[i]), float(seconds[0])),
                    float(deviation[i, column]),
                    bool(land.allowed[i, column]),
                    _pays(land, i, seconds),
                    bool(chosen[column] == i),
                    float(weights[column]),
                )
            )
    return tuple(found)


def _pays(land: Landscape, index: int, seconds: Floats) -> bool | None:
    """The marginal rule from the next lower candidate; with gaps between candidates, for the gap at once."""
    if index == 0:
        return None
    before = float(land.lengths[index - 1])
    gained = float(land.lengths[index]) - before
    return next_slot_pays(gained, before, float(seconds[index - 1]), float(seconds[index]))


def _telling(weights: Floats) -> list[int]:
    """The batches that carry the load, filled up with doublings."""
    count = len(weights)
    loaded = [int(b) + 1 for b in np.argsort(-weights, kind="stable")[: MOST_BATCHES // 2] if weights[b] > 0]
    doublings = [2**e for e in range(0, int(math.log2(count)) + 1, 2)] + [count]
    return sorted({*loaded, *doublings[: MOST_BATCHES - len(loaded)]})
