"""What the profiler has done so far, as its port tells it."""

from __future__ import annotations

import threading

from specpilot_engine.exports import Query, Reply, Routes, json_reply
from specpilot_engine.profiler.store import PointStore
from specpilot_engine.protocol import PROFILE_PATH, profile_document

MAX_ERROR = 2000  # characters


class Progress:
    """Written by the profiler, read by the server's threads.

    `all_read` is set once a reader said that it has every point of a finished profile.
    """

    def __init__(self, key: str, total: int, store: PointStore) -> None:
        self._key = key
        self._total = total
        self._store = store
        self._reasons: dict[str, int] = {}
        self.finished = False
        self.all_read = threading.Event()

    def give_up(self, reason: str, points: int) -> None:
        """`points` of the grid will not be measured."""
        self._reasons[reason] = self._reasons.get(reason, 0) + points

    @property
    def error(self) -> str:
        """Why points are missing; "" when none was given up."""
        parts = [
            f"{reason} ({points} point{'s' if points != 1 else ''} left out)"
            for reason, points in self._reasons.copy().items()
        ]
        return "; ".join(parts)[:MAX_ERROR]

    def routes(self) -> Routes:
        """The path of the protocol's PROFILER_PORT."""
        return {PROFILE_PATH: self._profile}

    def _profile(self, query: Query) -> Reply:
        points = list(self._store.points.copy().values())
        finished = self.finished
        if finished and query.get("seen") == str(len(points)):
            self.all_read.set()
        return json_reply(profile_document(self._key, points, self._total, finished, self.error))
