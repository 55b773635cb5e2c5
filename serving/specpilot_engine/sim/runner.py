"""Lets simulated steps pass in real time."""

from __future__ import annotations

import asyncio

from specpilot_engine.sim.counters import Counters
from specpilot_engine.sim.engine import Engine, Request
from specpilot_engine.sim.live import Live

# Below this the event loop's timer is not worth asking: steps run ahead by at most so much.
_QUANTUM = 0.001
# A process that was starved this long (a busy machine) does not race to catch up: the steps it would
# cram together would be no measurement of anything.
_MAX_LAG = 0.25


class Runner:
    """The step loop: begin a step, wait, finish it, count it.

    Steps end on a clock that advances by exactly their seconds and is only compared with the loop's:
    a timer that fires late shortens the next wait, so that step times are right on average and as
    reported, whatever the granularity of sleeping.
    """

    def __init__(self, engine: Engine, counters: Counters, live: Live) -> None:
        self.engine = engine
        self._counters = counters
        self._live = live
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, request: Request) -> None:
        self.engine.submit(request)
        self._idle.clear()
        self._work.set()

    async def drained(self) -> None:
        """Return once nothing runs or waits."""
        await self._idle.wait()

    async def run(self) -> None:
        """Run steps until cancelled."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while True:
            # More than once where what woke us was aborted before we ran.
            while self.engine.idle:
                self._idle.set()
                self._work.clear()
                await self._work.wait()
                now = max(now, loop.time())
            self._live.before_schedule()
            step = self.engine.begin(now)
            self._live.after_schedule(step)
            now = await _until(now + step.seconds)
            self._live.before_update(step)
            self.engine.finish(step, now)
            self._live.after_update(step)
            self._counters.count(step)


async def _until(deadline: float) -> float:
    """Wait for a deadline on the loop's clock and return the time that then counts."""
    loop = asyncio.get_running_loop()
    delay = deadline - loop.time()
    await asyncio.sleep(delay if delay > _QUANTUM else 0)
    late = loop.time()
    return late if late - deadline > _MAX_LAG else deadline
