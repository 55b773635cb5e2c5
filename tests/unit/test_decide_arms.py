"""Which arm engines are restarted with, played against a world in which every arm's effect is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.arms_world import ADAPTIVE, DEPTHS, DWELL, PROFILE, STARTUP, STATIC_3, TICK, World

from specpilot.decide import arms_constants as a
from specpilot.decide.arm import NONE, SCHEDULE, Arm, Kind, parse
from specpilot.decide.arms import Situation, decide
from specpilot.decide.arms_memory import ArmMemory, Barred, Going, Seen
from specpilot.decide.arms_worth import learn, prior, view
from specpilot.decide.settings import Settings
from specpilot.estimate.load import LoadMemory
from specpilot_engine.protocol import Schedule, Step

HOUR = 3600.0
ARMS = st.sampled_from([SCHEDULE, NONE, STATIC_3, ADAPTIVE, Arm(Kind.ADAPTIVE, 7, 16384)])
NUMBERS = st.floats(-1e3, 1e3, allow_nan=False).map(lambda x: round(x, 3))


def test_a_hopeless_drafter_is_left_out_and_stays_out_once_that_is_measured() -> None:
    world = World({NONE: 0.12})
    world.run(2 * HOUR)
    assert world.reasons == ["ArmChanged", "ArmKept"]
    assert world.in_force == NONE
    left, kept = (at - 1e6 for at, _ in world.turns)
    assert a.DWELLS * DWELL <= left <= a.DWELLS * DWELL + 60
    assert kept - left >= a.DWELLS * DWELL
    measured = world.turns[1][1].measured
    assert measured is not None
    mean, deviation = measured
    assert abs(mean - 0.12) < 2.5 * deviation < 0.06


def test_replicas_add_evidence_and_forget_no_faster_than_one() -> None:
    world = World()
    world.run(2 * TICK)
    known = view(world.memory, PROFILE, Settings(DEPTHS, 128, world.schedule), SCHEDULE, True)
    window = world.window()
    (one, told), (ten, told_by_ten) = (
        learn({SCHEDULE: {16: Seen(1000.0, 0.1)}}, SCHEDULE, known, [window] * n) for n in (1, 10)
    )
    keep = 0.5 ** (TICK / a.HALF_LIFE)
    new = one[SCHEDULE][16].precision - 1000 * keep
    assert (told, told_by_ten) == (1, 1)
    assert ten[SCHEDULE][16].precision == pytest.approx(1000 * keep + 10 * new)


@pytest.mark.parametrize("seconds", [30.0, 600.0])
def test_looks_count_whole_however_far_apart(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr("tests.unit.arms_world.TICK", seconds)
    world = World({NONE: 0.12})
    world.run(4 * HOUR)
    assert world.reasons[0] == "ArmChanged"
    left = world.turns[0][0] - 1e6
    assert left == pytest.approx(max(a.DWELLS * DWELL, a.LEAST_LOOKS * seconds), abs=2 * seconds)


def test_an_arm_that_measures_worse_is_undone_early_and_not_tried_again() -> None:
    world = World({NONE: -0.06})
    world.run(12 * HOUR)
    assert world.reasons == ["ArmChanged", "ArmUndone"]
    assert world.history == [NONE, SCHEDULE]
    assert world.turns[1][0] - world.turns[0][0] < a.DWELLS * DWELL
    assert [b.arm for b in world.arms.barred] == [NONE]


def test_an_undone_arm_is_tried_again_at_another_load() -> None:
    world = World({NONE: -0.06})
    world.run(2 * HOUR)
    world.batch, world.effect = 64, {NONE: 0.15}
    world.run(3 * HOUR)
    assert world.reasons == ["ArmChanged", "ArmUndone", "ArmChanged", "ArmKept"]


def test_pods_that_do_not_start_go_back_at_once_and_for_good() -> None:
    world = World({NONE: 0.2}, starts=lambda arm: arm != NONE)
    world.run(6 * HOUR)
    assert world.reasons == ["ArmChanged", "ArmFailed"]
    assert world.history == [NONE, SCHEDULE]
    assert "it keeps failing" in world.arms.why
    assert world.turns[1][0] - world.turns[0][0] <= 60


def test_a_rollout_that_moves_is_waited_for_and_one_that_stands_still_is_not() -> None:
    """Ten pods of which each takes long: what counts is when the last one became ready."""
    facts = Situation("a", NONE, (SCHEDULE, NONE), True, True, 0.03, DWELL, complete=False)
    memory = ArmMemory("a", SCHEDULE, next=(NONE, 0.1), startup=STARTUP)
    limit = a.START_FACTOR * STARTUP + a.START_MARGIN
    now = 1e6
    for ready in range(10):
        memory, turn = decide(memory, replace(facts, ready=ready), None, [], now)
        assert turn is None
        now += 0.9 * limit
    memory, turn = decide(memory, replace(facts, ready=9), None, [], now + 0.2 * limit)
    assert turn is not None
    assert turn.reason == "ArmFailed"
    assert (memory.next, memory.back) == ((SCHEDULE, 0.0), True)


@pytest.mark.parametrize("complete", [False, True], ids=["paused", "scaled to none"])
def test_while_no_pod_is_to_start_none_is_late_and_nothing_is_proved(complete: bool) -> None:
    facts = Situation("a", NONE, (SCHEDULE, NONE), True, True, 0.03, DWELL, complete=complete, still=True)
    memory = ArmMemory("a", SCHEDULE, next=(NONE, 0.1), startup=STARTUP)
    for hour in range(12):
        memory, turn = decide(memory, facts, None, [], 1e6 + hour * HOUR)
        assert turn is None
        assert memory.going is not None
        assert not memory.going.ready_at
    # The user goes on, and now the pods do not start.
    facts = replace(facts, still=False, complete=False, broken="it keeps failing")
    memory, turn = decide(memory, facts, None, [], 1e6 + 12 * HOUR)
    assert turn is not None
    assert turn.reason == "ArmFailed"
    assert memory.next == (SCHEDULE, 0.0)


def test_no_restart_is_begun_while_somebody_has_paused_the_rollout() -> None:
    world = World({NONE: 0.12}, still=True)
    world.run(2 * HOUR)
    assert world.history == []
    world.still = False
    world.run(HOUR)
    assert world.history == [NONE]


def test_another_spec_may_try_everything_again() -> None:
    world = World({NONE: 0.2}, starts=lambda arm: arm != NONE)
    world.run(2 * HOUR)
    world.spec, world.starts = "b", lambda _: True
    world.run(2 * HOUR)
    assert world.reasons == ["ArmChanged", "ArmFailed", "ArmChanged", "ArmKept"]


def test_a_drafter_that_pays_is_never_restarted_away() -> None:
    world = World({STATIC_3: 0.01}, acceptance=0.8, schedule=Schedule(1, (Step(128, 3),)))
    world.run(8 * HOUR)
    assert world.turns == []
    assert world.arms.empty


def test_without_leave_a_better_arm_is_told_once_and_taken_back_when_it_is_none() -> None:
    world = World({NONE: 0.12}, restart=False)
    world.run(4 * HOUR)
    assert world.reasons == ["ArmRecommended"]
    assert (world.in_force, world.arms.told, world.history) == (SCHEDULE, NONE, [])
    assert "spec.tuning.actuator Restart" in world.arms.why
    world.acceptance = 0.9
    world.run(HOUR)
    assert world.arms.told is None
    assert world.arms.empty


def test_leave_that_is_withdrawn_stops_a_change_that_is_not_made_yet() -> None:
    world = World({NONE: 0.12})
    world.run(a.DWELLS * DWELL - 60)
    world.arms = replace(world.arms, next=(NONE, 0.1))
    world.restart = False
    world.tick()
    assert world.arms.next is None
    assert world.in_force == SCHEDULE


def test_a_restart_that_takes_long_must_be_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two start-ups of an hour in four would need a gain of half."""
    monkeypatch.setattr("tests.unit.arms_world.STARTUP", 3600.0)
    world = World({NONE: 0.12})
    world.run(6 * HOUR)
    assert world.turns == []


