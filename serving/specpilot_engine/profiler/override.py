"""The override file: one depth for every batch while the profiler works."""

from __future__ import annotations

import asyncio
import contextlib
import os
from types import TracebackType

from specpilot_engine.profiler.store import StoreError
from specpilot_engine.protocol import OVERRIDE_TTL, Schedule, Step

EVERY_BATCH = 1_000_000


class Override:
    """Holds a depth by a file that must be touched: the engine ignores it when this process is gone."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._touching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Override:
        self._touching = asyncio.create_task(self._touch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._touching is not None:
            self._touching.cancel()
        with contextlib.suppress(OSError):
            os.remove(self._path)

    def set(self, tokens: int) -> Schedule:
        """Ask for `tokens` at every batch; returns the schedule whose hash the engine will report."""
        schedule = Schedule(0, (Step(EVERY_BATCH, tokens),))
        partial = self._path + ".partial"
        try:
            with open(partial, "w", encoding="utf-8") as f:
                f.write(schedule.dump())
            os.replace(partial, self._path)
        except OSError as e:
            raise StoreError(
                f"the override file {self._path} cannot be written ({e.strerror}): "
                "give its volume space and write access"
            ) from None
        return schedule

    async def _touch(self) -> None:
        while True:
            await asyncio.sleep(OVERRIDE_TTL / 5)
            with contextlib.suppress(OSError):
                os.utime(self._path)
