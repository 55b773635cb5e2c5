"""An upgrade of the operator, or a change that pods do not come from, leaves pods alone."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from specpilot.api import vocabulary as v
from specpilot.api.objects import SpeculativeDeployment
from specpilot.decide.arm import Kind
from specpilot.plan import flags, revision
from specpilot.plan.fingerprint import cost_arguments
from specpilot.plan.hashing import desired_hash
from specpilot.plan.inputs import Inputs, OperatorFacts, ProfileIn, Profiling
from specpilot.plan.profiling import profile_request
from specpilot.plan.render import render
from specpilot.plan.revision import Rendering, carry_over, recorded_arm, revision_for, spec_hash
from specpilot_engine.protocol import Schedule, Step, profiled_document

SCHEDULE = Schedule(1, (Step(8, 1),))
OLD, NEW = OperatorFacts("specpilot:1"), OperatorFacts("specpilot:2", pull_policy="Always")
Body = dict[str, Any]


def sd(annotations: dict[str, str] | None = None, **spec: Any) -> SpeculativeDeployment:
    body = {
        "model": {"name": "m"},
        "engine": {"image": "vllm:v0.33.0"},
        "speculation": {"method": "MTP"},
        **spec,
    }
    metadata = {"name": "one", "namespace": "ns", "uid": "u", "annotations": annotations or {}}
    return SpeculativeDeployment.parse({"metadata": metadata, "spec": body})


def plan(of: SpeculativeDeployment, inputs: Inputs, existing: Body | None, job: Body | None = None) -> Body:
    return {o["kind"]: o for o in render(of, carry_over(existing, of, inputs, job))}


def inputs(operator: OperatorFacts = OLD, where: ProfileIn = ProfileIn.NOWHERE, **more: Any) -> Inputs:
    request = profile_request(sd().spec, where) if where is not ProfileIn.NOWHERE else None
    return Inputs(SCHEDULE, operator, Profiling(where, request), **more)


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that renders pods in another way than the one before it did."""
    monkeypatch.setitem(revision.REVISIONS, "next", Rendering(user=2000, drain_seconds=600))


def test_the_first_rendering_is_the_newest_with_this_operators_image() -> None:
    made = plan(sd(), inputs(), None)["Deployment"]
    assert made["metadata"]["annotations"][v.ANNOTATION_REVISION] == revision.newest()
    assert made["metadata"]["annotations"][v.ANNOTATION_SPEC_HASH] == spec_hash(sd())


@pytest.mark.usefixtures("upgraded")
def test_an_upgrade_changes_nothing_at_all() -> None:
    old = replace(inputs(), revision="r1")
    before = {o["kind"]: o for o in render(sd(), old)}["Deployment"]
    assert plan(sd(), inputs(NEW), before)["Deployment"] == before


@pytest.mark.usefixtures("upgraded")
@pytest.mark.parametrize(
    "changed",
    [
        sd(speculation={"method": "MTP", "maxTokens": 5}),
        sd(engine={"image": "vllm:v0.33.1"}),
        sd({v.ANNOTATION_UPGRADE: "now"}),
    ],
)
def test_a_changed_spec_or_an_opt_in_renders_anew(changed: SpeculativeDeployment) -> None:
    before = {o["kind"]: o for o in render(sd(), replace(inputs(), revision="r1"))}["Deployment"]
    after = plan(changed, inputs(NEW), before)["Deployment"]
    pod = after["spec"]["template"]["spec"]
    assert after["metadata"]["annotations"][v.ANNOTATION_REVISION] == "next"
    assert pod["initContainers"][0]["image"] == "specpilot:2"
    assert pod["securityContext"]["runAsUser"] == 2000


@pytest.mark.usefixtures("upgraded")
def test_an_opt_in_counts_once() -> None:
    before = {
        o["kind"]: o for o in render(sd({v.ANNOTATION_UPGRADE: "now"}), replace(inputs(), revision="r1"))
    }
    again = plan(sd({v.ANNOTATION_UPGRADE: "now"}), inputs(NEW), before["Deployment"])["Deployment"]
    assert again["metadata"]["annotations"][v.ANNOTATION_REVISION] == "r1"
    later = plan(sd({v.ANNOTATION_UPGRADE: "2027-01"}), inputs(NEW), before["Deployment"])["Deployment"]
    assert later["metadata"]["annotations"][v.ANNOTATION_REVISION] == "next"


@pytest.mark.parametrize(
    "changed",
    [
        sd(tuning={"mode": "Observe"}),
        sd(profiling={"policy": "Never"}),
        sd(metrics={"source": "Scrape"}),
        sd(speculation={"method": "MTP", "maxTokens": 7}),  # the default, said
        sd(replicas=5),
    ],
)
def test_what_pods_do_not_come_from_keeps_their_template(changed: SpeculativeDeployment) -> None:
    before = plan(sd(), inputs(), None)["Deployment"]
    after = plan(changed, inputs(NEW), before)["Deployment"]
    assert after["spec"]["template"] == before["spec"]["template"]
    assert after["spec"]["replicas"] == changed.spec.replicas


