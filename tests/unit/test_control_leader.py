"""The Lease at an API server that is slow, loses answers or hangs: kept for as long as it can be renewed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client as kube
from tests.setup.answering import answering

from specpilot.cluster.client import Cluster
from specpilot.control.leader import Leader, LeaseLost

Body = dict[str, Any]
DURATION, DEADLINE, PERIOD = 4.5, 3.0, 0.1
PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


class Leases:
    """One Lease over HTTP. `fault` says of the number of an update, from 0, what becomes of it."""

    def __init__(self) -> None:
        self.lease: Body | None = None
        self.updates = 0
        self.fault: Callable[[int], str] = lambda _: ""
        self.delay = 0.0

    async def get(self, _: web.Request) -> web.Response:
        await asyncio.sleep(self.delay)
        if self.fault(self.updates) == "away":
            return web.json_response({"message": "away"}, status=503)
        if self.lease is None:
            return web.json_response({"message": "none"}, status=404)
        return web.json_response(self.lease)

    async def put(self, request: web.Request) -> web.Response:
        number, fault = self.updates, self.fault(self.updates)
        self.updates += 1
        body = await request.json()
        await asyncio.sleep(self.delay)
        if fault == "away":
            return web.json_response({"message": "away"}, status=503)
        if self.lease and body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return web.json_response({"message": "another version"}, status=409)
        if fault != "hangs":
            self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(number + 10)}}
        if fault == "hangs":
            await asyncio.sleep(60)
        if fault == "cut" and request.transport is not None:
            request.transport.close()
        return web.json_response(self.lease)


@pytest.fixture
def leases() -> Leases:
    return Leases()


@pytest.fixture
async def cluster(leases: Leases) -> AsyncIterator[Cluster]:
    app = web.Application()
    app.router.add_get(f"{PATH}/one", leases.get)
    app.router.add_post(PATH, leases.put)
    app.router.add_put(f"{PATH}/one", leases.put)
    async with answering(app) as url:
        made = Cluster(kube.ApiClient(kube.Configuration(host=url)))
        yield made
        await made.aclose()


async def led(cluster: Cluster, seconds: float) -> bool:
    """Whether it still leads after so many seconds."""
    leader = Leader(cluster, "ns", "one", "me", DURATION, DEADLINE, PERIOD)

    async def work() -> None:
        await asyncio.sleep(3600)

    task = asyncio.create_task(leader.run(work))
    with suppress(TimeoutError, LeaseLost):
        await asyncio.wait_for(asyncio.shield(task), seconds)
    leads = leader.leading
    task.cancel()
    with suppress(asyncio.CancelledError, LeaseLost):
        await task
    return leads


async def test_one_renewal_that_is_never_answered_leaves_time_for_another(
    cluster: Cluster, leases: Leases
) -> None:
    leases.fault = lambda update: "hangs" if update == 3 else ""
    assert await led(cluster, 1.5 * DEADLINE)
    assert leases.updates > 10


async def test_answers_that_get_lost_cost_no_lease(cluster: Cluster, leases: Leases) -> None:
    leases.fault = lambda update: "cut" if update % 3 == 1 else ""  # the client may ask again itself
    assert await led(cluster, 1.5 * DEADLINE)
    assert leases.updates > 10


async def test_a_slow_api_server_is_waited_for(cluster: Cluster, leases: Leases) -> None:
    leases.delay = 0.4 * DEADLINE
    assert await led(cluster, 2 * DEADLINE)
    assert leases.updates >= 3


async def test_without_a_renewal_it_ends_before_the_lease_does(cluster: Cluster, leases: Leases) -> None:
    leases.fault = lambda update: "away" if update >= 3 else ""
    assert not await led(cluster, DURATION)


@pytest.mark.parametrize("lingers", [False, True])
async def test_the_lease_is_given_back_once_the_work_has_ended_and_not_before(
    cluster: Cluster, leases: Leases, monkeypatch: pytest.MonkeyPatch, lingers: bool
) -> None:
    monkeypatch.setattr("specpilot.control.leader.STOPPING", 0.2)
    done = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if lingers:
                await done.wait()
            raise

    leader = Leader(cluster, "ns", "one", "me", DURATION, DEADLINE, 2.0)  # no renewal is under way
    task = asyncio.create_task(leader.run(work))
    while not leader.leading:
        await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == ("me" if lingers else "")
    assert leases.lease["spec"]["leaseDurationSeconds"] == 5  # 4.5, and never less
    done.set()
