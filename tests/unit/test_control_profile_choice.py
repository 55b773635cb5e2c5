"""Which profile a deployment goes by, and whether and where one is measured."""

from __future__ import annotations

from typing import Any

import pytest

from specpilot.api.objects import SpeculativeDeployment
from specpilot.control.profile_choice import Choice, Identity, choose, keys_of, measures_this
from specpilot.plan.fingerprint import fingerprint, key, request_key
from specpilot.plan.inputs import Inputs, OperatorFacts, ProfileIn, Profiling
from specpilot.plan.profiling import profile_request
from specpilot.plan.render import render
from specpilot_engine.protocol import ProfilePoint, Schedule, Step

HERE = Identity("sha256:aa", "H200")
POINT = {"tokens": 1, "batchSize": 8, "contextLength": 64, "seconds": 0.01, "spread": 0.1, "steps": 16}
GPU = {"containers": [{"name": "vllm", "resources": {"limits": {"nvidia.com/gpu": 4}}}]}


def deployment(**spec: Any) -> SpeculativeDeployment:
    return SpeculativeDeployment.parse(
        {
            "metadata": {"name": "flash", "namespace": "llm", "uid": "u"},
            "spec": {
                "model": {"name": "m"},
                "engine": {"image": "vllm:v0.33.0"},
                "speculation": {"method": "MTP", "maxTokens": 3},
                **spec,
            },
        }
    )


def profile(
    of: SpeculativeDeployment,
    identity: Identity = HERE,
    succeeded: str = "True",
    points: int = 1,
    owner: str = "flash",
    **change: Any,
) -> dict[str, Any]:
    print_ = fingerprint(of.spec, identity.image_digest, identity.gpu).to_json() | change
    condition = {"type": "Succeeded", "status": succeeded, "reason": "Measured", "message": "why"}
    return {
        "metadata": {
            "name": f"{owner}-p",
            "namespace": "llm",
            "labels": {"app.kubernetes.io/instance": owner},
        },
        "spec": {"key": "k", "fingerprint": print_, "total": 4, "points": [POINT] * points},
        "status": {"conditions": [condition]},
    }


def chosen(
    sd: SpeculativeDeployment,
    *profiles: dict[str, Any],
    children: tuple[dict[str, Any], ...] = (),
    identity: Identity | None = HERE,
    free: bool = False,
) -> Choice:
    kinds = {child["kind"]: child for child in children}
    return choose(sd, profiles, kinds.get("Deployment"), kinds.get("Job"), identity, free)


def planned(sd: SpeculativeDeployment, where: ProfileIn) -> tuple[dict[str, Any], ...]:
    """The children that were made to measure there."""
    request = None if where is ProfileIn.NOWHERE else profile_request(sd.spec, where)
    inputs = Inputs(Schedule(1, (Step(256, 1),)), OperatorFacts("operator:1"), Profiling(where, request))
    return tuple(b for b in render(sd, inputs) if b["kind"] in ("Deployment", "Job"))


def reason(choice: Choice) -> str:
    assert choice.finding is not None
    return str(choice.finding.reason)


def test_a_finished_profile_of_the_same_engine_is_used_and_nothing_is_measured() -> None:
    choice = chosen(deployment(), profile(deployment()))
    assert (reason(choice), choice.profiling.where, choice.active) == ("Measured", ProfileIn.NOWHERE, False)
    assert choice.profiling.done
    assert choice.points == (ProfilePoint(1, 8, 64, 0.01, 0.1, 16),)


def test_a_profile_of_another_deployment_is_reused() -> None:
    assert reason(chosen(deployment(), profile(deployment(), owner="other"))) == "Reused"


def test_until_a_pod_runs_a_profile_is_not_refused_for_what_only_a_pod_tells() -> None:
    elsewhere = profile(deployment(), Identity("sha256:bb", "B300"))
    assert reason(chosen(deployment(), elsewhere, identity=None)) == "Measured"
    assert reason(chosen(deployment(), elsewhere)) == "Profiling"


