"""Caps on depth under adaptive verification: found by trials alone, and tried at a bounded price."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.caps_world import DEPTHS, World

from specpilot.decide.caps import in_words, steps_of
from specpilot.decide.caps_memory import BarredCap, CapMemory
from specpilot.decide.memory import Tried
from specpilot_engine.protocol import Caps, Schedule, Step

HOUR = 3600.0
LARGE = {7: 0.0, 3: 0.0, 1: 0.02, 0: 0.15}  # the drafter's own time is worth saving
SMALL = {7: 0.0, 3: -0.15, 1: -0.4, 0: -0.8}


def figure(cap: int, batch: int) -> float:
    return (LARGE if batch > 128 else SMALL)[cap]


def flat(cap: int, _batch: int) -> float:
    return 0.005 * (cap == 3)


def bad(cap: int, _batch: int) -> float:
    return SMALL[cap]


def test_no_drafts_at_256_requests_where_that_is_best_and_all_of_them_at_one() -> None:
    world = World(figure).run(3 * HOUR, 256).run(3 * HOUR, 1)
    assert (world.cap(256), world.cap(129), world.cap(128), world.cap(1)) == (0, 0, 7, 7)
    assert world.settings.in_force.caps == Caps((Step(128, 7), Step(256, 0)))
    assert world.settings.in_force.steps == (Step(256, 1),)  # the tuner's own wait untouched
    assert world.reasons.count("GainConfirmed") == 1


@pytest.mark.parametrize("seed", range(6))
def test_noise_changes_no_cap(seed: int) -> None:
    world = World(flat, seed).run(24 * HOUR, 48)
    assert "GainConfirmed" not in world.reasons
    assert world.cap(48) == 7
    assert len(world.tried) >= 2


def test_a_gain_below_the_minimum_is_not_kept() -> None:
    world = World(lambda cap, _: 0.015 * (cap == 3)).run(6 * HOUR, 64)
    assert world.cap(64) == 7
    generous = World(lambda cap, _: 0.06 * (cap == 3)).run(2 * HOUR, 64)
    assert generous.cap(64) == 3


@pytest.mark.parametrize("price", [0.005, 0.001])
def test_trials_cost_less_than_the_price_of_exploring(price: float) -> None:
    world = World(bad)
    world.settings = replace(world.settings, exploration_price=price, dwell=0.0)
    for hour in range(24):
        world.length = 1.2 ** (hour % 2)  # traffic that changes lets what was undone be tried again
        world.run(HOUR, 64)
    assert world.cap(64) == 7
    assert len(world.tried) >= 5
    assert world.lost <= price * 24 * HOUR


def test_each_trial_that_changes_nothing_doubles_the_rest() -> None:
    world = World(flat).run(24 * HOUR, 64)
    times = [at for at, _, _ in world.tried]
    rests = [b - a for a, b in pairwise(times)]
    assert rests[0] >= 2 * 600
    assert times[0] - 1e6 <= 300


def test_what_was_undone_is_not_tried_again_until_traffic_changes() -> None:
    world = World(bad).run(24 * HOUR, 64)
    assert sorted(cap for _, _, cap in world.tried) == [0, 3]
    world.length = 1.05  # not much
    assert len(world.run(6 * HOUR, 64).tried) == 2
    world.length = 1.3
    assert len(world.run(6 * HOUR, 64).tried) > 2


def test_one_request_of_slow_steps_is_known_from_several_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.caps_world.STEP", 0.1)  # 300 steps a look
    world = World(bad).run(24 * HOUR, 1)
    count = len(world.tried)
    assert count <= 2
    assert all(b.length is not None for b in world.memory.barred)
    world.length = 1.3
    assert len(world.run(12 * HOUR, 1).tried) > count


def test_a_cap_of_none_is_left_again_when_traffic_has_turned_good() -> None:
    world = World(figure).run(3 * HOUR, 256)
    assert world.cap(256) == 0
    world.worth = lambda cap, _: 0.1 * cap
    world.run(36 * HOUR, 256)
    assert world.cap(256) == 7


@pytest.mark.parametrize(
    "how",
    [
        {"settings": {"prove": False}},
        {"settings": {"exploration_price": 0.0}},
        {"facts": {"able": False}},
        {"facts": {"settled": False}},
    ],
    ids=str,
)
def test_without_leave_or_means_nothing_is_tried(how: dict[str, dict[str, object]]) -> None:
    world = World(figure)
    world.settings = replace(world.settings, **how.get("settings", {}))
    world.facts = replace(world.facts, **how.get("facts", {}))
    assert world.run(6 * HOUR, 256).turns == []
    assert world.cap(256) == 7


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(0, 2**32 - 1))
def test_whatever_runs_the_two_on_trial_differ_there(batch: int, most: int, seed: int) -> None:
    ends = sorted({1 << (seed >> i & 15) for i in range(0, 24, 4)})
    caps = Caps(tuple(Step(end, DEPTHS[(seed + end.bit_length()) % 4]) for end in ends))
    world = World(flat)
    world.settings = replace(
        world.settings, max_batch=most, in_force=Schedule(1, (Step(most, 1),), caps=caps)
    )
    while not world.turns:
        world.tick(batch)
    on_trial = world.settings.in_force.caps
    assert on_trial is not None
    assert on_trial.trial is not None
    assert Schedule(0, on_trial.steps).tokens_at(batch) != world.cap(batch)
    assert len(on_trial.steps) <= 6


def test_the_last_bucket_has_all_larger_batches_too() -> None:
    world = World(lambda cap, _: 0.1 * (cap == 3))
    world.settings = replace(world.settings, max_batch=2048)
    world.run(2 * HOUR, 1500)
    assert (world.cap(512), world.cap(513), world.cap(1500), world.cap(2048)) == (7, 3, 3, 3)
    assert world.turns[0][1].decision.message.startswith(
        "at most 3 drafts instead of 7 at 513 requests and more:"
    )


def test_without_traffic_nothing_is_tried() -> None:
    assert World(figure).run(HOUR, 256).run(60, 256).run(6 * HOUR, 0).tried[-1][0] <= 1e6 + HOUR + 60
    assert World(figure).run(12 * HOUR, 0).turns == []


def test_a_trial_whose_load_has_gone_leaves_the_cap_as_it_was_and_bars_nothing() -> None:
    world = World(flat)
    while not world.tried:
        world.tick(256)
    world.tick(4)
    assert world.reasons == ["Verifying", "LoadShift"]
    assert (world.cap(256), world.memory.barred, world.memory.fruitless) == (7, (), {})


def test_where_nothing_can_be_compared_trials_become_rare_and_bar_nothing() -> None:
    world = World(flat, deaf=True).run(48 * HOUR, 64)
    assert set(world.reasons) == {"Verifying", "GainInconclusive"}
    assert 5 <= len(world.tried) <= 14
    assert (world.cap(64), world.memory.barred) == (7, ())


def test_what_the_tuner_knew_says_what_to_try_first() -> None:
    plain = World(figure).run(HOUR, 256)
    world = World(figure, hint=lambda depth, _: -float(depth)).run(HOUR, 256)
    assert (plain.tried[0][2], world.tried[0][2]) == (3, 0)


def test_what_won_at_larger_batches_is_tried_first_at_smaller_ones() -> None:
    world = World(lambda cap, batch: figure(cap, batch + 64)).run(3 * HOUR, 256)
    assert world.cap(256) == 0
    before = len(world.tried)
    world.run(2 * HOUR, 100)
    assert world.tried[before][1:] == (128, 0)
    assert (world.cap(128), world.cap(64)) == (0, 7)


def test_caps_of_other_arguments_are_dropped() -> None:
    world = World(figure).run(3 * HOUR, 256)
    world.facts = replace(world.facts, of="spec/adaptive-7@16384")
    turn = world.tick(256)
    assert (turn.decision.reason, world.cap(256)) == ("Initial", 7)
    assert world.memory.barred == ()


def test_caps_survive_a_restart_of_the_operator_and_so_does_what_was_undone() -> None:
    world = World(bad).run(6 * HOUR, 64)
    count = len(world.tried)
    world.memory = CapMemory.from_json(world.memory.to_json())
    assert len(world.run(12 * HOUR, 64).tried) == count
    found = World(figure).run(3 * HOUR, 256)
    found.memory = CapMemory()  # lost
    assert found.run(60, 256).cap(256) == 0


def test_a_schedule_of_caps_has_six_steps_at_most() -> None:
    saw = lambda cap, batch: 0.3 * (cap == (0 if batch.bit_length() % 2 else 7))  # noqa: E731
    world = World(saw)
    for batch in (256, 128, 64, 32, 16, 8, 4, 2, 1):
        world.run(3 * HOUR, batch)
    assert len(steps_of(world.settings.in_force, 7)) <= 6


def test_in_words() -> None:
    assert in_words((Step(256, 7),)) == "at most 7 drafts at any load"
    assert in_words((Step(128, 7), Step(256, 0))) == "at most 7 drafts up to 128 requests, then 0"
    found = in_words((Step(8, 7), Step(64, 3), Step(256, 1)))
    assert found == "at most 7 drafts up to 8 requests, 3 up to 64, then 1"
    assert steps_of(Schedule(3, (Step(64, 1),)), 7) == (Step(64, 7),)


numbers = st.floats(0, 1e9, allow_nan=False)
depths, requests = st.integers(0, 32), st.floats(1, 1e9)
barred = st.builds(BarredCap, st.integers(1, 1024), depths, depths, st.none() | numbers, requests, numbers)


@given(
    st.lists(barred, max_size=4),
    st.none() | st.builds(Tried, st.integers(0, 99), numbers),
    st.dictionaries(st.integers(1, 1024), st.integers(1, 9)),
)
def test_memory_is_read_back_as_written(
    undone: list[BarredCap], trial: Tried | None, fruitless: dict[int, int]
) -> None:
    memory = CapMemory("spec/arm", 12.5, 99.0, trial, tuple(undone), fruitless)
    assert CapMemory.from_json(memory.to_json()) == memory


def of_no_requests() -> str:
    memory = CapMemory("spec/arm", barred=(BarredCap(64, 7, 3, 0.5, 0.0, 9.0),))
    return memory.to_json()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"version": 2}', '{"version": 1, "of": "x"}'),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param(of_no_requests(), id="of no requests"),
    ],
)
def test_a_memory_that_cannot_be_read_is_empty(text: str) -> None:
    assert CapMemory.from_json(text) == CapMemory()
