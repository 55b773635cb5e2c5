"""Arms: what a spec allows, how each is rendered, and that the one in force stays in force."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specpilot.api import vocabulary as v
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.validate import errors
from specpilot.decide.arm import NONE, SCHEDULE, Arm, Kind
from specpilot.plan.arguments import base_arm, capture_sizes, live_support
from specpilot.plan.arms import arms
from specpilot.plan.fingerprint import cost_arguments
from specpilot.plan.inputs import Inputs, OperatorFacts, ProfileIn, Profiling
from specpilot.plan.problems import problems
from specpilot.plan.profiling import profile_request
from specpilot.plan.render import render
from specpilot.plan.revision import carry_over, recorded_arm
from specpilot_engine.protocol import Schedule, Step

SCHEDULED = Schedule(1, (Step(8, 1),))
FACTS = OperatorFacts("specpilot:1")
ADAPTIVE = Arm(Kind.ADAPTIVE, 7, 16384)
CONTEXT = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN"
Body = dict[str, Any]


def sd(method: str = "DSpark", *, adaptive: str = "Auto", **more: Any) -> SpeculativeDeployment:
    speculation = {"method": method, "maxTokens": 7, "verification": {"adaptive": adaptive}}
    if method in ("Eagle3", "DraftModel"):
        speculation["draftModel"] = {"name": "d"}
    engine = {"image": "vllm:v0.33.0", **more.pop("engine", {})}
    spec = {"model": {"name": "m"}, "engine": engine, "speculation": speculation, **more}
    return SpeculativeDeployment.parse(
        {"metadata": {"name": "one", "namespace": "ns", "uid": "u", "annotations": {}}, "spec": spec}
    )


def deployment(of: SpeculativeDeployment, existing: Body | None = None, **inputs: Any) -> Body:
    plan = render(of, carry_over(existing, of, Inputs(SCHEDULED, FACTS, **inputs)))
    return next(body for body in plan if body["kind"] == "Deployment")


def engine(body: Body) -> Body:
    found: Body = body["spec"]["template"]["spec"]["containers"][0]
    return found


def configuration(body: Body) -> Body | None:
    line = engine(body)["args"]
    if "--speculative-config" not in line:
        return None
    return dict(json.loads(line[line.index("--speculative-config") + 1]))


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (sd(), "schedule none static-7 adaptive-7@8192"),
        (sd(adaptive="Never"), "schedule none static-7"),
        (sd(adaptive="Always"), "adaptive-7"),
        (sd("DFlash"), "schedule none static-7"),
        (sd("MTP"), "schedule none static-1 static-7"),
        (sd("Eagle3"), "schedule none static-1 static-3 static-7"),
        (sd("None"), "none"),
        (sd(parallelism={"data": 2}), "static-7"),
        (sd(engine={"args": ["--enforce-eager"]}), "schedule none static-7"),
        (sd(engine={"args": ["--enable-lora"]}), "schedule none static-7"),
        (sd(parallelism={"pipeline": 2}), "schedule none static-7"),
        (sd(engine={"image": "vllm:v0.31.0"}), "schedule none static-7"),
        (sd(engine={"env": [{"name": CONTEXT, "value": "4096"}]}), "schedule none static-7 adaptive-7"),
        (sd(engine={"args": ["--max-model-len", "4096"]}), "schedule none static-7 adaptive-7@4096"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_spec_allows_what_its_engine_can_run(of: SpeculativeDeployment, expected: str) -> None:
    found = arms(of.spec, 7000.0)
    assert " ".join(map(str, found)) == expected
    assert base_arm(of.spec) == found[0]


def test_a_static_depth_has_no_schedule_and_graphs_of_its_own_length() -> None:
    of = sd("Eagle3")
    body = deployment(of, arm=Arm(Kind.STATIC, 3))
    assert configuration(body) == {"method": "eagle3", "model": "d", "num_speculative_tokens": 3}
    sizes = capture_sizes(of.spec, Arm(Kind.STATIC, 3))
    assert {size for size in sizes if size > 4 and size % 4} == set()
    line = engine(body)["args"]
    assert line[line.index("--cudagraph-capture-sizes") + 1 :][: len(sizes)] == [str(s) for s in sizes]
    assert body["metadata"]["annotations"][v.ANNOTATION_ARM] == "static-3"


def test_synthetic_acceptance_keeps_one_rate_for_each_token() -> None:
    of = sd("MTP")
    speculation = of.spec.speculation.model_copy(
        update={
            "verification": of.spec.speculation.verification.model_copy(
                update={"method": "Synthetic", "synthetic_acceptance": [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]}
            )
        }
    )
    of = of.model_copy(update={"spec": of.spec.model_copy(update={"speculation": speculation})})
    found = configuration(deployment(of, arm=Arm(Kind.STATIC, 1)))
    assert found is not None
    assert found["synthetic_acceptance_rates"] == [0.9]


def test_no_speculation_leaves_out_the_drafter_and_keeps_what_measures() -> None:
    body = deployment(sd(), arm=NONE)
    assert configuration(body) is None
    line = engine(body)["args"]
    assert "--scheduler-cls" in line
    assert "--cudagraph-capture-sizes" not in line
    assert body["spec"]["template"]["spec"]["initContainers"][0]["name"] == v.INIT_CONTAINER


def test_adaptive_verification_is_timed_at_the_context_of_the_traffic() -> None:
    body = deployment(sd(), arm=ADAPTIVE)
    assert configuration(body) == {
        "method": "dspark",
        "num_speculative_tokens": 7,
        "num_speculative_tokens_per_batch_size": [[1, 1024, 7]],
        "enable_adaptive_verification": True,
    }
    assert {"name": CONTEXT, "value": "16384"} in engine(body)["env"]


def test_a_context_that_the_user_sets_stays() -> None:
    of = sd(engine={"env": [{"name": CONTEXT, "value": "4096"}]})
    found = [e for e in engine(deployment(of, arm=ADAPTIVE))["env"] if e["name"] == CONTEXT]
    assert found == [{"name": CONTEXT, "value": "4096"}]


def test_always_is_adaptive_verification_from_the_start() -> None:
    of = sd(adaptive="Always")
    assert errors(of.spec) == []
    found = configuration(deployment(of))
    assert found is not None
    assert found["enable_adaptive_verification"] is True
    assert found["num_speculative_tokens_per_batch_size"] == [[1, 1024, 7]]
    assert v.ANNOTATION_ARM not in deployment(of)["metadata"]["annotations"]
    supported, why = live_support(of.spec)
    assert (supported, "adaptive is Always" in why) == (False, True)


@pytest.mark.parametrize(
    ("more", "fix"),
    [
        ({"engine": {"image": "vllm:v0.33.0-cpu"}}, "CUDA graphs"),
        ({"engine": {"args": ["--compilation-config.cudagraph_mode=NONE"]}}, "CUDA graphs"),
        ({"engine": {"env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]}}, "remove VLLM_USE_V2"),
    ],
)
def test_always_where_vllm_would_not_start_is_left_out_and_said(more: Body, fix: str) -> None:
    of = sd(adaptive="Always", **more)
    (found,) = problems(of)
    assert (found.field, fix in found.message) == ("spec.speculation.verification.adaptive", True)
    said = configuration(deployment(of))
    assert said is not None
    assert "enable_adaptive_verification" not in said


def test_always_needs_a_vllm_that_has_it() -> None:
    (found,) = errors(sd(adaptive="Always", engine={"image": "vllm:v0.31.0"}).spec)
    assert "0.32.0 or newer" in found.message


def test_the_arm_in_force_is_rendered_again_byte_for_byte() -> None:
    of = sd()
    before = deployment(of, arm=NONE)
    assert recorded_arm(before, of) == NONE
    assert deployment(of, before) == before
    upgraded = render(of, carry_over(before, of, Inputs(SCHEDULED, OperatorFacts("specpilot:2"))))
    assert before in upgraded


def test_the_way_back_renders_what_was_there_before() -> None:
    of = sd()
    first = deployment(of)
    assert deployment(of, deployment(of, first, arm=NONE), arm=SCHEDULE) == first


def test_another_spec_starts_with_its_own_arm() -> None:
    before, of = deployment(sd(), arm=NONE), sd(model={"name": "other"})
    assert recorded_arm(before, of) == SCHEDULE
    assert v.ANNOTATION_ARM not in deployment(of, before)["metadata"]["annotations"]


def test_an_opt_in_to_a_newer_rendering_keeps_the_arm() -> None:
    of = sd()
    before = deployment(of, arm=NONE)
    of.metadata.annotations[v.ANNOTATION_UPGRADE] = "now"
    assert recorded_arm(deployment(of, before), of) == NONE


@pytest.mark.parametrize("text", ["", "static", "nonsense"])
def test_an_annotation_that_names_no_arm_is_the_spec_s_own(text: str) -> None:
    of = sd()
    before = deployment(of, arm=NONE)
    before["metadata"]["annotations"][v.ANNOTATION_ARM] = text
    assert recorded_arm(before, of) == SCHEDULE


def test_pods_of_an_arm_without_a_schedule_measure_no_depths() -> None:
    of = sd("MTP")
    profiling = Profiling(ProfileIn.POD, profile_request(of.spec, ProfileIn.POD))
    names = [c["name"] for c in deployment(of, profiling=profiling)["spec"]["template"]["spec"]["containers"]]
    assert names == [v.ENGINE_CONTAINER, v.PROFILER_CONTAINER]
    body = deployment(of, profiling=profiling, arm=NONE)
    assert [c["name"] for c in body["spec"]["template"]["spec"]["containers"]] == [v.ENGINE_CONTAINER]


@pytest.mark.parametrize(("of", "arm"), [(sd(), ADAPTIVE), (sd(adaptive="Always"), None)], ids=["arm", "own"])
def test_adaptive_engines_from_before_caps_are_rendered_as_they_were(
    of: SpeculativeDeployment, arm: Arm | None
) -> None:
    before = render(of, Inputs(SCHEDULED, FACTS, revision="r1", arm=arm))[-1]
    found = configuration(before)
    assert found is not None
    assert "num_speculative_tokens_per_batch_size" not in found
    assert deployment(of, before) == before
    of.metadata.annotations[v.ANNOTATION_UPGRADE] = "now"
    anew = configuration(deployment(of, before))
    assert anew is not None
    assert anew["num_speculative_tokens_per_batch_size"] == [[1, 1024, 7]]


def test_depths_can_be_capped_at_every_batch_that_the_engine_admits() -> None:
    of = sd(engine={"args": ["--max-num-seqs", "48"]})
    found = configuration(deployment(of, arm=ADAPTIVE))
    assert found is not None
    assert found["num_speculative_tokens_per_batch_size"] == [[1, 48, 7]]
    assert capture_sizes(of.spec, ADAPTIVE) == ()


def test_data_parallel_engines_have_no_schedule_to_cap_by() -> None:
    found = configuration(deployment(sd(adaptive="Always", parallelism={"data": 2})))
    assert found is not None
    assert found["enable_adaptive_verification"] is True
    assert "num_speculative_tokens_per_batch_size" not in found


def test_caps_change_nothing_that_a_profile_is_known_by() -> None:
    assert "per_batch_size" not in cost_arguments(sd(adaptive="Always").spec)