@pytest.mark.parametrize(
    "change",
    [{"model": "n"}, {"tensor": 2}, {"arguments": "--other"}, {"imageDigest": "sha256:bb"}, {"gpu": "B300"}],
    ids=lambda change: next(iter(change)),
)
def test_a_profile_of_another_engine_is_not_used(change: dict[str, Any]) -> None:
    choice = chosen(deployment(), profile(deployment(), **change))
    assert reason(choice) == "Profiling"
    assert choice.points == ()


def test_a_named_profile_that_does_not_match_is_refused_with_the_field() -> None:
    sd = deployment(profiling={"profileRef": {"name": "flash-p"}})
    choice = chosen(sd, profile(sd, gpu="B300"))
    assert reason(choice) == "ProfileMismatch"
    assert choice.finding is not None
    assert "it differs in gpu ('B300', here 'H200')" in choice.finding.message
    assert choice.points == ()


def test_a_named_profile_that_matches_is_used_and_one_that_is_not_there_is_said_to_be_missing() -> None:
    sd = deployment(profiling={"profileRef": {"name": "flash-p"}})
    assert reason(chosen(sd, profile(sd))) == "Reused"
    assert reason(chosen(sd)) == "ProfileNotFound"


def test_an_unfinished_profile_gives_its_points_and_is_not_measured_again() -> None:
    choice = chosen(deployment(), profile(deployment(), succeeded="False"))
    assert (reason(choice), choice.profiling.where) == ("ProfileIncomplete", ProfileIn.NOWHERE)
    assert len(choice.points) == 1
    assert choice.finding is not None
    assert "why" in choice.finding.message


def test_a_profile_without_a_point_has_failed() -> None:
    assert reason(chosen(deployment(), profile(deployment(), succeeded="False", points=0))) == "ProfileFailed"


def test_policy_never_measures_nothing_but_uses_what_there_is() -> None:
    sd = deployment(profiling={"policy": "Never"})
    assert reason(chosen(sd)) == "ProfilingDisabled"
    assert reason(chosen(sd, profile(sd))) == "Measured"


def test_without_a_depth_to_tune_nothing_is_measured() -> None:
    choice = chosen(deployment(speculation={"method": "None"}))
    assert (reason(choice), choice.profiling.where) == ("ProfilingDisabled", ProfileIn.NOWHERE)


@pytest.mark.parametrize(
    ("spec", "free", "where", "hold"),
    [
        ({}, False, ProfileIn.POD, False),
        ({"podTemplate": {"spec": GPU}}, False, ProfileIn.POD, False),
        ({"podTemplate": {"spec": GPU}}, True, ProfileIn.JOB, False),
        ({"podTemplate": {"spec": GPU}, "profiling": {"blockServing": True}}, False, ProfileIn.JOB, True),
        ({"profiling": {"where": "Job"}}, False, ProfileIn.JOB, False),
        ({"profiling": {"where": "Job", "blockServing": True}}, False, ProfileIn.JOB, True),
        ({"profiling": {"where": "Pod", "blockServing": True}}, False, ProfileIn.POD, False),
    ],
    ids=[
        "no device: in the pods",
        "devices taken: in the pods",
        "devices free: a Job beside them",
        "devices taken, serving may wait: a Job before them",
        "Job asked for",
        "Job asked for, serving waits",
        "in pods, which are not ready meanwhile by themselves",
    ],
)
def test_where(spec: dict[str, Any], free: bool, where: ProfileIn, hold: bool) -> None:
    choice = chosen(deployment(**spec), free=free)
    assert (choice.profiling.where, choice.profiling.hold_serving, choice.active) == (where, hold, True)


def test_pods_that_run_without_a_profiler_are_not_restarted_to_measure() -> None:
    sd = deployment()
    choice = chosen(sd, children=planned(sd, ProfileIn.NOWHERE))
    assert (reason(choice), choice.profiling.where) == ("ProfileIncomplete", ProfileIn.NOWHERE)


def test_an_own_profile_that_no_longer_holds_is_named_with_what_differs() -> None:
    sd = deployment()
    stale = profile(sd, arguments="--by-another-rule")
    choice = chosen(
        sd, stale, profile(sd, owner="other", gpu="B300"), children=planned(sd, ProfileIn.NOWHERE)
    )
    assert choice.finding is not None
    assert choice.finding.message == (
        "no profile is of this engine, and measuring in the serving pods would restart them; CostProfile flash-p"
        " differs in arguments"
    )


