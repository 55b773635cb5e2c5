"""An API server that is slow, loses answers and cuts connections: the operator goes on and does nothing twice."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.api_proxy import ApiProxy, api_proxy
from tests.cluster.operator_process import OperatorProcess, running
from tests.cluster.operator_world import Watched, load, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

TUNING = {"interval": "1s", "dwell": "1s"}


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[ApiProxy]:
    with api_proxy(cluster) as front:
        yield front


@pytest.fixture(scope="module")
def operator(
    cluster: Cluster, operator_image: str, proxy: ApiProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    folder = tmp_path_factory.mktemp("operator")
    with running(cluster, folder, server=proxy.url, engineImage=operator_image) as process:
        eventually(lambda: process.metric("specpilot_operator_leading") == 1.0, 20, "it leads")
        yield process


@pytest.fixture(scope="module")
def flash(operator: OperatorProcess, cluster: Cluster, where: str) -> Watched:
    assert operator.alive()
    return Watched(cluster, where, "flash")


def schedules(proxy: ApiProxy) -> list[str]:
    """Every content that the schedule's ConfigMap was given, as the API server answered."""
    found: list[str] = []
    for _, path, body in proxy.answers:
        if path.endswith("/configmaps/flash-schedule"):
            text = str(body["data"]["schedule.json"])
            found += [text] if found[-1:] != [text] else []
    return found


def test_through_a_slow_api_server_a_deployment_comes_to_serve(
    flash: Watched, operator: OperatorProcess, proxy: ApiProxy, sim_image: str
) -> None:
    proxy.delay = 1.0
    flash.apply(simulated("flash", sim_image, tuning=TUNING))
    flash.serving(120)
    assert operator.metric("specpilot_operator_leading") == 1.0
    proxy.delay = 0.0


def test_a_schedule_whose_answer_got_lost_is_not_written_over_by_another_of_its_generation(
    flash: Watched, proxy: ApiProxy
) -> None:
    """Nor do watches tell of it meanwhile, as with an API server that hangs."""
    proxy.held, tries = True, 0

    def fault(method: str, path: str) -> str:
        nonlocal tries
        if method != "PATCH" or not path.endswith("/configmaps/flash-schedule"):
            return ""
        tries += 1
        return "lost" if tries % 3 else ""

    proxy.fault = fault
    try:
        with load(flash.urls(), clients=4, traffic="code") as traffic:
            eventually(lambda: proxy.lost >= 3, 90, "answers got lost")
            traffic.traffic = "prose"
            eventually(lambda: proxy.lost >= 6, 90, "more answers got lost")
    finally:
        proxy.held, proxy.fault = False, None
    generations = [json.loads(text)["generation"] for text in schedules(proxy)]
    assert generations == list(range(1, len(generations) + 1))
    flash.serving()
    assert flash.condition("Degraded")["status"] == "False"


def test_cut_connections_are_overcome_and_no_lease_is_lost_for_them(
    flash: Watched, operator: OperatorProcess, proxy: ApiProxy
) -> None:
    chance = random.Random(7)
    lives = flash.pod_lives()

    def fault(_method: str, _path: str) -> str:
        return chance.choices(["", "cut", "lost"], [6, 2, 2])[0]

    proxy.fault = fault
    flash.patch(replicas=2)
    flash.serving(120)
    proxy.fault = None
    assert lives < flash.pod_lives()
    assert operator.metric("specpilot_operator_leading") == 1.0
    made: list[Any] = [
        path for method, path, _ in proxy.answers if method == "POST" and "/events" not in path
    ]
    assert len(made) == 1  # the Lease


def test_deletion_waits_for_no_answer(flash: Watched, cluster: Cluster, proxy: ApiProxy) -> None:
    proxy.delay = 5.0
    where = ("--namespace", flash.namespace)
    cluster.kubectl("delete", "specdep/flash", "--cascade=foreground", "--timeout=60s", *where)
    assert cluster.get("specdep", "flash", flash.namespace) is None
    proxy.delay = 0.0
    eventually(lambda: not flash.children(), 30, "nothing was made anew")
