"""The row budget's mathematics: cost tables, the best number of rows, whose they are, what is believed."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot_engine.budget import PRIOR_ACCEPTANCE, Beliefs, StepTimes, choose, cost_table

acceptance = st.floats(0.05, 0.95)
drafts = st.lists(st.lists(acceptance, max_size=4), min_size=1, max_size=4)


def survivals(accepted: list[list[float]]) -> list[list[float]]:
    rows = []
    for draft in accepted:
        survived, row = 1.0, []
        for q in draft:
            survived *= q
            row.append(survived)
        rows.append(row)
    return rows


@given(drafts, st.floats(0.0, 2.0), st.lists(st.floats(0.01, 1.0), min_size=17, max_size=17))
def test_no_other_way_of_cutting_gives_more_tokens_per_second(accepted, draft_seconds, increments):
    survival = survivals(accepted)
    seconds = [sum(increments[: b + 1]) for b in range(sum(map(len, survival)) + 1)]
    choice = choose(survival, draft_seconds, seconds)
    best = max(
        (len(survival) + sum(sum(row[:n]) for row, n in zip(survival, kept, strict=True)))
        / (draft_seconds + seconds[sum(kept)])
        for kept in product(*(range(len(row) + 1) for row in survival))
    )
    kept = choice.kept(choice.rows)
    got = len(survival) + sum(sum(row[:n]) for row, n in zip(survival, kept, strict=True))
    assert got / (draft_seconds + seconds[choice.rows]) == pytest.approx(best)
    assert choice.goodput(choice.rows) == pytest.approx(best)
    assert choice.gain >= 0.0


def test_free_rows_are_all_verified_and_rows_that_cost_their_share_are_cut():
    survival = [[0.9, 0.8], [0.3, 0.1]]
    assert choose(survival, 0.0, [1.0] * 5).rows == 4
    # Each row costs a quarter of the step: 3.7 tokens in 1.5 s against 2.9 in 1.25 and 4.0 in 1.75.
    costly = choose(survival, 0.0, [1.0, 1.25, 1.5, 1.75, 2.0])
    assert (costly.rows, costly.kept(2)) == (2, [2, 0])
    assert costly.gain == pytest.approx((3.7 / 1.5) / (4.1 / 2.0) - 1)
    # One whole step among such: in its 2 s there would have been 2 / 1.5 of 3.7 tokens, not 4.1.
    assert costly.cost(4, 2) == pytest.approx((3.7 * 2 / 1.5 - 4.1) / 3.7)


def test_hopeless_drafts_are_cut_altogether():
    choice = choose([[0.02, 0.0004]] * 3, 0.0, [1.0 + 0.1 * b for b in range(7)])
    assert choice.kept(choice.rows) == [0, 0, 0]


def test_between_samples_time_is_linear_and_after_the_last_its_slope_goes_on():
    table = cost_table([(2, 1.0), (4, 3.0), (8, 2.0), (10, 4.0)], range(13))
    assert table == [1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.5, 4.0, 4.5, 5.0]


def test_captured_sizes_pad_and_sizes_above_the_largest_do_not():
    curve = [(2, 1.0), (4, 3.0), (8, 5.0), (12, 7.0)]
    assert cost_table(curve, range(1, 15), 4) == [1, 1, 3, 3, 5, 5, 5, 5, 5.5, 6, 6.5, 7, 7.5, 8]
    assert cost_table(curve, range(5, 13), 0) == [5, 5, 5, 5, 7, 7, 7, 7]


def test_one_sample_says_that_rows_cost_nothing():
    assert cost_table([(6, 0.5)], range(1, 9)) == [0.5] * 8


def learnt(rounds: list[list[tuple[str, int, int]]], whole: bool = True, tokens: int = 3) -> Beliefs:
    beliefs = Beliefs(tokens)
    for drafts in rounds:
        beliefs.step()
        beliefs.learn(drafts, whole)
    return beliefs


def test_nothing_known_is_the_prior():
    first, second = Beliefs(2).survival("a", 2)
    assert (first, second) == pytest.approx((PRIOR_ACCEPTANCE, PRIOR_ACCEPTANCE**2))


def test_a_new_request_is_like_the_others():
    beliefs = learnt([[(name, 3, 1) for name in "abcdefgh"]] * 30)
    first, second, third = beliefs.survival("new", 3)
    assert first == pytest.approx(0.98)
    assert second < 0.05
    assert third < 0.02


def test_a_request_differs_from_the_others_as_soon_as_its_drafts_do():
    good, bad = [(f"g{i}", 3, 3) for i in range(4)], [(f"b{i}", 3, 0) for i in range(4)]
    beliefs = learnt([good + bad] * 10)
    assert beliefs.survival("g0", 3)[2] > 0.5
    assert beliefs.survival("b0", 3)[0] < 0.15
    assert 0.3 < beliefs.survival("new", 3)[0] < 0.7


def test_a_request_that_is_cut_off_comes_back_to_the_others_by_itself():
    beliefs = learnt([[("bad", 3, 0), *((f"g{i}", 3, 3) for i in range(9))]] * 20)
    before = beliefs.survival("bad", 1)[0]
    for _ in range(60):
        beliefs.step()
        beliefs.learn([(f"g{i}", 3, 3) for i in range(9)], whole=False)
    assert before < 0.2
    assert beliefs.survival("bad", 1)[0] > 0.7


def test_a_request_that_turns_good_among_hopeless_ones_is_seen():
    hopeless = [(f"b{i}", 3, 0) for i in range(7)]
    beliefs = learnt([[("one", 3, 0), *hopeless]] * 40)
    assert beliefs.survival("one", 1)[0] < 0.1
    for _ in range(10):
        beliefs.step()
        beliefs.learn([("one", 3, 3), *hopeless], whole=True)
    assert beliefs.survival("one", 1)[0] > 0.5


def test_cut_drafts_say_nothing_of_all_requests():
    """Those that reach a deep slot are the good ones."""
    cut = learnt([[("good", 3, 3), ("bad", 0, 0)]] * 30, whole=False)
    assert cut.survival("new", 1)[0] == pytest.approx(PRIOR_ACCEPTANCE)
    assert cut.survival("good", 1)[0] > 0.85


def test_step_times_are_medians_of_about_as_many_rows_at_the_same_depth_and_batch():
    times = StepTimes()
    for seconds in (0.9, 0.1, 0.11):
        times.add(5, 16, 96, seconds)
    times.add(5, 16, 16, 0.04)
    times.add(5, 16, 16, 0.05)
    times.add(5, 16, 40, 0.07)  # one step is not enough
    times.add(3, 16, 64, 1.0)
    times.add(5, 32, 96, 1.0)
    assert times.curve(5, 16) == [(16, pytest.approx(0.045)), (96, 0.11)]
    assert times.curve(5, 9) == times.curve(5, 16)
    assert times.curve(5, 1) == []
    assert times.last(5, 16, 16) > times.last(5, 16, 96) > 0 == times.last(5, 16, 40)


def test_what_was_measured_long_ago_is_forgotten():
    times = StepTimes()
    for seconds in (*[0.1] * 50, *[0.2] * 13):
        times.add(1, 1, 2, seconds)
    assert times.curve(1, 1) == [(2, 0.2)]
