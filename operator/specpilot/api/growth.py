"""How a CostProfile may change: points are added, and what was measured stays.

The policies compare (old, new); the API server runs their CEL on updates only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specpilot.api.base import Policy

if TYPE_CHECKING:
    from specpilot.api.profile import CostProfileSpec, Point

MAX_BATCH, MAX_CONTEXT = 4096, 1 << 22  # of a grid; together with the depth a place fits 64 bits


def _place(point: Point) -> tuple[int, int, int]:
    return point.tokens, point.batch_size, point.context_length


def _place_in_cel(p: str) -> str:
    """One number: comparing objects with objects takes the API server seconds for some hundred points."""
    return f"({p}.tokens * {MAX_BATCH + 1} + {p}.batchSize) * {MAX_CONTEXT + 1} + {p}.contextLength"


POINT: tuple[Policy[tuple[Point, Point]], ...] = (  # at the same place
    Policy(
        "spec.points",
        "spec.points cannot change: delete the CostProfile to measure again",
        "self.seconds == oldSelf.seconds",
        lambda change: change[0].seconds != change[1].seconds,
    ),
)

PROFILE: tuple[Policy[tuple[CostProfileSpec, CostProfileSpec]], ...] = (
    Policy(
        "spec.fingerprint",
        "spec.fingerprint and spec.key cannot change: make another CostProfile for another engine",
        "self.fingerprint == oldSelf.fingerprint && self.key == oldSelf.key",
        lambda change: (change[0].fingerprint, change[0].key) != (change[1].fingerprint, change[1].key),
    ),
    Policy(
        "spec.points",
        "spec.points can only grow: delete the CostProfile to measure again",
        f"[self.points.map(p, {_place_in_cel('p')})].all(now,"
        f" oldSelf.points.all(o, ({_place_in_cel('o')}) in now))",
        lambda change: not set(map(_place, change[0].points)) <= set(map(_place, change[1].points)),
    ),
)
