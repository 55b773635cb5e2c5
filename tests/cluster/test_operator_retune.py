"""Depths that follow load and traffic on running pods, as far as the mode lets them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.operator_world import Watched, load, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

Body = dict[str, Any]


@pytest.fixture(scope="module")
def flash(cluster: Cluster, sim_image: str, operator: OperatorProcess) -> Iterator[Watched]:
    """Two replicas that serve."""
    assert operator.alive()
    with operator.identity.place() as where:
        watched = Watched(cluster, where, "flash")
        watched.apply(simulated("flash", sim_image, replicas=2))
        watched.serving()
        yield watched


def depth_at(schedule: Body, batch: int) -> int:
    steps = schedule["schedule"]
    return int(next((s["tokens"] for s in steps if batch <= s["upTo"]), steps[-1]["tokens"]))


def test_depths_follow_the_traffic_without_a_restart(flash: Watched, operator: OperatorProcess) -> None:
    """In the simulated world code is worth depth 7 at small batches, prose depth 3."""
    lives, generation = flash.pod_lives(), flash.generation()
    with load(flash.urls(), clients=4, traffic="code") as traffic:
        eventually(lambda: depth_at(flash.schedule(), 2) == 7, 60, "depth 7 for code")
        flash.wait("Speculating", "Drafting")
        proved = eventually(
            lambda: (d := flash.status()["lastDecision"])["reason"] == "GainConfirmed" and d, 60, "a proof"
        )
        low, high = map(float, proved["measuredInterval"].split(" to "))
        assert low < float(proved["measuredGain"]) < high
        assert float(proved["measuredGain"]) > 0
        assert proved["gain"] == proved["measuredGain"]
        flash.wait("Tuned", "Holding")
        traffic.traffic = "prose"
        eventually(lambda: depth_at(flash.schedule(), 2) <= 3, 60, "depth 3 or less for prose")
        # What is on trial in mode Apply is brought to its end in every other mode too.
        eventually(lambda: "trial" not in flash.schedule().get("optional", {}), 60, "the end of its trial")
        flash.serving()
    status = flash.status()
    assert status["speculation"]["desired"]["generation"] > generation + 1
    assert status["speculation"]["effective"]["schedule"] == flash.schedule()["schedule"]
    told = ("TrafficShift", "BetterSchedule", "CostShift", "LoadShift", "GainConfirmed")
    assert status["lastDecision"]["reason"] in told
    assert float(status["lastDecision"]["predictedGain"]) > 0
    assert flash.pod_lives() == lives
    assert traffic.errors == 0
    assert any(reason == status["lastDecision"]["reason"] for reason, _ in flash.events())
    assert operator.metric("specpilot_operator_acknowledgement_seconds_count") > 0
    assert any(reason == "GainConfirmed" for reason, _ in flash.events())


def test_a_pod_that_joins_later_runs_the_schedule_in_force(flash: Watched, cluster: Cluster) -> None:
    generation = flash.generation()
    assert generation > 1
    before = {pod["metadata"]["uid"] for pod in flash.pods()}
    victim = flash.pods()[0]["metadata"]["name"]
    cluster.kubectl("delete", "pod", victim, "--namespace", flash.namespace, "--wait=false")
    eventually(lambda: {p["metadata"]["uid"] for p in flash.pods()} != before, 30, "another pod")
    flash.serving()
    assert flash.status()["speculation"]["effective"]["generation"] == flash.generation() >= generation


def test_observe_changes_nothing_and_recommend_says_what_it_would_change(flash: Watched) -> None:
    flash.patch(tuning={"mode": "Observe"})
    eventually(lambda: not flash.schedule()["exploration"]["price"], 20, "nothing is explored any more")
    flash.serving()
    schedule, decision = flash.schedule(), flash.status()["lastDecision"]
    shallow = depth_at(schedule, 2) <= 3
    traffic = "code" if shallow else "prose"
    with load(flash.urls(), clients=4, traffic=traffic):
        flash.wait("Tuned", "Observing")
        time.sleep(6)
        assert flash.schedule() == schedule
        assert flash.status()["lastDecision"] == decision
        flash.patch(tuning={"mode": "Recommend"})
        flash.wait("Tuned", "Recommended")
        recommended = eventually(
            lambda: (d := flash.status()["lastDecision"])["reason"] == "Recommended" and d,
            30,
            "a recommendation",
        )
        time.sleep(4)
        assert flash.status()["lastDecision"] == recommended  # told once, not with every tick
        assert flash.schedule() == schedule
        flash.patch(tuning={"mode": "Apply"})
        eventually(lambda: depth_at(flash.schedule(), 2) != depth_at(schedule, 2), 60, "what was recommended")


def test_an_engine_that_cannot_be_tuned_says_so_and_serves(
    cluster: Cluster, sim_image: str, operator: OperatorProcess
) -> None:
    assert operator.alive()
    with operator.identity.place() as where:
        stock = Watched(cluster, where, "stock")
        fails = {"fail": {"live": "no lookup in this scheduler"}}
        stock.apply(simulated("stock", sim_image, fails))
        off = stock.wait("Tuned", "LiveTuningOff")
        assert "no lookup in this scheduler" in off["message"]
        assert stock.wait("Ready", "Serving")
        assert json.dumps(stock.events()).count("Warning") == 0


def test_pods_that_are_not_ready_are_left_out_of_the_acknowledgement(
    cluster: Cluster, sim_image: str, operator: OperatorProcess
) -> None:
    """Of two pods that want five devices each, the node with eight runs one."""
    assert operator.alive()
    limits = {"resources": {"limits": {"nvidia.com/gpu": "5"}}}
    template = {"spec": {"containers": [{"name": "vllm", **limits}]}}
    with operator.identity.place() as where:
        tight = Watched(cluster, where, "tight")
        tight.apply(simulated("tight", sim_image, replicas=2, podTemplate=template))
        assert "nvidia.com/gpu" in tight.wait("Degraded", "Unschedulable")["message"]
        eventually(lambda: tight.status()["ready"] == "1/2", 60, "one of two is ready")
        generation = tight.generation()
        serving = [pod["status"]["podIP"] for pod in tight.pods() if pod["status"].get("podIP")]
        with load([f"http://{ip}:8000" for ip in serving], clients=2, traffic="code"):
            eventually(lambda: tight.generation() > generation, 60, "a new schedule")
            # The first look may already ask for exploring; the tuner knows enough with the second.
            eventually(lambda: tight.condition("Tuned")["status"] == "True", 60, "enough evidence")

        def settled() -> bool:
            effective = tight.status()["speculation"]["effective"]
            return (effective["generation"], effective["pods"]) == (tight.generation(), "1/1")

        eventually(settled, 30, "acknowledged by the one that is ready")
        assert tight.condition("Tuned")["status"] == "True"
