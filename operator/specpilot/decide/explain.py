"""Why this depth: what each alternative is worth, as rows for a person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specpilot.decide.goodput import Landscape, goodput, slot_price, speedup

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
MOST_BATCHES = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One depth at one batch size.

    `gained` and `needed` are the two sides of the marginal rule, from the next lower candidate to this one:
    the survival of the slots between them, and (C' - C) L / C. Both None at the lowest depth.
    """

    batch: int
    tokens: int
    accepted_length: float  # L_k
    seconds: float  # C_k(B)
    goodput: float  # tokens per second
    speedup: float  # over depth 0
    uncertainty: float  # one standard deviation of log goodput against the chosen depth
    allowed: bool
    gained: float | None
    needed: float | None
    chosen: bool
    share: float  # of time at this batch size

    @property
    def pays(self) -> bool | None:
        """The marginal rule's word on the last slots. Local only: step times are a staircase."""
        return None if self.gained is None or self.needed is None else self.gained > self.needed

    @property
    def latency(self) -> float:
        """Mean seconds between a request's tokens: C_k / L_k."""
        return self.seconds / self.accepted_length


def rows(land: Landscape, chosen: Indices, weights: Floats, batches: Sequence[int] = ()) -> tuple[Row, ...]:
    """Rows for `batches`, by default for the load's and for powers of four up to the largest batch."""
    deviation = land.deviation(chosen)
    gained, needed = margins(land)
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
                    float(gained[i - 1]) if i else None,
                    float(needed[i - 1, column]) if i else None,
                    bool(chosen[column] == i),
                    float(weights[column]),
                )
            )
    return tuple(found)


def margins(land: Landscape) -> tuple[Floats, Floats]:
    """The marginal rule from each candidate to the next: gained [depths - 1], needed [depths - 1, batches].

    With gaps between candidates it is for the gap at once: the next depth pays iff gained > needed.
    """
    seconds = np.exp(land.log_seconds)
    return np.diff(land.lengths), slot_price(land.lengths[:-1, None], seconds[:-1], seconds[1:])


def _telling(weights: Floats) -> list[int]:
    """The batches that carry the load, filled up with powers of four."""
    count = len(weights)
    loaded = [int(b) + 1 for b in np.argsort(-weights, kind="stable")[: MOST_BATCHES // 2] if weights[b] > 0]
    powers = [2**e for e in range(0, int(math.log2(count)) + 1, 2)] + [count]
    return sorted({*loaded, *powers[: MOST_BATCHES - len(loaded)]})
