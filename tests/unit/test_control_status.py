"""Status and events: desired against effective, and what of a change is told."""

from __future__ import annotations

from typing import Any

from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.status import (
    ArmStatus,
    Condition,
    DesiredSpeculation,
    LastDecision,
    ScheduleStep,
    SpeculationStatus,
    SpeculativeDeploymentStatus,
)
from specpilot.api.vocabulary import Reason
from specpilot.control import read
from specpilot.control.acknowledge import Acknowledged
from specpilot.control.conditions import Facts, Finding, assess
from specpilot.control.observe import confirmed, tuning
from specpilot.control.profile_choice import Choice
from specpilot.control.rollout import Rollout
from specpilot.control.status import announcements, refused_status, status_of
from specpilot.control.step import Evidence, Taken
from specpilot.decide.decision import Decision
from specpilot.metrics.scrape import StateAnswer
from specpilot.plan.inputs import Profiling
from specpilot_engine.protocol import Budget, Exploration, Schedule, Step

NOW = "2026-01-01T00:00:00Z"
SCHEDULE = Schedule(5, (Step(16, 7), Step(64, 1)))
SERVING = Rollout(2, exists=True, updated=2, ready=2, total=2, complete=True)
CHOICE = Choice(Profiling(), None)


def answer(generation: int, tokens: int = 7, **more: Any) -> StateAnswer:
    schedule = Schedule(generation, (Step(16, tokens), Step(64, 1)))
    return StateAnswer(True, generation=generation, hash=schedule.hash, schedule=schedule.steps, **more)


def deployment(status: SpeculativeDeploymentStatus | None = None) -> SpeculativeDeployment:
    body = {
        "metadata": {"name": "flash", "namespace": "llm", "generation": 3},
        "spec": {"model": {"name": "m"}, "engine": {"image": "vllm:v0.33.0"}},
    }
    parsed = SpeculativeDeployment.parse(body)
    return parsed.model_copy(update={"status": status}) if status else parsed


def status(
    acknowledged: Acknowledged, before: SpeculativeDeploymentStatus | None = None, **facts: Any
) -> SpeculativeDeploymentStatus:
    return status_of(
        deployment(before), Facts(3, SERVING, **facts), (SCHEDULE, acknowledged), CHOICE, None, NOW
    )


def test_effective_is_what_engines_say_and_not_what_is_wanted() -> None:
    said = status(Acknowledged(2, 1, (answer(5), answer(4, tokens=3)))).speculation
    assert said is not None
    assert said.desired is not None
    assert said.effective is not None
    assert (said.desired.generation, said.effective.generation) == (5, 5)
    assert (said.effective.acknowledged, said.effective.pods) == (1, "1/2")
    assert said.summary == "7,1"


def test_an_older_schedule_stays_effective_until_the_first_engine_has_the_new_one() -> None:
    said = status(Acknowledged(2, 0, (answer(4, tokens=3), answer(4, tokens=3)))).speculation
    assert said is not None
    assert said.effective is not None
    assert (said.effective.generation, said.effective.pods, said.summary) == (4, "0/2", "3,1")


def test_a_restarted_operator_that_has_not_asked_yet_keeps_what_was_known() -> None:
    before = status(Acknowledged(2, 2, (answer(5), answer(5))))
    assert status(Acknowledged(2, 0, ()), before).speculation == before.speculation


def test_without_a_ready_pod_nothing_is_effective() -> None:
    before = status(Acknowledged(2, 2, (answer(5), answer(5))))
    said = status(Acknowledged(0, 0, ()), before).speculation
    assert said is not None
    assert said.effective is None


def test_a_decision_stays_until_there_is_another() -> None:
    decision = LastDecision(time=NOW, reason="LoadShift", predicted_gain="0.080")
    first = status_of(
        deployment(), Facts(3, SERVING), (SCHEDULE, Acknowledged(0, 0, ())), CHOICE, decision, NOW
    )
    assert status(Acknowledged(0, 0, ()), first).last_decision == decision


def test_an_object_that_cannot_be_read_keeps_all_but_its_conditions() -> None:
    before = status(Acknowledged(2, 2, (answer(5), answer(5))))
    after = refused_status(before, Facts(4, SERVING), NOW)
    assert (after.observed_generation, after.speculation) == (4, before.speculation)


def condition(type_: str, status_: str, reason: Reason, message: str = "") -> Condition:
    return Condition.model_validate({"type": type_, "status": status_, "reason": reason, "message": message})


def test_what_a_person_should_know_is_told_once_with_its_weight() -> None:
    before = [condition("MetricsAvailable", "True", Reason.PROMETHEUS)]
    lost = [condition("MetricsAvailable", "False", Reason.METRICS_UNAVAILABLE, "main does not answer")]
    assert announcements(before, lost) == [("Warning", Reason.METRICS_UNAVAILABLE, "main does not answer")]
    assert announcements(lost, lost) == []
    assert announcements(lost, before)[0][:2] == ("Normal", Reason.PROMETHEUS)


def test_the_steps_of_a_rollout_and_first_good_news_are_no_events() -> None:
    after = [
        condition("Ready", "False", Reason.ROLLING_OUT),
        condition("Degraded", "False", Reason.AS_EXPECTED),
        condition("Speculating", "Unknown", Reason.NO_TRAFFIC),
        condition("Tuned", "True", Reason.HOLDING),
    ]
    assert announcements([], after) == []


def taken(reason: Reason, steps_changed: bool = False) -> Taken:
    decision = Decision(steps_changed, SCHEDULE.steps, Exploration(), reason, "", steps_changed=steps_changed)
    return Taken(Evidence(), decision, None, {}, {})


