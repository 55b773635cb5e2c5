"""The points file: one JSON line a measured point or a beginning or end of measuring, never rewritten, so that a restart goes on from it."""

from __future__ import annotations

import json
import os
from typing import Any

from specpilot_engine.protocol import ProfilePoint, parse_point

PointKey = tuple[int, int, int]  # tokens, batch, context


class StoreError(Exception):
    """The points file cannot be used; one sentence that says what to do."""


class PointStore:
    """Points measured under `key`, the seconds of the budget spent on them, and `cut_short`: how many
    measurements ended without a word, killed or crashed.

    Lines of other keys are kept and ignored, as is a line cut short by a crash. Raises StoreError
    where the file cannot be read or written.
    """

    def __init__(self, path: str, key: str) -> None:
        self._path = path
        self._key = key
        self.points: dict[PointKey, ProfilePoint] = {}
        self.spent = 0.0
        self.cut_short = 0
        self._cut = False  # the last line has no end: the next one must not continue it
        self._load()

    def _load(self) -> None:
        try:
            with open(self._path, encoding="utf-8", errors="replace") as f:
                text = f.read()
        except FileNotFoundError:
            return
        except OSError as e:
            raise StoreError(f"the points file {self._path} cannot be read ({e.strerror})") from None
        self._cut = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            try:
                doc = json.loads(line)
                if doc["key"] != self._key:
                    continue
                if "measuring" in doc:
                    self.cut_short += 1 if doc["measuring"] else -1
                else:
                    point = parse_point(doc["point"])
                    self.spent = max(self.spent, float(doc["spent"]))
                    self.points[point.tokens, point.batch, point.context] = point
            except (ValueError, KeyError, TypeError, OverflowError):
                continue

    def append(self, point: ProfilePoint, spent: float) -> None:
        """Keep `point`, measured after `spent` seconds of the budget; on disk when this returns."""
        self._write({"point": point.as_json(), "spent": round(spent, 3)})
        self.spent = spent
        self.points[point.tokens, point.batch, point.context] = point

    def measuring(self, begins: bool) -> None:
        """Keep that a measurement begins or has ended by itself, so that a later one can tell."""
        self._write({"measuring": begins})

    def _write(self, what: dict[str, Any]) -> None:
        doc = {"key": self._key, **what}
        line = ("\n" if self._cut else "") + json.dumps(doc) + "\n"
        self._cut = True  # until the whole line is written
        try:
            with open(self._path, "a", encoding="utf-8") as f:
                f.write(line)
                f.flush()
                os.fsync(f.fileno())
        except OSError as e:
            raise StoreError(
                f"the points file {self._path} cannot be written ({e.strerror}): "
                "give its volume space and write access"
            ) from None
        self._cut = False
