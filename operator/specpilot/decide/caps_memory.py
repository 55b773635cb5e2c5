"""What is remembered of caps on depth, and its small JSON form that survives a restart of the operator."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specpilot.decide import caps_constants as k
from specpilot.decide.memory import Tried
from specpilot.decide.stored import UNREADABLE, finite
from specpilot.estimate.windows import Window

VERSION = 1
Lengths = Mapping[tuple[int, int], tuple[float, float]]  # (cap, bucket) → requests times steps, tokens


@dataclass(frozen=True, slots=True)
class BarredCap:
    """A change of cap from `old` to `new` in one batch bucket (upper edge) that is not tried while traffic is as it
    was: log of the tokens that a step gave each request at the old cap (None: not seen), at so many requests."""

    edge: int
    old: int
    new: int
    length: float | None
    batch: float
    at: float


@dataclass(frozen=True, slots=True)
class CapMemory:
    """Of one arm under one spec (`of`). `since`: when that was first seen; `ended_at`: when the last trial was over;
    `fruitless`: trials in a row that changed nothing, by bucket; `lengths`: what was seen lately, by cap and bucket,
    which a restart forgets. Times in epoch seconds, 0 never."""

    of: str = ""
    since: float = 0.0
    ended_at: float = 0.0
    trial: Tried | None = None  # of the caps in force
    barred: tuple[BarredCap, ...] = ()
    fruitless: Mapping[int, int] = field(default_factory=dict)
    lengths: Lengths = field(default_factory=dict)

    def length(self, edge: int, cap: int) -> float | None:
        """Log of the tokens that a step gave each request in a bucket at a cap; None where too little was seen."""
        requests, emitted = self.lengths.get((cap, edge), (0.0, 0.0))
        if requests < k.LENGTH_REQUESTS or emitted <= 0:
            return None
        return round(math.log(emitted / requests), 4)

    def after(self, windows: Iterable[Window]) -> CapMemory:
        """With what one tick showed: few requests and slow steps need several. What is older than the newest
        2 × LENGTH_REQUESTS counts for no more than as many."""
        lengths = dict(self.lengths)
        for key, cell in ((key, cell) for w in windows for key, cell in w.cells.items()):
            requests, emitted = lengths.get(key, (0.0, 0.0))
            lengths[key] = requests + cell.requests, emitted + cell.emitted
        return replace(self, lengths={key: _newest(*sums) for key, sums in lengths.items()})

    @property
    def decided(self) -> tuple[object, ...]:
        """What must not be lost: written at once."""
        tried = self.trial and self.trial.generation
        return self.of, self.ended_at, tried, self.barred, tuple(sorted(self.fruitless.items()))

    def to_json(self) -> str:
        """Canonical JSON."""
        document = {
            "version": VERSION,
            "of": self.of,
            "since": round(self.since, 3),
            "endedAt": round(self.ended_at, 3),
            "trial": [self.trial.generation, self.trial.at] if self.trial else None,
            "barred": [[b.edge, b.old, b.new, b.length, b.batch, b.at] for b in self.barred],
            "fruitless": sorted(self.fruitless.items()),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> CapMemory:
        """Read back. Never raises: what cannot be read gives an empty memory. The caps themselves stand in the
        schedule's file."""
        try:
            doc = json.loads(text)
            return cls._read(doc) if doc["version"] == VERSION else cls()
        except UNREADABLE:
            return cls()

    @classmethod
    def _read(cls, doc: dict[str, Any]) -> CapMemory:
        trial = doc["trial"]
        return cls(
            str(doc["of"]),
            finite(doc["since"]),
            finite(doc["endedAt"]),
            Tried(int(trial[0]), finite(trial[1])) if trial else None,
            tuple(
                BarredCap(
                    int(edge),
                    int(old),
                    int(new),
                    None if n is None else finite(n),
                    finite(b, 1),
                    finite(at),
                )
                for edge, old, new, n, b, at in doc["barred"]
            ),
            {int(edge): int(count) for edge, count in doc["fruitless"]},
        )


def _newest(requests: float, emitted: float) -> tuple[float, float]:
    shrink = min(2 * k.LENGTH_REQUESTS / requests, 1.0)
    return requests * shrink, emitted * shrink
