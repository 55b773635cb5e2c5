"""What the operator may not write, or what others take from it: serving goes on as it was, and status says why."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.operator_process import OperatorProcess, running
from tests.cluster.operator_world import SMALL_GRID, Watched, load, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

from specpilot_engine.protocol import Schedule, Step

OBSERVE = {"interval": "1s", "mode": "Observe"}


@pytest.fixture(scope="module")
def operator(
    cluster: Cluster, operator_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    folder = tmp_path_factory.mktemp("operator")
    with running(cluster, folder, places=9, engineImage=operator_image, persist="1s") as process:
        yield process


@pytest.fixture
def place(operator: OperatorProcess) -> Iterator[str]:
    assert operator.alive()
    with operator.identity.place() as name:
        yield name


@pytest.mark.parametrize("loss", ["deleted", "broken", "of an earlier generation"])
def test_depths_outlive_a_schedule_that_somebody_takes_away(
    cluster: Cluster, place: str, sim_image: str, loss: str
) -> None:
    flash, where = Watched(cluster, place, "flash"), ("configmap/flash-schedule", "--namespace", place)
    flash.apply(simulated("flash", sim_image, tuning=OBSERVE))
    flash.serving()
    first, lives = flash.schedule(), flash.pod_lives()

    def put(text: str) -> None:
        cluster.kubectl("patch", *where, "--patch", json.dumps({"data": {"schedule.json": text}}))

    tuned = Schedule(int(first["generation"]) + 4, (Step(2, 3), Step(64, 1)))
    put(tuned.dump())

    def desired() -> Any:
        return flash.status()["speculation"]["desired"]

    eventually(
        lambda: desired()["generation"] == tuned.generation, 20, "the depths are those that are wanted"
    )
    match loss:
        case "deleted":
            cluster.kubectl("delete", *where)
        case "broken":
            put('{"generation": 3}')
        case _:
            put(Schedule(tuned.generation - 2, (Step(64, 0),)).dump())
    eventually(lambda: desired()["generation"] > tuned.generation, 20, "a new generation is wanted")
    assert flash.schedule()["schedule"] == json.loads(tuned.dump())["schedule"]
    flash.serving()
    assert flash.pod_lives() == lives


def quota(cluster: Cluster, namespace: str, **hard: str) -> None:
    names = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": names}}
    cluster.apply(body, namespace=namespace)
    eventually(
        lambda: cluster.get("resourcequota", "few", namespace)["status"].get("hard") == names,
        30,
        "the quota counts",
    )


def test_a_memory_that_may_not_be_kept_is_told_while_everything_goes_on(
    cluster: Cluster, place: str, sim_image: str
) -> None:
    flash = Watched(cluster, place, "flash")
    flash.apply(simulated("flash", sim_image))
    flash.serving()
    others = [c for c in cluster.get("configmaps", "", place) if c["metadata"]["name"] != "flash-tuner"]
    quota(cluster, place, count__configmaps=str(len(others)))
    cluster.kubectl("delete", "configmap", "flash-tuner", "--namespace", place, "--ignore-not-found")
    lives = flash.pod_lives()
    with load(flash.urls(), clients=8):
        told = flash.wait("Tuned", "ApplyFailed", 60)
        assert told["status"] == "False"
        assert "exceeded quota" in told["message"]
        assert "raise the quota" in told["message"]
        assert flash.condition("Ready")["status"] == "True"
        flash.wait("Speculating", "Drafting", 30)
        cluster.kubectl("delete", "resourcequota/few", "--namespace", place)
        eventually(lambda: cluster.get("configmap", "flash-tuner", place), 60, "the memory is kept")
        eventually(lambda: flash.condition("Tuned")["reason"] != "ApplyFailed", 30, "nothing is refused")
    assert flash.pod_lives() == lives


def test_a_memory_that_somebody_deletes_is_kept_again_without_anything_new(
    cluster: Cluster, place: str, sim_image: str
) -> None:
    flash = Watched(cluster, place, "flash")
    flash.apply(simulated("flash", sim_image))
    flash.serving()

    def kept() -> Any:
        return (cluster.get("configmap", "flash-tuner", place) or {}).get("data")

    with load(flash.urls(), clients=4):
        flash.wait("Speculating", "Drafting", 30)
        eventually(kept, 30, "the memory is kept")

    def settled() -> Any:
        data = kept()
        time.sleep(3)  # three times as long as evidence waits to be written here
        return data if kept() == data else None

    before = eventually(settled, 30, "nothing more is learnt")
    cluster.kubectl("delete", "configmap", "flash-tuner", "--namespace", place)
    assert eventually(kept, 20, "the memory is kept again") == before


def test_a_profile_that_may_not_be_written_is_told_and_comes_later(
    cluster: Cluster, place: str, sim_image: str
) -> None:
    quota(cluster, place, count__costprofiles_specpilot_io="0")
    flash = Watched(cluster, place, "flash")
    flash.apply(simulated("flash", sim_image, profiling={"where": "Pod", "grid": SMALL_GRID}))

    def told() -> bool:
        return "exceeded quota" in str(flash.condition("Profiled").get("message"))

    eventually(told, 90, "the condition says what is in the way")
    assert "raise the quota" in flash.condition("Profiled")["message"]
    flash.serving()
    lives = flash.pod_lives()
    cluster.kubectl("delete", "resourcequota/few", "--namespace", place)
    flash.wait("Profiled", "Measured", 60)
    assert flash.pod_lives() == lives


def test_a_schedule_that_may_not_be_written_is_not_said_to_be_wanted_and_not_tried_again_and_again(
    cluster: Cluster, place: str, sim_image: str, operator: OperatorProcess
) -> None:
    quota(cluster, place, count__configmaps=str(len(cluster.get("configmaps", "", place))))
    flash = Watched(cluster, place, "flash")
    flash.apply(simulated("flash", sim_image))
    told = flash.wait("Degraded", "ApplyFailed", 30)
    assert "exceeded quota" in told["message"]
    operator.identity.quiet(5, within=30, what="the operator waits")
    assert flash.status().get("speculation") is None
    cluster.kubectl("delete", "resourcequota/few", "--namespace", place)
    flash.patch(replicas=2)  # a change is tried at once
    flash.serving()
    assert flash.generation() == 1


def test_a_child_that_may_not_be_made_anew_does_not_make_what_serves_look_unserved(
    cluster: Cluster, place: str, sim_image: str
) -> None:
    flash = Watched(cluster, place, "flash")
    flash.apply(simulated("flash", sim_image, tuning=OBSERVE))
    flash.serving()
    flash.wait("Progressing", "RolledOut", 20)
    quota(cluster, place, count__poddisruptionbudgets_policy="0")
    cluster.kubectl("delete", "poddisruptionbudget/flash", "--namespace", place)
    told = flash.wait("Degraded", "ApplyFailed", 30)
    assert "exceeded quota" in told["message"]
    assert (flash.condition("Ready")["reason"], flash.condition("Progressing")["reason"]) == (
        "Serving",
        "RolledOut",
    )


def test_a_rollout_that_somebody_paused_says_so(cluster: Cluster, place: str, sim_image: str) -> None:
    flash = Watched(cluster, place, "flash")
    flash.apply(simulated("flash", sim_image, tuning=OBSERVE))
    flash.serving()
    cluster.kubectl("rollout", "pause", "deployment/flash", "--namespace", place)
    flash.patch(podTemplate={"metadata": {"annotations": {"note": "another"}}})
    eventually(
        lambda: "kubectl rollout resume" in str(flash.condition("Progressing").get("message")),
        20,
        "it says so",
    )
    cluster.kubectl("rollout", "resume", "deployment/flash", "--namespace", place)
    flash.serving()
