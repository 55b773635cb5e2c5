"""One tick over many deployments: who waits for whom."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from specpilot.config import Config
from specpilot.control.retune import Due, Retuner
from specpilot.control.telemetry import Telemetry
from specpilot.metrics.source import Metrics, Reading


class Fleet(Retuner):
    """Six deployments, of which the writes of the first hang until told otherwise."""

    def __init__(self) -> None:
        nothing: Any = None
        super().__init__(
            nothing, nothing, Metrics(), nothing, nothing, Telemetry(), Config(workers=2), nothing
        )
        self.answered, self.done, self.most, self.now = asyncio.Event(), list[int](), 0, 0

    def _due(self) -> list[Due]:
        found: list[Any] = [SimpleNamespace(key=number, targets=[]) for number in range(6)]
        return found

    async def _one(self, due: Due, reading: Reading) -> None:
        assert not reading.pods
        number: Any = due.key
        self.now += 1
        self.most = max(self.most, self.now)
        if number == 0:
            await self.answered.wait()
        self.done.append(number)
        self.now -= 1


async def test_a_deployment_whose_writes_hang_keeps_no_other_waiting() -> None:
    fleet = Fleet()
    tick = asyncio.create_task(fleet.tick())
    await asyncio.wait_for(_until(lambda: len(fleet.done) == 5), 30)
    assert (fleet.done, fleet.most) == ([1, 2, 3, 4, 5], 2)
    assert not tick.done()
    fleet.answered.set()
    await tick
    assert fleet.done[-1] == 0


async def _until(holds: Any) -> None:
    while not holds():
        await asyncio.sleep(0)
