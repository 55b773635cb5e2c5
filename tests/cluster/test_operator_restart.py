"""An operator that dies at any moment and comes back: nothing is made anew, changed back or measured twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.operator_process import OperatorProcess, running
from tests.cluster.operator_world import SMALL_GRID, Watched, load, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

from specpilot.plan import revision


@pytest.fixture
def operator(cluster: Cluster, operator_image: str, tmp_path: Any) -> Iterator[OperatorProcess]:
    with running(cluster, tmp_path, engineImage=operator_image) as process:
        yield process


@pytest.fixture
def flash(cluster: Cluster, operator: OperatorProcess) -> Iterator[Watched]:
    with operator.identity.place() as where:
        yield Watched(cluster, where, "flash")


def restarted(operator: OperatorProcess) -> None:
    """Start it again and let it lead."""
    operator.start()
    eventually(lambda: operator.metric("specpilot_operator_leading") == 1.0, 20, "the new operator leads")


@pytest.mark.parametrize("children", [2, 5], ids=lambda n: f"after {n} children")
def test_killed_while_it_applies_it_adds_what_is_missing_and_touches_nothing_else(
    operator: OperatorProcess, flash: Watched, sim_image: str, children: int
) -> None:
    flash.apply(simulated("flash", sim_image))
    eventually(lambda: len(flash.children()) >= children, 20, f"{children} children", every=0.01)
    operator.kill()
    there = {name: body["metadata"]["uid"] for name, body in flash.children().items()}
    since = operator.identity.position()
    restarted(operator)
    flash.serving()
    after = flash.children()
    assert {name: after[name]["metadata"]["uid"] for name in there} == there
    assert not [w for w in operator.identity.writes(since) if w.verb == "delete"]
    assert flash.generation() == 1
    written = {(w.resource, w.name) for w in operator.identity.writes(since) if w.code == 200}
    assert not written & {("deployments", "flash"), ("services", "flash"), ("configmaps", "flash-schedule")}


def test_killed_while_it_profiles_it_repeats_no_point(
    operator: OperatorProcess, cluster: Cluster, flash: Watched, sim_image: str
) -> None:
    slow = {"time_scale": 0.25}  # the measurement must outlast the operator
    flash.apply(simulated("flash", sim_image, slow, profiling={"where": "Job", "grid": SMALL_GRID}))
    name = eventually(lambda: (flash.status().get("profile") or {}).get("name"), 60, "the first points")
    operator.kill()
    before = cluster.get("specprof", name, flash.namespace)["spec"]["points"]
    job = flash.children()["Job", "flash-profile"]["metadata"]["uid"]
    assert 0 < len(before) < 6
    since = operator.identity.position()
    restarted(operator)
    assert flash.children()["Job", "flash-profile"]["metadata"]["uid"] == job
    flash.wait("Profiled", "Measured")
    after = cluster.get("specprof", name, flash.namespace)["spec"]["points"]
    assert len(after) == 6
    assert [point for point in after if point in before] == before
    made = [
        w
        for w in operator.identity.writes(since)
        if (w.verb == "create" or w.code == 201) and w.resource != "events"
    ]
    assert made == []
    eventually(lambda: ("Job", "flash-profile") not in flash.children(), 30, "the finished Job goes")


def test_killed_while_it_retunes_it_keeps_the_generation_and_goes_on(
    operator: OperatorProcess, flash: Watched, sim_image: str
) -> None:
    flash.apply(simulated("flash", sim_image, replicas=2))
    flash.serving()
    lives = flash.pod_lives()
    with load(flash.urls(), clients=4, traffic="code") as traffic:
        eventually(lambda: flash.generation() > 2, 60, "a schedule from measurements", every=0.05)
        operator.kill()
        generation, children = flash.generation(), flash.children()
        decision = flash.status().get("lastDecision")
        since = operator.identity.position()
        traffic.clients = 0
        restarted(operator)
        flash.serving()
        time.sleep(5)  # several ticks without traffic
        after = flash.children()
        assert flash.generation() == generation
        same = {k: v["metadata"]["resourceVersion"] for k, v in children.items() if k[0] != "Deployment"}
        assert {name: after[name]["metadata"]["resourceVersion"] for name in same} == same
        assert flash.status().get("lastDecision") == decision or decision is None
        assert not [w for w in operator.identity.writes(since) if w.verb in ("create", "delete")]
        traffic.clients, traffic.traffic = 4, "prose"
        eventually(lambda: flash.generation() > generation, 90, "it goes on tuning")
    assert flash.pod_lives() == lives


def test_a_restart_in_peace_writes_nothing_and_deletion_needs_no_operator(
    operator: OperatorProcess, cluster: Cluster, flash: Watched, sim_image: str
) -> None:
    flash.apply(simulated("flash", sim_image, profiling={"where": "Pod", "grid": SMALL_GRID}))
    flash.wait("Profiled", "Measured")
    flash.serving()
    operator.identity.quiet(5, 60, "the operator has nothing left to write")
    before, status = flash.versions(), flash.body()["metadata"]["resourceVersion"]
    operator.kill()
    since = operator.identity.position()
    restarted(operator)
    time.sleep(6)
    assert operator.identity.writes(since) == []
    assert flash.versions() == before
    assert flash.body()["metadata"]["resourceVersion"] == status

    # And deletion does not wait for an operator, nor does one that comes back undo it.
    operator.kill()
    cluster.kubectl("delete", "specdep/flash", "--cascade=foreground", "--timeout=60s", "-n", flash.namespace)
    since = operator.identity.position()
    restarted(operator)
    eventually(lambda: not flash.children(), 30, "all children are gone")
    assert operator.identity.writes(since) == []


def test_an_upgrade_that_renders_differently_rolls_no_pod(
    operator: OperatorProcess, flash: Watched, sim_image: str, tmp_path: Any
) -> None:
    """Another engine image is what every upgrade brings; other renderings go the same way."""
    flash.apply(simulated("flash", sim_image))
    flash.serving()
    operator.identity.quiet(5, 60, "the operator has nothing left to write")
    lives = flash.pod_lives()
    operator.stop()
    folder = tmp_path / "upgraded"
    folder.mkdir()
    upgraded = OperatorProcess(operator.identity, folder, engineImage="localhost/specpilot/operator:next")
    since = operator.identity.position()
    restarted(upgraded)
    try:
        time.sleep(3)
        assert not [w for w in operator.identity.writes(since) if w.resource == "deployments"]
        assert flash.pod_lives() == lives
        assert flash.condition("Progressing")["reason"] == "RolledOut"
    finally:
        upgraded.stop()
    assert revision.newest() in revision.REVISIONS