def test_engines_without_drafts_are_made_to_look_again_and_go_back_when_nothing_has_changed() -> None:
    world = World({NONE: 0.12})
    world.run(a.BLIND + 4 * HOUR)
    assert world.reasons == ["ArmChanged", "ArmKept", "ArmChanged", "ArmUndone"]
    assert world.in_force == NONE
    assert world.turns[2][0] - world.turns[0][0] >= a.BLIND


def test_engines_without_drafts_find_out_that_traffic_has_turned_good() -> None:
    world = World({NONE: 0.12})
    world.run(2 * HOUR)
    world.acceptance = 0.85
    world.run(a.BLIND + HOUR)
    assert world.reasons == ["ArmChanged", "ArmKept", "ArmChanged", "ArmKept"]
    assert world.in_force == SCHEDULE


def test_adaptive_verification_is_no_safe_bet_until_it_was_measured() -> None:
    world = World({ADAPTIVE: 0.2}, acceptance=0.8, allowed=(SCHEDULE, NONE, STATIC_3, ADAPTIVE))
    world.run(4 * HOUR)
    assert world.turns == []
    world.arms = replace(world.arms, seen={**world.arms.seen, ADAPTIVE: {16: Seen(1e5, 0.2)}})
    world.run(2 * STARTUP)
    assert (world.reasons, world.in_force) == (["ArmChanged"], ADAPTIVE)


