"""What is remembered of caps on depth, and its small JSON form that survives a restart of the operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specpilot.decide.memory import Tried
from specpilot.decide.stored import UNREADABLE, finite

VERSION = 1


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
    `fruitless`: trials in a row that changed nothing, by bucket. Times in epoch seconds, 0 never."""

    of: str = ""
    since: float = 0.0
    ended_at: float = 0.0
    trial: Tried | None = None  # of the caps in force
    barred: tuple[BarredCap, ...] = ()
    fruitless: Mapping[int, int] = field(default_factory=dict)

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
