"""What is observed of arms, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.arms_world import PROFILE

from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.vocabulary import Reason
from specpilot.control import arms
from specpilot.control.acknowledge import Acknowledged
from specpilot.control.conditions import Finding
from specpilot.control.live import Live
from specpilot.control.rollout import Rollout, broken, startup_seconds
from specpilot.control.step import Evidence, settings, step, watch
from specpilot.decide.arm import NONE, SCHEDULE, Arm, Kind
from specpilot.decide.arms_memory import ArmMemory, Going
from specpilot.decide.memory import Memory
from specpilot.estimate.counters import Cell, Counters
from specpilot.metrics.scrape import StateAnswer
from specpilot.plan.revision import spec_hash
from specpilot_engine.protocol import Schedule, Step

SCHEDULED = Schedule(4, (Step(16, 7), Step(64, 1)))
STATIC, ADAPTIVE = Arm(Kind.STATIC, 3), Arm(Kind.ADAPTIVE, 7)
DONE, HALF = Rollout(2, True, 2, 2, 2, complete=True), Rollout(2, True, 1, 1, 2)
Body = dict[str, Any]


def sd(adaptive: str = "Auto", **tuning: Any) -> SpeculativeDeployment:
    verification = {"adaptive": adaptive}
    spec = {
        "model": {"name": "m"},
        "engine": {"image": "vllm:v0.33.0"},
        "speculation": {"method": "DSpark", "maxTokens": 7, "verification": verification},
        "tuning": tuning,
    }
    return SpeculativeDeployment.parse({"metadata": {"name": "one", "namespace": "ns"}, "spec": spec})


def pod(started: str, ready: str = "", waiting: str = "") -> Body:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ready}] if ready else []
    state = {"waiting": {"reason": waiting}} if waiting else {"running": {}}
    return {
        "metadata": {"name": "p", "creationTimestamp": started},
        "status": {
            "startTime": started,
            "conditions": conditions,
            "containerStatuses": [{"name": "vllm", "state": state}],
        },
    }


def test_the_start_up_time_is_that_of_the_middle_pod_that_is_ready() -> None:
    pods = [
        pod("2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z"),
        pod("2026-01-01T00:00:00Z", "2026-01-01T00:01:40Z"),
        pod("2026-01-01T00:00:00Z", "2026-01-01T09:00:00Z"),  # was not ready for a while
        pod("2026-01-01T00:00:00Z"),
    ]
    assert startup_seconds(pods) == 100.0
    assert startup_seconds(pods[3:]) is None


def test_only_a_pod_with_the_arguments_of_the_template_breaks_an_arm() -> None:
    def with_args(body: Body, *args: str) -> Body:
        return {**body, "spec": {"containers": [{"name": "side"}, {"name": "vllm", "args": list(args)}]}}

    crashing = pod("2026-01-01T00:00:00Z", waiting="CrashLoopBackOff")
    starting = pod("2026-01-01T00:00:00Z", waiting="PodInitializing")
    deployment = {"spec": {"template": with_args({}, "--new")}}
    assert broken([with_args(crashing, "--old"), with_args(starting, "--new")], deployment) == ""
    assert "keeps failing" in broken([with_args(starting, "--new"), with_args(crashing, "--new")], deployment)


@pytest.mark.parametrize(
    ("tuning", "looks"),
    [
        ({"actuator": "Restart"}, [True, True]),
        ({"actuator": "Restart", "mode": "Recommend"}, [True, False]),
        ({"actuator": "Auto"}, [True, False]),
        ({"actuator": "Live"}, [False, False]),
        ({"actuator": "Restart", "mode": "Observe"}, [False, False]),
    ],
    ids=str,
)
def test_what_can_only_be_told_is_looked_at_now_and_then(tuning: Body, looks: list[bool]) -> None:
    looked = [Live("u", arms_due=due) for due in (0.0, 1120.0)]
    assert [arms.due(sd(**tuning), live, SCHEDULE, 1100.0) for live in looked] == looks


@pytest.mark.parametrize(
    ("tuning", "back", "arm"),
    [
        ({"actuator": "Restart"}, False, NONE),
        ({"actuator": "Live"}, False, None),
        ({"actuator": "Restart", "mode": "Observe"}, False, None),
        ({"actuator": "Live"}, True, NONE),  # whoever has gone too far may always go back
    ],
)
def test_a_restart_that_was_decided_still_needs_leave(tuning: Body, back: bool, arm: Arm | None) -> None:
    """The operator may have died between the two."""
    of = sd(**tuning)
    memory = ArmMemory(spec_hash(of), next=(NONE, 0.1), back=back)
    assert arms.wanted(of, ArmMemory.from_json(memory.to_json())) == arm
    assert arms.wanted(of, replace(memory, spec="another")) is None


def test_an_arm_that_is_in_force_is_always_looked_at() -> None:
    assert arms.due(sd(actuator="Live"), Live("u"), NONE, 0.0)


def test_while_pods_of_two_arms_serve_nothing_is_tuned() -> None:
    changed = ArmMemory(reason=Reason.ARM_CHANGED)
    assert arms.mixed(changed, HALF)
    assert not arms.mixed(changed, DONE)
    assert not arms.mixed(ArmMemory(reason=Reason.ARM_RECOMMENDED), HALF)
    assert arms.tuned(sd(), ArmMemory(), SCHEDULE, HALF)
    assert not arms.tuned(sd(), changed, SCHEDULE, HALF)
    assert not arms.tuned(sd(), changed, STATIC, DONE)
    assert not arms.tuned(sd("Always"), ArmMemory(), ADAPTIVE, DONE)


def test_what_engines_without_a_schedule_say_is_held_against_their_depth() -> None:
    answers = (
        StateAnswer(False, generation=0, schedule=(Step(64, 3),)),
        StateAnswer(False, generation=0, schedule=(Step(64, 7),)),
    )
    wanted, said = arms.spoken(STATIC, SCHEDULED, Acknowledged(2, 0, answers))
    assert (wanted.generation, wanted.steps) == (4, (Step(64, 3),))
    assert (said.ready, said.current) == (2, 1)
    assert [a.generation for a in said.answers] == [4, 0]
    assert arms.spoken(SCHEDULE, SCHEDULED, Acknowledged(2, 1, answers)) == (
        SCHEDULED,
        Acknowledged(2, 1, answers),
    )


def test_tuned_says_what_becomes_of_an_arm() -> None:
    rolling = ArmMemory(in_force=NONE, going=Going(SCHEDULE, 1.0, 0.1))
    judged = ArmMemory(in_force=NONE, going=Going(SCHEDULE, 1.0, 0.1, ready_at=2.0))
    assert arms.finding(sd(), rolling, NONE).message == "pods are replaced one by one: no speculation"
    assert "is measured" in arms.finding(sd(), judged, NONE).message
    assert arms.finding(sd(), ArmMemory(), NONE) == Finding(
        Reason.HOLDING, "engines run with no speculation: see status.arm"
    )
    assert "Always" in arms.finding(sd("Always"), ArmMemory(), ADAPTIVE).message


def test_status_speaks_of_arms_only_where_there_is_something_to_say() -> None:
    assert arms.arm_status(sd(), ArmMemory(), SCHEDULE) is None
    better = ArmMemory(told=NONE, reason=Reason.ARM_RECOMMENDED, why="w")
    assert arms.arm_status(sd(), replace(better, spec="of another spec"), SCHEDULE) is None
    told = arms.arm_status(sd(), replace(better, spec=spec_hash(sd())), SCHEDULE)
    assert told is not None
    assert told.to_json() == {
        "inForce": "schedule",
        "better": "none",
        "reason": "ArmRecommended",
        "message": "w",
    }
    always = arms.arm_status(sd("Always"), ArmMemory(), ADAPTIVE)
    assert always is not None
    assert (always.in_force, always.reason) == ("adaptive-7", "ArmFixed")


def test_the_memory_of_arms_is_kept_only_where_there_is_one() -> None:
    assert arms.data(ArmMemory(spec="abc", since=5.0)) == {}
    memory = ArmMemory(spec="abc", told=NONE)
    assert arms.memory_in({"data": dict(arms.data(memory))}).told == NONE
    assert arms.memory_in(None) == ArmMemory()


def counters(at: float, steps: float, drafted: float, accepted: float) -> Counters:
    cell = Cell(steps, steps * 0.02, steps * 4, steps * 8, steps * 4 * 100)
    return Counters("life", at, {(3, 4): cell}, (drafted,) * 3, (accepted,) * 3, all_steps=steps)


@pytest.mark.parametrize(("drafts", "load", "survival"), [(True, 1, 3), (False, 1, 0), (None, 0, 0)])
def test_engines_without_a_schedule_teach_load_and_survival_but_no_step_times(
    drafts: bool | None, load: int, survival: int
) -> None:
    to = settings(sd().spec, SCHEDULED)
    first = watch(Evidence(), {("ns", "p"): counters(0.0, 0, 0, 0)}, to, drafts)
    taken = watch(first.evidence, {("ns", "p"): counters(30.0, 1500, 6000, 3000)}, to, drafts)
    memory = taken.evidence.memory
    assert len(taken.windows) == 1
    assert (len(memory.load.seconds), len(memory.survival.drafted)) == (load, survival)
    assert memory.cost == Memory().cost
    assert (taken.schedule, taken.decision.change) == (None, False)
    tuned = step(first.evidence, {("ns", "p"): counters(30.0, 1500, 6000, 3000)}, PROFILE, to, True, 30.0)
    assert tuned.windows == taken.windows
    assert tuned.evidence.memory.cost.cells
