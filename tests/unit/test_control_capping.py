"""The part of a tick that sees to caps on depth, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.arms_world import PROFILE
from tests.unit.test_control_arms import pod, sd

from specpilot.api.status import (
    ArmStatus,
    DesiredSpeculation,
    ScheduleStep,
    SpeculationStatus,
    SpeculativeDeploymentStatus,
)
from specpilot.api.vocabulary import Reason
from specpilot.control import arms, capping
from specpilot.control.acknowledge import Acknowledged
from specpilot.control.conditions import Finding
from specpilot.control.keep import recall
from specpilot.control.live import Live, Parsed
from specpilot.control.measuring import Gathered
from specpilot.control.profile_choice import Choice
from specpilot.control.reconcile import Reconciler
from specpilot.control.rollout import Rollout
from specpilot.control.step import Evidence, Taken, settings, step
from specpilot.control.store import Store
from specpilot.decide import arms_worth
from specpilot.decide.arm import NONE, SCHEDULE, Arm, Kind
from specpilot.decide.arms_memory import ArmMemory, Seen
from specpilot.decide.caps_memory import CapMemory
from specpilot.estimate.counters import Cell, Counters, TrialCount
from specpilot.estimate.windows import Window
from specpilot.metrics.scrape import StateAnswer
from specpilot.plan.inputs import Profiling
from specpilot.plan.revision import spec_hash
from specpilot_engine.protocol import Caps, Pairs, Schedule, Step, Trial

ARM = Arm(Kind.ADAPTIVE, 7, 8192)
DONE = Rollout(2, True, 2, 2, 2, complete=True)
SCHEDULED = Schedule(4, (Step(16, 7), Step(256, 1)))
SETTLED = Caps((Step(128, 7), Step(256, 0)))
ON_TRIAL = Caps((Step(32, 7), Step(64, 3), Step(256, 7)), Trial((Step(256, 7),), 8, 100))
POD = ("ns", "p")


def counters(at: float, trial: TrialCount | None = None, live: bool = True, depth: int = 7) -> Counters:
    """At 64 requests, of an engine that says what it can."""
    steps = at * 40
    cell = Cell(steps, steps * 0.025, steps * 64, steps * 160, steps * 64 * 100)
    trial = trial or TrialCount()
    reason = "" if live else "vLLM runs without a depth schedule"
    return Counters(
        "life", at, {(depth, 64): cell}, all_steps=steps, live=live, live_reason=reason, trial=trial
    )


def ticks(live: Live, schedule: Schedule, count: int, /, mode: str = "Apply", **how: Any) -> list[Taken]:
    """So many ticks of half a minute, each on what the one before has published."""
    of, evidence, found = sd(mode=mode), live.evidence or Evidence(), []
    to = settings(of.spec, schedule)
    for i in range(count):
        now = {POD: counters(30.0 * i, **how)}
        taken, live.caps = capping.tick(
            of, live, ARM, DONE, evidence, now, (), replace(to, in_force=schedule), 1e6 + 30 * i
        )
        evidence, schedule = taken.evidence, taken.schedule or schedule
        found.append(taken)
    return found


def test_a_cap_is_tried_and_the_tuners_own_schedule_waits_unchanged() -> None:
    live = Live("u")
    *_, last = (t for t in ticks(live, SCHEDULED, 8) if t.schedule is not None)
    assert last.schedule is not None
    assert (last.schedule.generation, last.schedule.steps, last.schedule.trial) == (5, SCHEDULED.steps, None)
    assert last.schedule.caps is not None
    assert last.schedule.caps.steps == ON_TRIAL.steps
    assert live.caps.of == f"{spec_hash(sd())}/{ARM}"
    said = "at most 3 drafts instead of 7 at 33 to 64 requests"
    assert (last.decision.reason, last.decision.steps_changed) == ("Verifying", True)
    assert last.decision.message.startswith(said)


@pytest.mark.parametrize(
    "how", [{"live": False}, {"mode": "Observe"}, {"mode": "Recommend"}], ids=lambda how: str(how)
)
def test_without_means_or_leave_no_cap_is_tried(how: dict[str, Any]) -> None:
    assert [t for t in ticks(Live("u"), SCHEDULED, 20, **how) if t.schedule is not None] == []


def test_while_pods_are_replaced_or_another_arm_is_decided_no_cap_is_tried() -> None:
    live = Live("u", arms=ArmMemory(next=(ARM, 0.1)))
    assert all(t.schedule is None for t in ticks(live, SCHEDULED, 20))


def test_what_the_trial_measured_is_kept_or_undone_whatever_the_mode_is_by_now() -> None:
    schedule = replace(SCHEDULED, caps=ON_TRIAL)
    better = TrialCount(4, Pairs(30, 30 * 0.1, 30 * 0.0101), running=False)
    worse = TrialCount(4, Pairs(30, -30 * 0.1, 30 * 0.0101), running=False)
    for mode in ("Apply", "Observe"):
        kept = ticks(Live("u"), schedule, 2, mode=mode, trial=better)[-1]
        undone = ticks(Live("u"), schedule, 2, mode=mode, trial=worse)[-1]
        assert kept.schedule == replace(schedule, generation=5, caps=Caps(ON_TRIAL.steps))
        assert undone.schedule == replace(schedule, generation=5, caps=Caps((Step(256, 7),)))
        assert (kept.decision.reason, undone.decision.reason) == ("GainConfirmed", "ChangeUndone")
        assert kept.decision.measured is not None
        assert kept.decision.measured.gain == pytest.approx(0.105, abs=0.001)


def test_status_says_what_vllm_sizes_and_up_to_where_it_is_capped() -> None:
    live, of = Live("u"), sd("Always")
    capped = replace(SCHEDULED, caps=SETTLED)
    found = capping.finding(of, live, live.arms, ARM, capped, {POD: counters(30.0)})
    said = "vLLM sizes what is verified, of at most 7 drafts up to 128 requests, then 0"
    assert (found.reason, found.message) == (Reason.HOLDING, said)
    assert said in capping.finding(sd(), live, live.arms, ARM, capped, {}).message
    trying = capping.finding(of, live, live.arms, ARM, replace(capped, caps=ON_TRIAL), {})
    assert trying.reason == Reason.VERIFYING


def test_status_says_that_engines_cannot_be_capped_and_goes_on_saying_it_when_nothing_is_heard() -> None:
    live, of = Live("u"), sd("Always")
    found = capping.finding(of, live, live.arms, ARM, SCHEDULED, {POD: counters(30.0, live=False)})
    assert "of 7 drafts; engines cannot cap them live (vLLM runs without" in found.message
    live.tuning, live.arms_spoke = found, True
    for heard in ({}, {POD: Counters("life", 60.0, generated=1e6)}):
        assert capping.finding(of, live, live.arms, ARM, SCHEDULED, heard) == found
    live.tuning = Finding(Reason.VERIFYING, "pods are replaced one by one")  # what is over is not said again
    assert capping.finding(of, live, live.arms, ARM, SCHEDULED, {}).reason == Reason.HOLDING


def test_the_status_of_depths_is_that_of_the_caps() -> None:
    capped = replace(SCHEDULED, caps=SETTLED)
    current = StateAnswer(True, generation=4, hash=capped.hash, schedule=SETTLED.steps)
    behind = StateAnswer(True, generation=3, hash="x", schedule=(Step(256, 7),))
    wanted, said = arms.spoken(ARM, capped, Acknowledged(2, 1, (current, behind)))
    assert (wanted.generation, wanted.steps) == (4, SETTLED.steps)
    assert (said.current, [a.generation for a in said.answers]) == (1, [4, 3])
    stock = StateAnswer(False, generation=0, schedule=(Step(256, 7),))
    assert arms.spoken(ARM, SCHEDULED, Acknowledged(1, 0, (stock,)))[1].current == 1
    assert arms.spoken(ARM, capped, Acknowledged(1, 0, (stock,)))[1].current == 0


def test_the_tuner_keeps_caps_in_the_file_for_when_the_arm_comes_back() -> None:
    to = settings(sd().spec, replace(SCHEDULED, caps=SETTLED))
    evidence, schedule = Evidence(), None
    for i in range(12):
        taken = step(evidence, {POD: counters(30.0 * i)}, PROFILE, to, True, 1e6 + 30 * i)
        evidence, schedule = taken.evidence, schedule or taken.schedule
    assert schedule is not None
    assert schedule.caps == SETTLED


@pytest.mark.parametrize(("caps", "counted"), [(None, 7), (SETTLED, 0), (ON_TRIAL, 7)], ids=str)
def test_an_arm_is_judged_by_what_runs_under_its_caps(caps: Caps | None, counted: int) -> None:
    """Steps of a cap on trial are not its own, as exploring ones are not a schedule's."""
    batch = 200 if caps == SETTLED else 64
    edge = 256 if caps == SETTLED else 64
    to = settings(sd().spec, replace(SCHEDULED, caps=caps))
    evidence = ticks(Live("u"), SCHEDULED, 2)[-1].evidence.memory
    view = arms_worth.view(evidence, PROFILE, to, ARM, True)
    seen = {}
    for depth in (0, 3, 7):
        cell = Cell(1000, 25.0, 1000 * batch, 2500 * batch)
        window = Window("life", 0.0, 30.0, {(depth, edge): cell})
        seen[depth] = arms_worth.learn({}, ARM, view, [window])[1]
    assert seen == {depth: float(depth == counted) for depth in (0, 3, 7)}


