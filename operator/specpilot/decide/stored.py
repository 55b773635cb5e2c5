"""What memories have in common that come back from a ConfigMap, which anybody may have edited."""

from __future__ import annotations

import math
from typing import Any

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


def finite(value: Any, least: float = -math.inf) -> float:
    """A number from `least` on. Raises ValueError or TypeError for what is none."""
    if not (math.isfinite(number := float(value)) and number >= least):
        raise ValueError(f"{value!r} is not a number that can be used")
    return number
