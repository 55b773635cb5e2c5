"""What memories have in common that come back from a ConfigMap, which anybody may have edited."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from specpilot.estimate.load import LoadMemory

_MODEST = 1e15  # no evidence of years comes near; squares and sums of what is below do not overflow
# What reading a document may raise that is damaged, of another version, or by another hand.
UNREADABLE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)


def finite(value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """A number from `least` to `most`. Raises ValueError or TypeError for what is none."""
    if not (math.isfinite(number := float(value)) and least <= number <= most):
        raise ValueError(f"{value!r} is not a number that can be used")
    return number


def modest(value: Any) -> float:
    """A number that arithmetic cannot overflow with. Raises as `finite`."""
    return finite(value, -_MODEST, _MODEST)


def clamped(value: Any, low: float = 0.0, high: float = _MODEST) -> float:
    """A number from 0 on, brought between the bounds. Raises as `finite`."""
    return min(max(finite(value, 0.0), low), high)


def load_of(rows: Iterable[Sequence[Any]]) -> LoadMemory:
    """A load without its context, of (bucket, seconds, requests); no step has less than one request. Raises as `finite`."""
    seconds, batch = {}, {}
    for edge, spent, requests in rows:
        seconds[int(edge)] = clamped(spent)
        batch[int(edge)] = clamped(requests, 1.0)
    return LoadMemory(seconds, batch)