OF_DEPTHS = replace(SCHEDULED, trial=Trial((Step(256, 1),), 8, 100))


@pytest.mark.parametrize(
    ("arm", "schedule", "expected"),
    [
        (ARM, replace(SCHEDULED, caps=ON_TRIAL), True),
        (ARM, replace(SCHEDULED, caps=SETTLED), False),
        (ARM, OF_DEPTHS, False),
        (SCHEDULE, OF_DEPTHS, True),
        (SCHEDULE, replace(SCHEDULED, caps=ON_TRIAL), False),
        (Arm(Kind.STATIC, 3), replace(OF_DEPTHS, caps=ON_TRIAL), False),
        (NONE, replace(OF_DEPTHS, caps=ON_TRIAL), False),
    ],
    ids=str,
)
def test_only_a_trial_of_the_arm_in_force_is_waited_for(arm: Arm, schedule: Schedule, expected: bool) -> None:
    """A spec that changes in the middle of one puts another arm in force, and leaves the trial in the file."""
    assert arms.alternates(arm, schedule) == expected
    if arm == ARM:
        found = capping.finding(sd("Always"), Live("u"), ArmMemory(), ARM, schedule, {POD: counters(30.0)})
        assert found.reason == (Reason.VERIFYING if expected else Reason.HOLDING)


