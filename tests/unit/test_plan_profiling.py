"""Where a profile is measured, what of, and the Job that does it."""

from typing import Any

import pytest

from specpilot.api.objects import SpeculativeDeployment
from specpilot.plan.inputs import Inputs, OperatorFacts, ProfileIn, Profiling
from specpilot.plan.profiling import (
    batch_sizes,
    context_length,
    devices_wanted,
    profile_request,
    where_to_profile,
)
from specpilot.plan.render import render
from specpilot_engine.protocol import Schedule, Step, parse_profile_request


def sd(profiling: dict[str, Any] | None = None, gpus: int = 0, **spec: Any) -> SpeculativeDeployment:
    container: dict[str, Any] = {"name": "vllm"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus, "memory": "1Gi"}, "requests": {"cpu": 4}}
    body = {
        "model": {"name": "m"},
        "engine": {"image": "vllm:v0.33.0", "args": spec.pop("args", [])},
        "speculation": {"method": "MTP"},
        "podTemplate": {"spec": {"containers": [container, *spec.pop("beside", [])]}},
        "profiling": profiling or {},
        **spec,
    }
    return SpeculativeDeployment.parse({"metadata": {"name": "one", "uid": "u"}, "spec": body})


def objects(of: SpeculativeDeployment) -> dict[str, dict[str, Any]]:
    request = profile_request(of.spec, ProfileIn.JOB)
    operator = OperatorFacts("specpilot:1")
    inputs = Inputs(Schedule(1, (Step(8, 1),)), operator, Profiling(ProfileIn.JOB, request))
    return {o["kind"]: o for o in render(of, inputs)}


@pytest.mark.parametrize(
    ("of", "free", "where"),
    [
        (sd(gpus=4), True, ProfileIn.JOB),
        (sd(gpus=4), False, ProfileIn.POD),
        (sd(), True, ProfileIn.POD),  # nothing but its own devices tells a CPU pod apart
        (sd({"where": "Job"}), False, ProfileIn.JOB),
        (sd({"where": "Pod"}, gpus=1), True, ProfileIn.POD),
        (sd({"policy": "Never"}, gpus=1), True, ProfileIn.NOWHERE),
        (sd({"profileRef": {"name": "p"}}, gpus=1), True, ProfileIn.NOWHERE),
        (sd(speculation={"method": "None"}), True, ProfileIn.NOWHERE),
        (sd(parallelism={"data": 2}), True, ProfileIn.NOWHERE),  # one depth: nothing to choose by it
    ],
)
def test_the_place_follows_from_devices_and_wishes(
    of: SpeculativeDeployment, free: bool, where: ProfileIn
) -> None:
    assert where_to_profile(of.spec, free) is where


def test_devices_of_a_pod_are_counted_over_its_containers() -> None:
    beside = [{"name": "b", "resources": {"requests": {"nvidia.com/gpu": "1", "hugepages-2Mi": "2Mi"}}}]
    assert devices_wanted(sd(gpus=4, beside=beside).spec) == {"nvidia.com/gpu": 5}
    assert devices_wanted(sd().spec) == {}


def test_the_users_grid_is_measured_as_it_is() -> None:
    grid = {"tokens": [0, 3], "batchSizes": [1, 7], "contextLengths": [100]}
    request = profile_request(sd({"grid": grid}).spec, ProfileIn.JOB)
    assert (request.tokens, request.batch_sizes, request.context_lengths) == ((0, 3), (1, 7), (100,))


def test_a_grid_follows_from_candidates_and_limits() -> None:
    args = ["--max-num-seqs", "200", "--max-model-len", "4096"]
    request = profile_request(sd(args=args).spec, ProfileIn.JOB)
    assert request.tokens == (0, 1, 3, 7)
    assert request.batch_sizes == (1, 4, 16, 64, 200)
    assert request.context_lengths == (2048,)


def test_batches_and_contexts_stay_within_the_engines_limits() -> None:
    assert batch_sizes(1) == [1]
    assert batch_sizes(4) == [1, 4]
    assert batch_sizes(256) == [1, 4, 16, 64, 256]
    assert context_length(None) == 2048
    assert context_length(131072) == 8192
    assert context_length(1000) == 500


@pytest.mark.parametrize(
    ("profiling", "where", "budget", "then"),
    [
        ({"deadline": "10m"}, ProfileIn.JOB, 600.0, "exit"),
        ({"deadline": "10m"}, ProfileIn.POD, 30.0, "serve"),
        ({"deadline": "20s"}, ProfileIn.POD, 20.0, "serve"),
        ({"deadline": "10m", "blockServing": True}, ProfileIn.POD, 600.0, "serve"),
    ],
)
def test_serving_waits_no_longer_than_the_user_allows(
    profiling: dict[str, Any], where: ProfileIn, budget: float, then: str
) -> None:
    request = profile_request(sd(profiling).spec, where)
    assert (request.budget, request.then) == (budget, then)


def test_the_key_names_what_is_measured() -> None:
    def key(of: SpeculativeDeployment) -> str:
        return profile_request(of.spec, ProfileIn.JOB).key

    assert key(sd()) == key(sd({"deadline": "1m"}, replicas=4))
    assert key(sd()) != key(sd(args=["--max-num-seqs", "8"]))
    assert key(sd()) != key(sd(model={"name": "other"}))


def test_the_job_measures_once_and_ends_by_the_deadline() -> None:
    spec = objects(sd({"deadline": "10m"}))["Job"]["spec"]
    assert spec["backoffLimit"] == 0
    assert spec["activeDeadlineSeconds"] == 600
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_the_jobs_engine_is_the_serving_one_with_its_devices() -> None:
    made = objects(sd(gpus=4))
    serving = made["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    measured = made["Job"]["spec"]["template"]["spec"]["initContainers"][-1]
    assert measured["restartPolicy"] == "Always"
    for field in ("image", "command", "args", "env", "resources", "volumeMounts", "startupProbe"):
        assert measured[field] == serving[field]


def test_the_job_ends_when_the_profiler_does_whatever_runs_beside() -> None:
    pod = objects(sd(beside=[{"name": "shipper", "image": "s"}]))["Job"]["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["containers"]] == ["specpilot-profiler"]
    sidecars = {c["name"]: c.get("restartPolicy") for c in pod["initContainers"]}
    assert sidecars["shipper"] == sidecars["vllm"] == "Always"
    env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
    assert parse_profile_request(env["SPECPILOT_PROFILE"]).then == "exit"


def test_the_jobs_pod_gets_no_traffic() -> None:
    made = objects(sd())
    labels = made["Job"]["spec"]["template"]["metadata"]["labels"]
    selector = made["Service"]["spec"]["selector"]
    assert not selector.items() <= labels.items()
    assert selector.items() <= made["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
