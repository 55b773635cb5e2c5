"""Following a schedule until the engines use it, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from specpilot.cluster.client import Cluster
from specpilot.config import Acknowledgement
from specpilot.control.acknowledge import Acknowledgements, Following
from specpilot.control.store import Key
from specpilot.control.telemetry import Telemetry
from specpilot.metrics.source import Metrics
from specpilot_engine.protocol import Schedule, Step

KEY = ("llm", "flash")
POD: dict[str, Any] = {
    "metadata": {"namespace": "llm", "name": "flash-0", "uid": "u"},
    "status": {"podIP": "192.0.2.1"},
}
FOLLOWING = Following(Schedule(3, (Step(8, 1),)), (POD,))


async def test_a_bug_while_following_ends_in_a_rest_and_not_in_a_loop() -> None:
    looks, heard = 0, 0

    def look(_: Key) -> Following:
        nonlocal looks
        looks += 1
        if looks % 2 == 0:  # the task's own look
            raise KeyError("a bug")
        return FOLLOWING

    def done(key: Key) -> None:
        nonlocal heard
        heard += 1
        asyncio.get_running_loop().call_later(0.01, following.follow, key)  # as a reconcile does, in a moment

    metrics, nobody = Metrics(), cast(Cluster, None)
    following = Acknowledgements(nobody, metrics, Acknowledgement(), Telemetry(), look, done)
    following.follow(KEY)
    while looks < 3:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert (looks, heard) == (3, 1)
    assert following.overdue(KEY)
    await following.aclose()
    await metrics.aclose()
