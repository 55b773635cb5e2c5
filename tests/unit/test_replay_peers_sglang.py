"""SGLang's two policies on counters made by hand."""

from __future__ import annotations

import pytest
from tests.unit.replay_counters import Engine, setup

from specpilot.replay.peers.sglang_ema import AGGRESSIVE, DEFAULT, AcceptLengthEma, Slot, aggressive
from specpilot.replay.peers.sglang_throughput import Acceptance, ThroughputAware

ALL = (0, 1, 3, 5, 7)


def slot(first: int, current: int, average: float) -> Slot:
    rule = next(r for r in DEFAULT if r.first == first)
    return Slot(rule, rule.ladder, current, average, batches=100)


@pytest.mark.parametrize(
    ("accepted", "target"),
    [(0.2, 1), (0.6, 3), (2.4, 3), (2.6, 5), (4.4, 5), (4.6, 7), (6.9, 7)],
)
def test_the_target_is_one_beyond_the_rounded_average(accepted: float, target: int) -> None:
    s = slot(1, 3, accepted)
    s.see(1000, accepted, 1000)
    assert s.current == target


def test_moving_down_takes_a_quarter_of_a_token_more_than_moving_up() -> None:
    up, down, held = slot(1, 3, 2.4), slot(1, 5, 2.2), slot(1, 5, 2.4)
    for s in (up, down, held):
        s.see(1000, s.average, 1000)
    assert [up.current, down.current, held.current] == [3, 3, 5]


def test_the_average_forgets_a_fifth_a_step() -> None:
    s = slot(1, 7, 6.0)
    s.see(3, 1.0, 3)
    assert s.average == pytest.approx(1.0 + 5.0 * 0.8**3)


def test_nothing_moves_in_the_first_ten_batches() -> None:
    s = slot(1, 3, 2.0)
    s.batches = 0
    s.see(10, 0.0, 10)
    assert s.current == 3
    s.see(1, 0.0, 1)
    assert s.current == 1


def test_zero_steps_are_taken_below_half_a_token_and_left_when_a_trial_accepts_more() -> None:
    s = slot(8, 1, 0.4)
    s.see(1000, 0.4, 1000)
    assert (s.current, s.trial) == (0, 1)
    s.see(0, 0.0, 1000)
    assert s.current == 0
    s.see(200, 0.4, 1000)
    assert s.current == 0
    s.see(200, 0.8, 1000)
    assert (s.current, s.trial) == (3, None)


def test_the_ceiling_lowers_steps_in_proportion_to_the_average() -> None:
    rule = AGGRESSIVE[1]
    held, capped = Slot(rule, rule.ladder, 7, 2.3, 100), Slot(rule, rule.ladder, 3, 0.9, 100)
    held.see(1000, 2.3, 1000)  # 2.3 * 3 rounds up to 7
    capped.see(1000, 0.9, 1000)
    assert [held.current, capped.current] == [7, 3]
    capped.see(1000, 0.8, 1000)  # still at three times 0.8
    assert capped.current == 3
    last = Slot(AGGRESSIVE[3], AGGRESSIVE[3].ladder, 3, 0.8, 100)
    last.see(1000, 0.8, 1000)  # 0.8 * 1.2 rounds up to 1, although 0.8 alone would keep 3
    assert last.current == 1


def test_each_range_of_batch_sizes_has_its_own_steps() -> None:
    policy, engine = AcceptLengthEma(), Engine()
    first = policy.start(setup(ALL, max_batch=128))
    assert [first.tokens_at(b) for b in (1, 7, 8, 31, 32, 63, 64, 128)] == [3, 3, 3, 3, 1, 1, 0, 0]
    policy.look(engine.counters(), 0.0)
    engine.run(3, 4, steps=500, accepted=(0.95, 0.92, 0.90))  # 2.77 tokens: 3 rounds to itself
    engine.run(3, 16, steps=500, accepted=(0.30, 0.09, 0.03))  # 0.42: less than half a token
    then = policy.look(engine.counters(), 15.0)
    assert [then.tokens_at(b) for b in (1, 7, 8, 31, 32, 64)] == [5, 5, 0, 0, 1, 0]
    assert then.generation == first.generation + 1


