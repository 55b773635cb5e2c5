"""Goes through the grid, group by group, within the budget; nothing is tried again without a cause."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from specpilot_engine.profiler.client import HEALTH_SECONDS, EngineClient, EngineGone, Refused
from specpilot_engine.profiler.order import Group, groups
from specpilot_engine.profiler.override import Override
from specpilot_engine.profiler.progress import Progress
from specpilot_engine.profiler.store import PointStore, StoreError
from specpilot_engine.profiler.sweep import GivenUp, NotLive, OutOfBudget, Sweep
from specpilot_engine.protocol import ProfilePoint, ProfileRequest, parse_profiled

log = logging.getLogger(__name__)

TRIES = 2  # of a group whose engine goes away; a batch that takes the engine down twice is left out
SAY_SECONDS = 30.0
CUT_SHORT = 3  # measurements that were killed before: the next would be, too


class Profiled(Exception):
    """Another pod has measured what is asked."""


class Profiler:
    """Measures what `store` lacks of `request`; `progress` tells readers.

    A pod that comes later, when all is known, finds the request's key in the file `profiled` and measures
    nothing.
    """

    def __init__(
        self,
        request: ProfileRequest,
        store: PointStore,
        progress: Progress,
        client: EngineClient,
        profiled: str = "",
    ) -> None:
        self._profiled = profiled
        self._request = request
        self._store = store
        self._progress = progress
        self._client = client
        self._groups = groups(request)
        self._limits: list[tuple[int, int, str]] = []  # context, requests the engine runs there, why
        self._refused: dict[int, str] = {}  # depths, and why
        self._spent_before = store.spent
        self._started = 0.0
        self._measured = 0

    async def run(self, override: Override) -> None:
        """Measure until the grid or the budget is at its end; then `progress` is finished."""
        try:
            if any(map(self._missing, self._groups)):
                self._unless_profiled()
                await self._measure_all(override)
        except Profiled:
            self._give_up_rest("the profile was known when this pod started: start the pod anew to measure")
        except OutOfBudget:
            self._give_up_rest(f"the budget of {self._request.budget:g} seconds is spent")
        except NotLive as e:
            self._give_up_rest(f"the engine cannot change its depth while it runs: {e}")
        except (StoreError, EngineGone, Refused) as e:
            self._give_up_rest(str(e))
        except Exception as e:
            # An engine that answers anything at all must not hold its own pod back.
            log.exception("the profiler failed")
            self._give_up_rest(f"the profiler failed, see its log: {e!r}")
        self._progress.finished = True
        log.info(
            "profile finished: %d points measured now, %d in all. %s",
            self._measured,
            len(self._store.points),
            self._progress.error,
        )

    @property
    def _deadline(self) -> float:
        return self._started + self._request.budget - self._spent_before

    async def _measure_all(self, override: Override) -> None:
        if self._store.cut_short >= CUT_SHORT:
            self._give_up_rest(
                f"the profiler was killed {self._store.cut_short} times while it measured: raise its memory"
                " limit, or set spec.profiling.policy to Never"
            )
            return
        await self._healthy(None)
        self._unless_profiled()  # a large model loads for long
        self._started = time.monotonic()
        self._store.measuring(True)
        try:
            await self._all(override)
        finally:
            with contextlib.suppress(StoreError):
                self._store.measuring(False)

    def _unless_profiled(self) -> None:
        """Raises Profiled where nothing is left to measure; a Job is only made where something is."""
        if not self._profiled or self._request.then == "exit":
            return
        with contextlib.suppress(OSError), open(self._profiled, encoding="utf-8", errors="replace") as f:
            if parse_profiled(f.read()) == self._request.key:
                raise Profiled

    async def _all(self, override: Override) -> None:
        await self._client.describe()
        while self._groups:
            group = self._groups[0]
            missing = self._missing(group)
            why = self._beyond_limits(group)
            if missing and why:
                self._progress.give_up(why, len(missing))
            elif missing:
                await self._measure(group, override)
            self._groups.pop(0)

    async def _measure(self, group: Group, override: Override) -> None:
        for attempt in range(1, TRIES + 1):
            sweep = Sweep(
                self._client, override, self._request, group, self._deadline, self._keep, self._refused
            )
            try:
                await sweep.run(self._missing(group))
            except GivenUp as e:
                if e.runs:
                    self._limits.append((group.context, e.runs, str(e)))
                self._progress.give_up(str(e), len(self._missing(group)))
            except Refused as e:
                self._progress.give_up(str(e), len(self._missing(group)))
            except EngineGone as e:
                log.warning(
                    "the engine went away at %d requests, context %d: %s", group.batch, group.context, e
                )
                await self._healthy(self._deadline)
                if attempt < TRIES:
                    continue
                self._progress.give_up(
                    f"the engine went away {TRIES} times at {group.batch} requests, context {group.context}",
                    len(self._missing(group)),
                )
            else:
                for k in self._missing(group):
                    self._progress.give_up(self._refused[k], 1)
            return

    def _keep(self, point: ProfilePoint) -> None:
        self._store.append(point, self._spent_before + time.monotonic() - self._started)
        self._measured += 1
        log.info(
            "depth %d, %d requests, context %d: %.2f ms a step (spread %.0f%%)",
            point.tokens,
            point.batch,
            point.context,
            1e3 * point.seconds,
            100 * point.spread,
        )

    def _missing(self, group: Group) -> list[int]:
        return [k for k in group.depths if (k, group.batch, group.context) not in self._store.points]

    def _beyond_limits(self, group: Group) -> str:
        for context, runs, why in self._limits:
            if group.context >= context and group.batch > runs:
                return why
        return ""

    def _give_up_rest(self, why: str) -> None:
        missing = sum(len(self._missing(group)) for group in self._groups)
        self._progress.give_up(why, missing)

    async def _healthy(self, deadline: float | None) -> None:
        """Wait for the engine: without a limit before the budget runs (a big model loads for long)."""
        said = time.monotonic()
        while not await self._client.healthy():
            now = time.monotonic()
            if deadline is not None and now > deadline:
                raise OutOfBudget
            if now - said > SAY_SECONDS:
                said = now
                log.info("waiting for the engine to become healthy")
            await asyncio.sleep(HEALTH_SECONDS)
