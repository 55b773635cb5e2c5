"""A spec that changes under its profiling Job ends in a fresh measurement of the new engine, and in no error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.operator_world import SMALL_GRID, Watched, simulated
from tests.setup.audit import Write
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

JOB = {"where": "Job", "grid": SMALL_GRID}
POINTS, PLACES = 6, 5


@pytest.fixture
def where(operator: OperatorProcess) -> Iterator[str]:
    assert operator.alive()
    with operator.identity.place() as name:
        yield name


@pytest.fixture
def flash(cluster: Cluster, where: str) -> Watched:
    return Watched(cluster, where, "flash")


def world(**sim: Any) -> list[dict[str, str]]:
    """spec.engine.env of simulated()."""
    start = {"startup_seconds": 0.1, "grace_seconds": 0.1}
    return [{"name": "SPECPILOT_SIM", "value": json.dumps({**start, **sim})}]


def job(of: Watched) -> dict[str, Any]:
    return dict(of.children().get(("Job", "flash-profile")) or {})


def uid(of: Watched) -> str:
    return str(job(of).get("metadata", {}).get("uid", ""))


def another(of: Watched, first: str) -> dict[str, Any]:
    """The Job that came in place of the `first`."""
    eventually(lambda: uid(of) not in ("", first), 60, "a fresh Job")
    return job(of)


def measured(of: Watched, cluster: Cluster) -> list[dict[str, Any]]:
    of.wait("Profiled", "Measured", 120)
    profile = cluster.get("specprof", of.status()["profile"]["name"], of.namespace)
    assert len(profile["spec"]["points"]) == profile["spec"]["total"] == POINTS
    return list(profile["spec"]["points"])


def refused(operator: OperatorProcess, since: int, of: Watched) -> list[Write]:
    """What the API server would not take; that somebody was faster is no refusal."""
    mine = [w for w in operator.identity.writes(since) if w.namespace == of.namespace]
    return [w for w in mine if w.code >= 400 and w.code not in (404, 409)]


def test_another_engine_while_the_job_measures(
    operator: OperatorProcess, flash: Watched, cluster: Cluster, sim_image: str
) -> None:
    """The points of the engine before are slow ones: none may be told of the one after."""
    since = operator.identity.position()
    flash.apply(simulated("flash", sim_image, {"time_scale": 0.1}, profiling=JOB, replicas=0))
    (profile,) = eventually(lambda: cluster.get("specprof", "", flash.namespace), 90, "the first points")
    first, slow = uid(flash), profile["metadata"]["name"]
    flash.patch(engine={"image": sim_image, "args": ["--max-num-seqs", "32"], "env": world(time_scale=1.0)})
    fresh = another(flash, first)
    engine = fresh["spec"]["template"]["spec"]["initContainers"][-1]
    assert engine["args"][engine["args"].index("--max-num-seqs") + 1] == "32"
    points = measured(flash, cluster)
    before = cluster.get("specprof", slow, flash.namespace)["spec"]["points"]
    assert 0 < len(before) < POINTS
    assert flash.status()["profile"]["name"] != slow
    assert max(p["seconds"] for p in points) < min(p["seconds"] for p in before)
    assert refused(operator, since, flash) == []


def test_a_pod_template_that_let_the_job_fail(
    operator: OperatorProcess, flash: Watched, cluster: Cluster, sim_image: str
) -> None:
    since = operator.identity.position()
    nowhere = {"spec": {"nodeSelector": {"disk": "none-has-this"}}}
    hurried = {**JOB, "deadline": "3s"}
    flash.apply(simulated("flash", sim_image, profiling=hurried, podTemplate=nowhere, replicas=0))
    assert "DeadlineExceeded" in flash.wait("Profiled", "ProfileFailed", 60)["message"]
    first = uid(flash)
    flash.patch(podTemplate=None, profiling={**JOB, "deadline": "120s"})
    fresh = another(flash, first)
    assert "nodeSelector" not in fresh["spec"]["template"]["spec"]
    measured(flash, cluster)
    assert refused(operator, since, flash) == []


def test_an_image_that_is_not_there(
    operator: OperatorProcess, flash: Watched, cluster: Cluster, sim_image: str
) -> None:
    since = operator.identity.position()
    missing = sim_image.rpartition(":")[0] + ":v0.33.0-none"
    flash.apply(simulated("flash", missing, profiling=JOB, replicas=0))
    eventually(lambda: missing in flash.condition("Profiled").get("message", ""), 60, "the image is named")
    first = uid(flash)
    flash.patch(engine={"image": sim_image})
    another(flash, first)
    measured(flash, cluster)
    assert refused(operator, since, flash) == []


def test_measuring_moves_into_the_pods_when_its_place_changes(
    operator: OperatorProcess, flash: Watched, cluster: Cluster, sim_image: str
) -> None:
    since = operator.identity.position()
    flash.apply(simulated("flash", sim_image, {"time_scale": 0.1}, profiling=JOB, replicas=0))
    eventually(lambda: uid(flash), 30, "a Job")
    elsewhere = {"where": "Pod", "grid": SMALL_GRID}
    flash.patch(engine={"image": sim_image, "env": world(time_scale=1.0)}, profiling=elsewhere, replicas=1)
    eventually(lambda: not uid(flash), 30, "the Job goes")
    measured(flash, cluster)
    flash.serving(90)
    assert refused(operator, since, flash) == []


def test_pods_that_come_later_measure_nothing(flash: Watched, cluster: Cluster, sim_image: str) -> None:
    slow = {"time_scale": 0.25}
    flash.apply(simulated("flash", sim_image, slow, profiling={"where": "Pod", "grid": SMALL_GRID}))
    measured(flash, cluster)
    flash.serving(90)
    told = eventually(lambda: cluster.get("configmap", "flash-profiled", flash.namespace), 20, "it is told")
    (first,) = flash.pods()
    lives = flash.pod_lives()
    flash.patch(replicas=2)
    flash.serving(90)
    (second,) = (pod for pod in flash.pods() if pod["metadata"]["uid"] != first["metadata"]["uid"])
    url = f"http://{second['status']['podIP']}:9102/v1/profile"
    answer = httpx.get(url, trust_env=False).json()
    assert (answer["points"], answer["finished"]) == ([], True)
    assert "the profile was known when this pod started" in answer["error"]
    assert json.loads(told["data"]["profiled.json"])["key"] == answer["key"]
    assert lives < flash.pod_lives()  # the first one was not touched
    assert flash.condition("Profiled")["reason"] == "Measured"