@pytest.mark.parametrize("caps", [SETTLED, ON_TRIAL], ids=["settled", "on trial"])
def test_a_cap_that_was_on_trial_keeps_no_other_arm_in_force(caps: Caps) -> None:
    of = sd(mode="Apply", actuator="Restart")
    live = Live("u", choice=Choice(Profiling(), None))
    seen = {NONE: {64: Seen(1e4, 0.0)}}
    live.arms = ArmMemory(spec_hash(of), in_force=NONE, since=1.0, looks=100, seen=seen, startup=60.0)
    to = settings(of.spec, replace(SCHEDULED, caps=caps))
    taken = ticks(Live("u"), SCHEDULED, 2)[-1]
    _, turn = arms.look(
        of,
        live,
        arms.Engines(NONE, DONE, None, [pod("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z")]),
        taken,
        to,
        1e6,
    )
    assert turn is not None
    assert turn.reason == Reason.ARM_CHANGED  # what drafts are worth was not seen for days


@pytest.mark.parametrize(
    ("adaptive", "expected"), [(True, SETTLED), (False, None)], ids=["adaptive", "scheduled"]
)
def test_caps_outlive_their_config_map(adaptive: bool, expected: Caps | None) -> None:
    steps = [ScheduleStep(up_to=step.up_to, tokens=step.tokens) for step in SETTLED.steps]
    desired = DesiredSpeculation(generation=9, schedule=steps, adaptive=adaptive)
    status = SpeculativeDeploymentStatus(
        speculation=SpeculationStatus(desired=desired), arm=ArmStatus(in_force=str(ARM))
    )
    of = sd("Always").model_copy(update={"status": status})
    body = {"metadata": {"uid": "u", "generation": 1}, "status": status.to_json()}
    nothing: Any = None
    reconciler = Reconciler(nothing, Store(), nothing, nothing, nothing, nothing)
    live = Live("u", parsed=Parsed("1", of))
    found, is_new = reconciler._schedule(
        Gathered(("ns", "one"), body, of, live, {}, []), Choice(Profiling(), None)
    )
    assert (found.generation, found.caps, is_new) == (10, expected, True)
    assert all(step.tokens in (0, 7) for step in found.steps)  # its depths wait, as at the start


def test_what_is_remembered_of_caps_comes_back_with_the_tuners_memory() -> None:
    memory = CapMemory("spec/arm", 5.0, 9.0, fruitless={64: 2})
    live = Live("u")
    recall(live, {"data": dict(capping.data(memory))})
    assert live.caps == memory
    assert live.kept == (live.arms.decided, live.caps.decided)
    assert capping.data(CapMemory()) == {}