def test_every_way_of_holding_still_is_one_word() -> None:
    reasons = (Reason.HOLDING, Reason.BELOW_MINIMUM_GAIN, Reason.DWELLING)
    assert {tuning("Apply", taken(reason), None) for reason in reasons} == {Finding(Reason.HOLDING)}


def test_waiting_for_evidence_forgets_nothing() -> None:
    before = Finding(Reason.HOLDING)
    assert tuning("Apply", taken(Reason.WAITING_FOR_EVIDENCE), before) == before
    assert tuning("Apply", taken(Reason.WAITING_FOR_EVIDENCE), None) is None


def test_modes_that_change_nothing_say_so() -> None:
    better = taken(Reason.BETTER_SCHEDULE, steps_changed=True)
    observed, recommended = tuning("Observe", better, None), tuning("Recommend", better, None)
    assert observed is not None
    assert recommended is not None
    assert (observed.reason, recommended.reason) == (Reason.OBSERVING, Reason.RECOMMENDED)


def test_the_word_of_a_mode_ends_with_it_even_without_traffic() -> None:
    waiting = taken(Reason.WAITING_FOR_EVIDENCE)
    for before, mode in (
        (Reason.OBSERVING, "Apply"),
        (Reason.OBSERVING, "Recommend"),
        (Reason.RECOMMENDED, "Apply"),
    ):
        assert tuning(mode, waiting, Finding(before, "of that mode")) == Finding(Reason.WAITING_FOR_EVIDENCE)
    recommended = Finding(Reason.RECOMMENDED, "a better schedule is known: see lastDecision")
    assert tuning("Recommend", waiting, recommended) == recommended


def test_a_word_of_another_versions_is_left_as_it_stands_and_is_no_news() -> None:
    for status in ("True", "False", "Unknown"):
        theirs = Condition(
            type="Profiled",
            status=status,
            reason="WordOfTheFuture",
            observed_generation=2,
            last_transition_time=NOW,
        )
        kept = assess(Facts(3, SERVING), [theirs], NOW)
        assert theirs in kept
        told = announcements([], kept)
        assert told == announcements([theirs], kept)
        assert [reason for _, reason, _ in told] == ["Serving"]


def test_engines_that_do_something_else_are_heard() -> None:
    good = Finding(Reason.HOLDING)
    waiting = Acknowledged(2, 1, (answer(5), answer(4, file_error="not JSON")))
    assert confirmed(good, waiting, overdue=False) == good
    overdue = confirmed(good, waiting, overdue=True)
    assert overdue is not None
    assert overdue.reason is Reason.AWAITING_ACKNOWLEDGEMENT
    assert overdue.message == "1 of 2 ready pods run the schedule: not JSON"
    stock = confirmed(good, Acknowledged(1, 0, (StateAnswer(False, "no lookup"),)), overdue=False)
    assert stock is not None
    assert stock.reason is Reason.LIVE_TUNING_OFF
    assert "no lookup" in stock.message


def test_generations_never_go_back_even_without_the_config_map() -> None:
    body = {"status": {"speculation": {"desired": {"generation": 7}}}}
    config_map = {"data": {"schedule.json": SCHEDULE.dump()}}
    assert read.last_generation(config_map, body) == 7
    assert read.last_generation(config_map, {}) == 5
    assert read.last_generation(None, body) == 7
    assert read.last_generation(None, {}) == 0


def test_a_config_map_that_somebody_edited_holds_no_schedule() -> None:
    text = SCHEDULE.dump()
    assert read.schedule_in({"data": {"schedule.json": text}}) == SCHEDULE
    for broken in (text.replace('"tokens":7', '"tokens":6'), "", "{}", text[:-5]):
        assert read.schedule_in({"data": {"schedule.json": broken}}) is None
    assert read.schedule_in(None) is None


def test_depths_that_were_wanted_outlive_their_config_map() -> None:
    before = status(Acknowledged(1, 1, (answer(5),)))
    assert read.wanted(before, 6, Budget(0.01)) == Schedule(6, SCHEDULE.steps, budget=Budget(0.01))


def test_a_status_without_usable_depths_brings_none_back() -> None:
    falling = DesiredSpeculation(generation=5, schedule=[ScheduleStep(up_to=n, tokens=1) for n in (64, 16)])
    for desired in (None, DesiredSpeculation(generation=5), falling):
        before = SpeculativeDeploymentStatus(speculation=SpeculationStatus(desired=desired))
        assert read.wanted(before, 6, Budget()) is None
    static = status(Acknowledged(1, 1, (answer(5),))).model_copy(
        update={"arm": ArmStatus(in_force="static=0")}
    )
    assert read.wanted(static, 6, Budget()) is None
    assert read.wanted(SpeculativeDeploymentStatus(), 1, Budget()) is None


def test_a_schedule_fits_the_depths_that_an_engine_can_run() -> None:
    assert read.fits(SCHEDULE, (0, 1, 7))
    assert not read.fits(SCHEDULE, (0, 1, 3))


def test_the_image_digest_is_read_from_engines_that_are_containers_or_sidecars() -> None:
    spec = {"name": "vllm", "image": "vllm:v0.33.0"}
    runs = {"name": "vllm", "imageID": "docker.io/vllm/vllm-openai@sha256:abc"}
    container = {"spec": {"containers": [spec]}, "status": {"containerStatuses": [runs]}}
    sidecar = {"spec": {"initContainers": [spec]}, "status": {"initContainerStatuses": [runs]}}
    assert read.engine_image(container) == read.engine_image(sidecar) == ("vllm:v0.33.0", "sha256:abc")
    assert read.engine_image({"spec": {"containers": [spec]}}) == ("vllm:v0.33.0", "")