def test_at_zero_steps_a_fifth_of_them_try_the_lowest_positive_again() -> None:
    policy, engine = AcceptLengthEma(), Engine()
    policy.start(setup(ALL, max_batch=128))
    policy.look(engine.counters(), 0.0)
    engine.run(3, 16, steps=500, accepted=(0.1, 0.01, 0.0))
    x = policy.look(engine.counters(), 15.0).exploration
    assert (x.tokens, x.max_batch, x.price / x.cost) == (1, 31, 0.2)
    engine.run(0, 16, steps=400, accepted=())
    engine.run(1, 16, steps=100, accepted=(0.9,))
    back = policy.look(engine.counters(), 30.0)
    assert (back.tokens_at(16), back.exploration.price) == (3, 0.0)


def test_ladders_are_mapped_to_the_nearest_candidates() -> None:
    policy = aggressive()
    assert policy.start(setup((0, 1, 2, 3, 5), max_batch=64)).tokens_at(1) == 3
    assert [s.ladder for s in policy._slots] == [(1, 3, 5), (1, 3, 5), (1, 3), (1, 3)]


def test_unseen_positions_are_extrapolated_geometrically() -> None:
    seen = Acceptance()
    seen.see([(0.8, 100), (0.6, 100), (0.45, 100)])
    assert seen.tokens(2) == pytest.approx(2.4)
    assert seen.tokens(4) == pytest.approx(1 + 0.8 + 0.6 + 0.45 + 0.45 * 0.75)
    seen.forget_beyond(1)
    assert seen.tokens(3) == pytest.approx(1 + 3 * 0.8)


def test_a_position_counts_once_twenty_batches_have_shown_it() -> None:
    seen = Acceptance()
    seen.see([(0.8, 19)])
    assert not seen.full(1)
    seen.see([(0.8, 1)])
    assert seen.full(1)
    assert not seen.full(2)


@pytest.mark.parametrize(("gain", "depth"), [(1.09, 3), (1.11, 1)])
def test_only_more_than_ten_percent_moves_it(gain: float, depth: int) -> None:
    """With 3 in force at 20 ms, 1 step is `gain` times as good."""
    accepted = (0.6, 0.3, 0.1)
    seconds = {1: 0.020 * 1.6 / 2.0 / gain, 3: 0.020}
    policy, engine = ThroughputAware(), Engine()
    policy.start(setup((0, 1, 3), seconds=seconds | {0: 0.010}))
    policy.look(engine.counters(), 0.0)
    engine.run(3, 16, steps=500, accepted=accepted)
    assert policy.look(engine.counters(), 15.0).tokens_at(16) == depth


def test_having_moved_down_it_takes_deeper_positions_for_as_good_as_the_first() -> None:
    policy, engine = ThroughputAware(), Engine()
    policy.start(setup((0, 1, 3), seconds={0: 0.010, 1: 0.012, 3: 0.020}))
    policy.look(engine.counters(), 0.0)
    engine.run(3, 16, steps=500, accepted=(0.6, 0.3, 0.1))
    assert policy.look(engine.counters(), 15.0).tokens_at(16) == 1
    # 1 + 3 × 0.6 over 20 ms beats 1.6 over 12 ms by 5%: not enough. At 0.9 it is 17%.
    engine.run(1, 16, steps=500, accepted=(0.6,))
    assert policy.look(engine.counters(), 30.0).tokens_at(16) == 1
    engine.run(1, 16, steps=500, accepted=(0.9,))
    assert policy.look(engine.counters(), 45.0).tokens_at(16) == 3


def test_zero_steps_are_never_its_choice() -> None:
    policy, engine = ThroughputAware(), Engine()
    policy.start(setup((0, 1, 3), seconds={0: 0.001, 1: 0.02, 3: 0.04}))
    policy.look(engine.counters(), 0.0)
    engine.run(3, 16, steps=500, accepted=(0.01, 0.0, 0.0))
    assert policy.look(engine.counters(), 15.0).tokens_at(16) == 1


def test_without_a_table_it_keeps_its_initial_steps() -> None:
    policy, engine = ThroughputAware(), Engine()
    assert policy.start(setup((0, 1, 3, 7))).tokens_at(16) == 3
    policy.look(engine.counters(), 0.0)
    engine.run(3, 16, steps=500, accepted=(0.01, 0.0, 0.0))
    assert policy.look(engine.counters(), 15.0).tokens_at(16) == 3
