"""How many requests run, as the scheduler sees it, and how long their context is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from specpilot.estimate import constants as c
from specpilot.estimate.windows import Window

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoadMemory:
    """Decayed seconds of stepping and their mean batch by bucket (upper edge); mean context a request."""

    seconds: Mapping[int, float] = field(default_factory=dict)
    batch: Mapping[int, float] = field(default_factory=dict)
    context: float | None = None

    def shares(self) -> dict[int, float]:
        """Share of time by bucket."""
        total = sum(self.seconds.values())
        return {edge: s / total for edge, s in self.seconds.items()} if total else {}

    def weights(self, max_batch: int) -> Floats:
        """Share of time at each batch 1..max_batch; zeros before any traffic."""
        weights = np.zeros(max_batch)
        for edge, share in self.shares().items():
            mean = min(max(round(self.batch[edge], 2), 1.0), float(max_batch))
            low = int(mean)
            high = min(low + 1, max_batch)
            weights[low - 1] += share * (1 - (mean - low))
            weights[high - 1] += share * (mean - low)
        return weights

    def moved(self, other: LoadMemory) -> float:
        """Share of time that is at other batch sizes in `other`: 0 the same, 1 disjoint. Sizes within NEAR_LOAD of each
        other are the same."""
        if not self.seconds or not other.seconds:
            return 0.0
        same, left = 0.0, other.shares()
        # In order, each size with the least that is near: no other pairs have more in common.
        for edge, share in sorted(self.shares().items()):
            for theirs in sorted(left):
                ratio = self.batch[edge] / other.batch[theirs]
                if max(ratio, 1 / ratio) <= c.NEAR_LOAD:
                    both = min(share, left[theirs])
                    same, share = same + both, share - both
                    left[theirs] -= both
        return max(1 - same, 0.0)


def learn(memory: LoadMemory, windows: Iterable[Window]) -> LoadMemory:
    """Take in the windows of one tick; each replica counts by the time it stepped.

    Windows at other batch sizes altogether are another load: what was before then weighs nothing.
    """
    windows = list(windows)
    seconds: dict[int, float] = {}
    weighted: dict[int, float] = {}
    contexts: list[tuple[float, float]] = []
    for w in windows:
        for (_, edge), cell in w.cells.items():
            seconds[edge] = seconds.get(edge, 0.0) + cell.seconds
            weighted[edge] = weighted.get(edge, 0.0) + cell.seconds * cell.requests / cell.steps
        if w.context:
            contexts.append((sum(x.requests for x in w.cells.values()), w.context))
    if not seconds:
        return memory
    keep = 0.5 ** (max(w.seconds for w in windows) / c.LOAD_HALF_LIFE)
    if memory.moved(LoadMemory(seconds, {e: weighted[e] / s for e, s in seconds.items()})) >= c.LOAD_GONE:
        memory = replace(memory, seconds={}, batch={})
    totals: dict[int, float] = {}
    batch: dict[int, float] = {}
    for edge in sorted(seconds.keys() | memory.seconds.keys()):
        old = memory.seconds.get(edge, 0.0) * keep
        total = old + seconds.get(edge, 0.0)
        if total > 0.01:
            totals[edge] = total
            batch[edge] = (old * memory.batch.get(edge, 0.0) + weighted.get(edge, 0.0)) / total
    return LoadMemory(totals, batch, _context(memory.context, contexts, keep))


def _context(old: float | None, new: list[tuple[float, float]], keep: float) -> float | None:
    weight = sum(w for w, _ in new)
    if not weight:
        return old
    mean = sum(w * x for w, x in new) / weight
    return mean if old is None else keep * old + (1 - keep) * mean
