"""A work queue of keys: each waits once, is worked on by one worker at a time, and backs off when it fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

log = structlog.get_logger(__name__)
K = TypeVar("K", bound=Hashable)

FIRST_DELAY = 0.5  # seconds before the first retry; doubles with each failure in a row
LONGEST_DELAY = 60.0
JITTER = 0.2  # of the delay, so that a fleet that failed together does not come back together


class Retry(Exception):
    """Raised by a handler: this failed for a reason that may pass; try again later, with back-off."""


class Refusal(Retry):
    """Raised by a handler: this was refused for a reason that lasts; try again in `rest` seconds, without back-off."""

    def __init__(self, message: str, rest: float) -> None:
        super().__init__(message)
        self.rest = rest


class WorkQueue(Generic[K]):
    """Everything happens on one event loop; nothing here is thread-safe."""

    def __init__(self, first_delay: float = FIRST_DELAY, longest_delay: float = LONGEST_DELAY) -> None:
        self._first, self._longest = first_delay, longest_delay
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()  # in _ready
        self._busy: set[K] = set()
        self._again: set[K] = set()  # added while busy
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Have `key` worked on as soon as possible; adding twice is adding once."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: K, delay: float) -> None:
        """Have `key` worked on in `delay` seconds, or at the earlier time asked for before."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(delay, self._due, key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def delay(self, key: K) -> float:
        """Seconds until the next retry of a key that has just failed, without jitter."""
        failures = self._failures.get(key, 0)
        return float(min(self._longest, self._first * 2 ** min(failures, 30)))

    async def run(self, handle: Callable[[K], Awaitable[None]], workers: int) -> None:
        """Work until cancelled. `handle` raises Retry to be called again later; any other exception is
        logged with its trace and retried the same way: one bad object must not stop the others."""
        await asyncio.gather(*(self._work(handle) for _ in range(workers)))

    async def _work(self, handle: Callable[[K], Awaitable[None]]) -> None:
        while True:
            key = await self._ready.get()
            self._waiting.discard(key)
            self._busy.add(key)
            try:
                await handle(key)
                self._failures.pop(key, None)
            except Refusal as e:
                self.add_after(key, e.rest)
                log.warning("refused", key=key, error=str(e), rest=e.rest)
            except Retry as e:
                self._fail(key)
                log.warning("will retry", key=key, error=str(e), failures=self._failures[key])
            except Exception:
                self._fail(key)
                log.exception("reconcile failed", key=key, failures=self._failures[key])
            finally:
                self._busy.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    def _fail(self, key: K) -> None:
        self.add_after(key, self.delay(key) * (1 + JITTER * random.random()))
        self._failures[key] = self._failures.get(key, 0) + 1
