"""A SpeculativeDeployment from its creation to its deletion, under a running operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.operator_world import Watched, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

PLACES = 8


@pytest.fixture(scope="module")
def flash(cluster: Cluster, sim_image: str, operator: OperatorProcess) -> Iterator[Watched]:
    """A deployment that serves; the tests that share it leave it serving as they found it."""
    assert operator.alive()
    with operator.identity.place() as where:
        watched = Watched(cluster, where, "flash")
        watched.apply(simulated("flash", sim_image))
        watched.serving()
        yield watched


@pytest.fixture
def namespace(operator: OperatorProcess) -> Iterator[Callable[[], str]]:
    """Makes places that the operator looks after."""
    assert operator.alive()
    with ExitStack() as stack:
        yield lambda: stack.enter_context(operator.identity.place())


@pytest.fixture
def make(cluster: Cluster, sim_image: str, namespace: Callable[[], str]) -> Callable[..., Watched]:
    """make(name, **spec) → a deployment of the simulated engine in a namespace of its own."""

    def made(name: str = "flash", **spec: Any) -> Watched:
        watched = Watched(cluster, namespace(), name)
        watched.apply(simulated(name, sim_image, **spec))
        return watched

    return made


Make = Callable[..., Watched]


def test_one_object_becomes_everything_that_serves(flash: Watched) -> None:
    assert set(flash.children()) == {
        ("Deployment", "flash"),
        ("Service", "flash"),
        ("ServiceAccount", "flash"),
        ("PodDisruptionBudget", "flash"),
        ("ConfigMap", "flash-schedule"),
    }
    uid = flash.body()["metadata"]["uid"]
    owners = {child["metadata"]["ownerReferences"][0]["uid"] for child in flash.children().values()}
    assert owners == {uid}
    status = flash.status()
    assert status["ready"] == "1/1"
    assert status["speculation"]["desired"]["schedule"] == status["speculation"]["effective"]["schedule"]
    assert flash.condition("Degraded")["status"] == "False"
    assert flash.condition("Profiled")["reason"] == "ProfilingDisabled"
    assert "Serving" in {reason for reason, _ in flash.events()}


def test_tuning_can_change_without_a_restart(flash: Watched) -> None:
    before = flash.pod_lives()
    flash.patch(tuning={"minimumGain": 0.1}, metrics={"source": "Scrape"})
    flash.serving()
    assert flash.pod_lives() == before


def test_a_child_that_somebody_deletes_or_changes_is_put_right(flash: Watched, cluster: Cluster) -> None:
    generation, where = flash.generation(), ("--namespace", flash.namespace)
    cluster.kubectl("delete", "service/flash", "configmap/flash-schedule", *where)
    cluster.kubectl("scale", "deployment/flash", "--replicas=3", *where)

    def restored() -> bool:
        children = flash.children()
        there = {("Service", "flash"), ("ConfigMap", "flash-schedule")} <= set(children)
        return there and children["Deployment", "flash"]["spec"]["replicas"] == 1

    eventually(restored, 20, "everything is as planned again")
    assert any("scaled Deployment flash to 3, and it is back at 1" in text for _, text in flash.events())
    assert flash.generation() > generation  # engines know the old one: going back would be refused
    flash.serving()


def test_what_the_api_server_refuses_in_a_pod_template_is_a_condition_while_pods_serve_on(
    flash: Watched,
) -> None:
    before = flash.pod_lives()
    flash.patch(podTemplate={"spec": {"containers": [{"name": "vllm", "imagePullPolicy": "Sometimes"}]}})
    refused = flash.wait("Degraded", "InvalidPodTemplate")
    assert "imagePullPolicy" in refused["message"]
    assert flash.condition("Ready")["status"] == "False"
    assert flash.pod_lives() == before
    flash.patch(podTemplate=None)
    flash.serving()
    assert flash.pod_lives() == before
    assert flash.condition("Degraded")["status"] == "False"


def test_orphaned_children_are_taken_over_by_a_successor_without_a_restart(
    flash: Watched, cluster: Cluster, sim_image: str
) -> None:
    before = flash.pod_lives()
    cluster.kubectl("delete", "specdep/flash", "--cascade=orphan", "--namespace", flash.namespace)
    flash.apply(simulated("flash", sim_image))
    flash.serving()
    assert flash.pod_lives() == before
    uid = flash.body()["metadata"]["uid"]
    assert {c["metadata"]["ownerReferences"][0]["uid"] for c in flash.children().values()} == {uid}


def test_foreground_deletion_recreates_nothing(flash: Watched, cluster: Cluster) -> None:
    where = ("--namespace", flash.namespace)
    cluster.kubectl("delete", "specdep/flash", "--cascade=foreground", "--timeout=30s", *where)
    eventually(lambda: not flash.children() and not flash.pods(), 30, "all children are gone")
    assert cluster.get("specdep", "flash", flash.namespace) is None


def test_replicas_scale_without_a_restart_of_those_that_stay(make: Make, cluster: Cluster) -> None:
    scaled = make()
    scaled.serving()
    before = scaled.pod_lives()
    cluster.kubectl("scale", "specdep/flash", "--replicas=2", "--namespace", scaled.namespace)
    scaled.serving()
    assert before < scaled.pod_lives()
    assert len(scaled.pod_lives()) == 2


def test_a_changed_engine_rolls_and_a_schedule_that_no_longer_fits_is_replaced(make: Make) -> None:
    flash = make(speculation={"method": "MTP", "maxTokens": 7, "candidates": [0, 7]})
    flash.serving()
    assert {step["tokens"] for step in flash.schedule()["schedule"]} == {7}
    before, generation = flash.pod_lives(), flash.generation()
    flash.patch(speculation={"maxTokens": 3, "candidates": [0, 3]})
    flash.serving()
    assert {step["tokens"] for step in flash.schedule()["schedule"]} == {3}
    assert flash.generation() > generation
    assert not before & flash.pod_lives()


def test_no_speculation_is_served_as_stock_vllm(make: Make) -> None:
    flash = make(speculation={"method": "None"})
    flash.wait("Speculating", "DepthZero", 20)
    assert flash.condition("Speculating")["message"] == "spec.speculation.method is None"
    assert ("ConfigMap", "flash-schedule") not in flash.children()


def test_an_unknown_image_is_a_condition_that_names_it(make: Make) -> None:
    flash = make(engine={"image": "localhost/no/such:v0.33.0"})
    degraded = flash.wait("Degraded", "ImagePullFailed")
    assert "localhost/no/such:v0.33.0: check the name, the tag" in degraded["message"]
    assert "ImagePullFailed" in {reason for reason, _ in flash.events()}


def test_an_image_that_does_not_tell_its_version_is_a_condition_that_says_what_to_set(make: Make) -> None:
    flash = make(engine={"image": "vllm:latest"})
    degraded = flash.wait("Degraded", "InvalidSpec", 20)
    assert "set spec.engine.vllmVersion" in degraded["message"]
    assert flash.children() == {}


def test_an_object_of_somebody_else_with_our_name_is_left_alone(
    operator: OperatorProcess, cluster: Cluster, namespace: Callable[..., str], sim_image: str
) -> None:
    assert operator.alive()
    flash = Watched(cluster, namespace(), "flash")
    where = ("--namespace", flash.namespace)
    cluster.kubectl("create", "service", "clusterip", "flash", "--tcp=80:80", *where)
    flash.apply(simulated("flash", sim_image))
    degraded = flash.wait("Degraded", "ApplyFailed", 20)
    assert "Service flash exists" in degraded["message"]
    assert cluster.get("service", "flash", flash.namespace)["spec"]["ports"][0]["port"] == 80
    assert ("Deployment", "flash") not in flash.children()


def test_health_does_not_depend_on_being_the_leader(operator: OperatorProcess) -> None:
    assert operator.alive()
    assert operator.metric("specpilot_operator_leading") == 1.0
    assert operator.metric('specpilot_operator_reconciles_total{result="ok"}') > 0