def test_what_measures_already_goes_on_measuring() -> None:
    sd = deployment()
    for where in (ProfileIn.POD, ProfileIn.JOB):
        choice = chosen(sd, children=planned(sd, where))
        assert (reason(choice), choice.profiling.where, choice.active) == ("Profiling", where, True)


def test_a_failed_job_is_not_started_again_until_something_else_is_wanted() -> None:
    sd = deployment(profiling={"where": "Job", "blockServing": True})
    children = planned(sd, ProfileIn.JOB)
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    for child in children:
        child["status"] = {"conditions": [failed]}
    choice = chosen(sd, children=children)
    assert (reason(choice), choice.profiling.where) == ("ProfileFailed", ProfileIn.JOB)
    assert (choice.active, choice.profiling.hold_serving) == (False, False)
    assert choice.finding is not None
    assert "DeadlineExceeded" in choice.finding.message
    found = chosen(sd, profile(sd, succeeded="Unknown"), children=children)
    assert (reason(found), len(found.points)) == ("ProfileIncomplete", 1)
    assert found.finding is not None
    assert found.finding.message.startswith("spec.profiling.deadline passed with 1 of 4 step times measured")
    other = deployment(profiling={"where": "Job"}, speculation={"method": "MTP", "maxTokens": 7})
    assert chosen(other, children=children).active


@pytest.mark.parametrize(
    "change",
    [
        {"podTemplate": {"spec": {"nodeSelector": {"disk": "fast"}}}},
        {"engine": {"image": "vllm:v0.33.1"}},
        {"engine": {"image": "vllm:v0.33.0", "args": ["--enforce-eager"]}},
        {"speculation": {"method": "MTP", "maxTokens": 2}},
    ],
    ids=["podTemplate", "image", "arguments", "depths"],
)
@pytest.mark.parametrize("status", [{}, {"conditions": [{"type": "Failed", "status": "True"}]}])
def test_a_job_of_an_earlier_spec_gives_way_running_or_failed(
    change: dict[str, Any], status: dict[str, Any]
) -> None:
    sd, changed = (deployment(profiling={"where": "Job"}, **more) for more in ({}, change))
    children = planned(sd, ProfileIn.JOB)
    job = next(child for child in children if child["kind"] == "Job") | {"status": status}
    choice = chosen(changed, children=(job,))
    assert (reason(choice), choice.profiling.where, choice.active) == ("Profiling", ProfileIn.JOB, True)
    assert measures_this(job, sd)
    assert not measures_this(job, changed)


def test_a_job_that_says_nothing_of_its_spec_is_told_by_what_it_measures() -> None:
    sd, other = deployment(), deployment(engine={"image": "vllm:v0.33.1"})
    job = next(child for child in planned(sd, ProfileIn.JOB) if child["kind"] == "Job")
    job["metadata"]["annotations"] = {}
    assert measures_this(job, sd)
    assert not measures_this(job, other)


def test_only_profilers_of_this_spec_are_listened_to() -> None:
    sd, other = deployment(), deployment(engine={"image": "vllm:v0.33.1"})
    mine, theirs = request_key(sd.spec), request_key(other.spec)
    earlier = {child["kind"]: child for child in planned(other, ProfileIn.POD)}
    job = next(child for child in planned(other, ProfileIn.JOB) if child["kind"] == "Job")
    assert keys_of(sd, None, None) == keys_of(sd, earlier["Deployment"], job) == {mine}
    assert keys_of(other, earlier["Deployment"], job) == {theirs}
    # One that runs keeps its key when another release would name it otherwise.
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    env[0] = {**env[0], "value": env[0]["value"].replace(theirs, "f" * 16)}
    assert keys_of(other, None, job) == {theirs, "f" * 16}


def test_profiles_of_unknown_versions_are_passed_over() -> None:
    assert reason(chosen(deployment(), {"metadata": {"name": "x"}, "spec": {}})) == "Profiling"


def test_fingerprints_of_one_engine_have_one_key() -> None:
    one, other = deployment(), deployment(tuning={"minimumGain": 0.5}, replicas=3)
    assert key(fingerprint(one.spec, "d", "g")) == key(fingerprint(other.spec, "d", "g"))