@pytest.mark.parametrize(
    ("arm", "batch", "graphs", "mean"),
    [
        (SCHEDULE, 16, True, 0.0),
        (NONE, 2, True, math.log(1.066)),
        (NONE, 189, True, math.log(1.216)),
        (NONE, 1, True, math.log(1.066)),
        (NONE, 189, False, 0.0),
        (STATIC_3, 16, True, 0.02),
        (ADAPTIVE, 32, True, 0.05),
        (ADAPTIVE, 256, True, 0.0),
    ],
)
def test_what_is_expected_of_an_arm_before_it_ran(arm: Arm, batch: int, graphs: bool, mean: float) -> None:
    assert prior(arm, batch, graphs)[0] == pytest.approx(mean)


@pytest.mark.parametrize("arm", [SCHEDULE, NONE, STATIC_3, ADAPTIVE, Arm(Kind.ADAPTIVE, 7, 16384)], ids=str)
def test_the_text_of_an_arm_is_read_back(arm: Arm) -> None:
    assert parse(str(arm)) == arm


@pytest.mark.parametrize(
    "text", ["", "static", "static-x", "none-3", "Schedule", "static-3@", "adaptive-7@x"]
)
def test_other_text_is_no_arm(text: str) -> None:
    assert parse(text) is None


@given(
    st.builds(
        ArmMemory,
        spec=st.text("0123456789abcdef", max_size=16),
        in_force=ARMS,
        since=NUMBERS,
        next=st.none() | st.tuples(ARMS, NUMBERS),
        back=st.booleans(),
        going=st.none() | st.builds(Going, ARMS, NUMBERS, NUMBERS, NUMBERS),
        barred=st.lists(
            st.builds(Barred, ARMS, st.just(LoadMemory({16: 30.0}, {16: 9.5})), NUMBERS, st.booleans())
        ).map(tuple),
        told=st.none() | ARMS,
        why=st.text(max_size=40),
        seen=st.dictionaries(
            ARMS, st.dictionaries(st.sampled_from([1, 16]), st.builds(Seen, NUMBERS, NUMBERS))
        ),
    )
)
def test_memory_survives_its_json(memory: ArmMemory) -> None:
    back = ArmMemory.from_json(memory.to_json())
    assert back.decided == memory.decided
    assert back.to_json() == memory.to_json()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", '{"version": 2}', '{"version": 1, "inForce": "x"}'),
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_memory_that_cannot_be_read_is_an_empty_one(text: str) -> None:
    assert ArmMemory.from_json(text) == ArmMemory()


def test_a_restarted_operator_goes_on_with_the_probation() -> None:
    world = World({NONE: -0.06})
    world.run(a.DWELLS * DWELL + 2 * STARTUP)
    assert world.in_force == NONE
    world.arms = ArmMemory.from_json(world.arms.to_json())
    world.run(HOUR)
    assert world.reasons == ["ArmChanged", "ArmUndone"]


def test_an_arm_that_came_into_force_unseen_is_on_probation_too() -> None:
    """An operator that dies between the restart and its memory leaves the arm on the Deployment alone."""
    world = World({NONE: -0.06})
    world.run(HOUR / 4)
    world.in_force, world.rolled_at = NONE, world.now
    world.run(HOUR)
    assert world.reasons == ["ArmUndone"]
    assert world.in_force == SCHEDULE
