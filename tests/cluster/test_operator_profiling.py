"""Cost profiles: measured once in a Job or in serving pods, reused, refused, and never repeated blindly."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.operator_world import SMALL_GRID, Watched, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

from specpilot.cluster.client import Cluster as Client
from specpilot.cluster.nodes import PLENTY, Nodes

POINTS = len(SMALL_GRID["tokens"]) * len(SMALL_GRID["batchSizes"])


@pytest.fixture(scope="module")
def measured(cluster: Cluster, where: str, sim_image: str) -> Watched:
    """A deployment that was measured by a Job which serving waited for."""
    flash = Watched(cluster, where, "flash")
    profiling = {"where": "Job", "blockServing": True, "grid": SMALL_GRID}
    flash.apply(simulated("flash", sim_image, profiling=profiling))
    assert flash.wait("Ready", "WaitingForProfile", 20)["status"] == "False"
    assert flash.pods() == []
    flash.wait("Profiled", "Measured", 90)
    return flash


def test_serving_starts_when_the_job_has_measured_everything(measured: Watched, cluster: Cluster) -> None:
    measured.serving()
    status = measured.status()
    profile = cluster.get("specprof", status["profile"]["name"], measured.namespace)
    assert len(profile["spec"]["points"]) == profile["spec"]["total"] == POINTS
    assert profile["status"]["progress"] == status["profile"]["progress"] == f"{POINTS}/{POINTS}"
    assert profile["spec"]["fingerprint"]["imageDigest"].startswith("sha256:")
    assert profile["spec"]["fingerprint"]["gpu"].startswith("cpu-")
    assert "ownerReferences" not in profile["metadata"]
    eventually(lambda: ("Job", "flash-profile") not in measured.children(), 30, "the Job is gone")
    assert status["lastDecision"]["reason"] == "Initial"  # before any traffic, by the profile


def test_another_deployment_of_the_same_engine_measures_nothing(
    measured: Watched, cluster: Cluster, sim_image: str
) -> None:
    twin = Watched(cluster, measured.namespace, "twin")
    twin.apply(simulated("twin", sim_image, profiling={"where": "Job", "grid": SMALL_GRID}))
    assert measured.status()["profile"]["name"] in twin.wait("Profiled", "Reused", 20)["message"]
    assert ("Job", "twin-profile") not in twin.children()
    assert len(cluster.get("specprof", "", measured.namespace)) == 1


def test_a_named_profile_of_another_engine_is_refused_with_the_field(
    measured: Watched, cluster: Cluster, sim_image: str
) -> None:
    other = Watched(cluster, measured.namespace, "other")
    named = {"profileRef": {"name": measured.status()["profile"]["name"]}}
    speculation = {"method": "MTP", "maxTokens": 3}
    other.apply(simulated("other", sim_image, speculation=speculation, profiling=named, replicas=0))
    assert "it differs in arguments" in other.wait("Profiled", "ProfileMismatch", 20)["message"]
    other.patch(profiling={"profileRef": {"name": "nothing"}})
    assert "names nothing" in other.wait("Profiled", "ProfileNotFound", 20)["message"]


def test_the_profile_outlives_its_deployment(measured: Watched, cluster: Cluster) -> None:
    name = measured.status()["profile"]["name"]
    cluster.kubectl("delete", "specdep/flash", "--namespace", measured.namespace, "--timeout=30s")
    eventually(lambda: not measured.children(), 30, "the children are gone")
    assert cluster.get("specprof", name, measured.namespace)


def test_a_job_that_fails_is_not_repeated_until_somebody_deletes_it(
    cluster: Cluster, where: str, sim_image: str
) -> None:
    bad = Watched(cluster, where, "bad")
    profiling = {"where": "Job", "grid": SMALL_GRID, "deadline": "4s"}
    never = {"fail": {"never_ready": True}}
    another = {"method": "MTP", "maxTokens": 5}  # so that no profile of this namespace fits
    bad.apply(simulated("bad", sim_image, never, speculation=another, profiling=profiling, replicas=0))
    failed = bad.wait("Profiled", "ProfileFailed", 60)
    assert "DeadlineExceeded" in failed["message"]
    first = bad.children()["Job", "bad-profile"]["metadata"]["uid"]
    bad.patch(tuning={"minimumGain": 0.2})
    eventually(lambda: bad.status()["observedGeneration"] == bad.body()["metadata"]["generation"], 10, "seen")
    assert bad.children()["Job", "bad-profile"]["metadata"]["uid"] == first
    cluster.kubectl("delete", "job/bad-profile", "--namespace", where)
    eventually(
        lambda: bad.children().get(("Job", "bad-profile"), {}).get("metadata", {}).get("uid", first) != first,
        20,
        "another try",
    )


async def test_room_is_counted_as_the_scheduler_counts_it(cluster: Cluster, where: str) -> None:
    """Of the node's eight devices, a pod that runs holds three."""
    container = {
        "name": "main",
        "image": "localhost/pause:1",
        "resources": {"limits": {"nvidia.com/gpu": "3"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": security, "terminationGracePeriodSeconds": 0}

    def asking(**requests: str) -> dict[str, Any]:
        named = {name.replace("gpu", "nvidia.com/gpu"): amount for name, amount in requests.items()}
        return {"spec": {"containers": [{"name": "vllm", "resources": {"requests": named}}]}}

    api = await Client.connect(str(cluster.kubeconfig))
    try:
        nodes = Nodes(api)
        before = await nodes.room({"spec": spec})
        cluster.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holder"}, "spec": spec}, namespace=where
        )
        placed = ("pod/holder", "--for=condition=PodScheduled", "--timeout=20s", "--namespace", where)
        cluster.kubectl("wait", *placed)
        assert before == 2
        assert await nodes.room({"spec": spec}) == 1
        assert await nodes.room(asking(gpu="5")) == 1
        assert await nodes.room(asking(gpu="6")) == 0
        assert await nodes.room(asking(gpu="1", memory="1Pi")) == 0
        # A node takes so many pods, however little each asks for.
        assert 1 < await nodes.room(asking(cpu="1m", memory="1Ki")) < 1000
        assert await nodes.room(asking(other="1")) == 0
        assert await nodes.room({}) == PLENTY
    finally:
        await api.aclose()