def variables(**container: Any) -> Body:
    return {"spec": {"containers": [{"name": v.ENGINE_CONTAINER, **container}]}}


def made(of: SpeculativeDeployment, recorded: str, where: ProfileIn = ProfileIn.NOWHERE) -> Body:
    """The Deployment that an operator of revision `recorded` has made."""
    return {o["kind"]: o for o in render(of, replace(inputs(where=where), revision=recorded))}["Deployment"]


def line(deployment: Body) -> str:
    pod: Body = deployment["spec"]["template"]["spec"]
    engine = next(c for c in pod["containers"] if c["name"] == v.ENGINE_CONTAINER)
    return f"{' '.join(engine['args'])} grace {pod['terminationGracePeriodSeconds']}"


CAPTURES, DRAINS = "--cudagraph-capture-sizes 1 2 4", "--shutdown-timeout 120"
ON_CPU = variables(env=[{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"}])


@pytest.mark.parametrize(
    ("args", "template", "was", "becomes"),
    [
        (["-O0"], None, CAPTURES, ""),
        (["--optimization-level=0"], None, CAPTURES, ""),
        (["--enforce-e"], None, CAPTURES, ""),
        (["--max-num-s", "64"], None, "[257,1024,1]", "[64,64,"),
        (["--max-num-b", "300"], None, " 496 512 ", " 300 "),
        (["--shutdown-t", "50"], None, f"{DRAINS} ", "grace 80"),
        ([], ON_CPU, "[257,1024,1]", "[128,128,"),
    ],
)
def test_what_an_operator_has_learnt_to_read_plans_no_running_pod_anew(
    args: list[str], template: Body | None, was: str, becomes: str
) -> None:
    spec = {"engine": {"image": "vllm:v0.33.0", "args": args}, "podTemplate": template}
    of, opted = sd(**spec), sd({v.ANNOTATION_UPGRADE: "now"}, **spec)
    for recorded in ("r1", "r2"):
        before = made(of, recorded)
        assert was in line(before)
        assert plan(of, inputs(NEW), before)["Deployment"] == before
        anew = line(plan(opted, inputs(NEW), before)["Deployment"])
        assert was not in anew
        assert becomes in anew


def test_an_argument_that_was_always_read_counts_for_pods_of_every_revision() -> None:
    args = ["--max-num-seqs", "64", "-cc.cudagraph_mode=NONE", "--shutdown-timeout=50"]
    of = sd(engine={"image": "vllm:v0.33.0", "args": args})
    lines = {line(made(of, r)) for r in revision.REVISIONS}
    [only] = lines
    assert CAPTURES not in only
    assert "[64,64," in only
    assert only.endswith("grace 80")


def test_what_is_read_anew_takes_no_profile_from_pods_that_are_kept() -> None:
    for args in (["-O0"], ["-O3"], ["--max-num-s", "64"]):
        of = sd(engine={"image": "vllm:v0.33.0", "args": args})
        kept = made(of, "r2")
        words = cost_arguments(of.spec)
        ours = flags.parse(kept["spec"]["template"]["spec"]["containers"][0]["args"])
        for name in ("--speculative-config", "--cudagraph-capture-sizes"):
            found = flags.last(ours, name)
            assert found is not None
            assert " ".join([name, *found.values]) in words
        assert " ".join(args) in words


def test_pods_keep_the_arm_that_their_spec_was_read_to_ask_for() -> None:
    drafter = {"method": "DSpark", "draftModel": {"name": "d"}, "verification": {"adaptive": "Always"}}
    of = sd(speculation=drafter, podTemplate=ON_CPU)
    before = made(of, "r2")
    assert recorded_arm(before, of).kind is Kind.ADAPTIVE
    assert plan(of, inputs(NEW), before)["Deployment"] == before
    of.metadata.annotations[v.ANNOTATION_UPGRADE] = "now"
    assert recorded_arm(before, of).kind is Kind.SCHEDULE


def test_a_profiler_gets_no_more_variables_while_its_pod_runs() -> None:
    sources = [{"secretRef": {"name": "key"}}]
    of = sd(podTemplate=variables(envFrom=sources))
    before = made(of, "r2", ProfileIn.POD)
    assert "envFrom" not in before["spec"]["template"]["spec"]["containers"][1]
    assert plan(of, inputs(NEW), before)["Deployment"] == before
    anew = plan(of, inputs(where=ProfileIn.POD), None)["Deployment"]
    assert anew["spec"]["template"]["spec"]["containers"][1]["envFrom"] == sources


def test_a_revision_of_a_newer_operator_renders_as_the_newest_known() -> None:
    before = plan(sd(), inputs(), None)["Deployment"]
    before["metadata"]["annotations"][v.ANNOTATION_REVISION] = "r99"
    assert revision_for(before, sd()) == revision.newest()
    assert revision_for(None, sd()) == revision.newest()


def test_a_profiler_in_running_pods_stays_with_its_request_until_the_spec_changes() -> None:
    before = plan(sd(), inputs(where=ProfileIn.POD), None)["Deployment"]
    assert plan(sd(), inputs(NEW), before)["Deployment"] == before
    other = sd(profiling={"grid": {"batchSizes": [1]}, "where": "Pod"})
    wanted = Inputs(SCHEDULE, OLD, Profiling(ProfileIn.POD, profile_request(other.spec, ProfileIn.POD)))
    assert plan(other, wanted, before)["Deployment"]["spec"]["template"] == before["spec"]["template"]
    changed = sd(engine={"image": "vllm:v0.33.1"})
    assert len(plan(changed, inputs(), before)["Deployment"]["spec"]["template"]["spec"]["containers"]) == 1


@pytest.mark.parametrize("done", [True, False])
def test_pods_that_come_later_are_told_what_is_known_and_no_pod_is_rolled_for_it(done: bool) -> None:
    before = plan(sd(), inputs(where=ProfileIn.POD), None)["Deployment"]
    wanted = Inputs(SCHEDULE, NEW, Profiling(done=done))
    objects = render(sd(), carry_over(before, sd(), wanted))
    assert next(o for o in objects if o["kind"] == "Deployment") == before
    told = [o["data"] for o in objects if o["metadata"]["name"] == "one-profiled"]
    key = profile_request(sd().spec, ProfileIn.POD).key
    assert told == ([{"profiled.json": profiled_document(key)}] if done else [])
    volume = {"name": "specpilot-profiled", "configMap": {"name": "one-profiled", "optional": True}}
    assert volume in before["spec"]["template"]["spec"]["volumes"]


def test_where_no_pod_has_a_profiler_nothing_is_told() -> None:
    before = plan(sd(), inputs(), None)["Deployment"]
    objects = render(sd(), carry_over(before, sd(), Inputs(SCHEDULE, OLD, Profiling(done=True))))
    assert [o for o in objects if o["metadata"]["name"] == "one-profiled"] == []


def test_a_profiler_is_not_put_into_running_pods_but_a_job_may_come() -> None:
    before = plan(sd(), inputs(), None)["Deployment"]
    assert plan(sd(), inputs(where=ProfileIn.POD), before)["Deployment"] == before
    objects = plan(sd(), inputs(where=ProfileIn.JOB), before)
    assert objects["Deployment"] == before
    assert objects["Job"]["spec"]["template"]["spec"]["containers"][0]["name"] == v.PROFILER_CONTAINER


def test_a_job_that_runs_is_not_changed_by_an_upgrade() -> None:
    job = plan(sd(), inputs(where=ProfileIn.JOB), None)["Job"]
    assert plan(sd(), inputs(NEW, ProfileIn.JOB), None, job)["Job"] == job


def test_serving_pods_are_never_taken_away_to_wait_for_a_profile() -> None:
    wanted = replace(
        inputs(where=ProfileIn.JOB),
        profiling=replace(inputs(where=ProfileIn.JOB).profiling, hold_serving=True),
    )
    first = plan(sd(), wanted, None)["Deployment"]
    assert first["spec"]["replicas"] == 0
    assert plan(sd(), wanted, first)["Deployment"]["spec"]["replicas"] == 0
    serving = copy.deepcopy(first)
    serving["spec"]["replicas"] = 1
    assert plan(sd(), wanted, serving)["Deployment"]["spec"]["replicas"] == 1
    changed = sd(engine={"image": "vllm:v0.33.1"})
    assert plan(changed, wanted, serving)["Deployment"]["spec"]["replicas"] == 1


def test_devices_that_come_and_go_do_not_change_the_strategy() -> None:
    before = plan(sd(), inputs(surge=True), None)["Deployment"]
    assert plan(sd(), inputs(surge=False), before)["Deployment"] == before


def test_a_request_that_cannot_be_read_counts_as_none() -> None:
    pod = {
        "containers": [{"name": v.PROFILER_CONTAINER, "env": [{"name": "SPECPILOT_PROFILE", "value": "{"}]}]
    }
    assert revision.recorded_request(pod) is None
    assert revision.recorded_request({}) is None


def test_the_hash_is_of_everything_but_itself() -> None:
    for obj in render(sd(), inputs(where=ProfileIn.JOB)):
        assert obj["metadata"]["annotations"][v.ANNOTATION_HASH] == desired_hash(obj)
        other = copy.deepcopy(obj)
        other["metadata"]["labels"]["x"] = "y"
        assert desired_hash(other) != desired_hash(obj)


def test_equal_inputs_make_equal_objects_in_equal_order() -> None:
    assert repr(render(sd(), inputs())) == repr(render(sd(), inputs()))
    kinds = [o["kind"] for o in render(sd(), inputs(where=ProfileIn.JOB))]
    assert kinds[-1] == "Deployment"  # what its pods need comes first
