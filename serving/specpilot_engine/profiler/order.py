"""In which order the grid is measured: whatever the budget cuts off should matter least.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from specpilot_engine.protocol import ProfileRequest


@dataclass(frozen=True, slots=True)
class Group:
    """The points measured while the same requests are held: all depths of one batch and context."""

    batch: int
    context: int
    depths: tuple[int, ...]


def groups(request: ProfileRequest) -> list[Group]:
    """Contexts as asked for; within one, the outer batch sizes first, then the middles between them, and so the
    depths at each.

    With the ends known the rest is interpolated; each further batch, and each further depth, halves the widest gap.
    """
    depths = tuple(_outside_in(sorted(set(request.tokens))))
    return [
        Group(batch, context, depths)
        for context in dict.fromkeys(request.context_lengths)
        for batch in _outside_in(sorted(set(request.batch_sizes)))
    ]


def _outside_in(values: Sequence[int]) -> list[int]:
    if len(values) <= 2:
        return list(values)
    order, spans = [0, len(values) - 1], deque([(0, len(values) - 1)])
    while spans:
        low, high = spans.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            order.append(middle)
            spans += [(low, middle), (middle, high)]
    return [values[i] for i in order]
