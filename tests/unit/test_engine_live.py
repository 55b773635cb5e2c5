"""What the step path reads: lookups prepared from a schedule, and the start-up schedule read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot_engine.live import prepare_lookups, schedule_of
from specpilot_engine.protocol import Exploration, Schedule, Step

SIZE = 33  # of a lookup for 32 requests


def build(rows: list[tuple[int, int, int]]) -> list[int]:
    lookup = [0] * SIZE
    for first, last, tokens in rows:
        for batch in range(first, SIZE):
            lookup[batch] = tokens if batch <= last else lookup[batch]
    lookup[rows[-1][1] + 1 :] = [rows[-1][2]] * max(0, SIZE - rows[-1][1] - 1)
    return lookup


def lookups(x: Exploration, row_budget: int = 10_000):
    return prepare_lookups(Schedule(1, (Step(8, 3), Step(32, 1)), x), build, SIZE, row_budget)


def test_without_a_price_both_lookups_are_the_schedule():
    both = lookups(Exploration(price=0.0, tokens=5, max_batch=32))
    assert both.scheduled == both.explored == [0, *[3] * 8, *[1] * 24]


def test_the_depth_to_explore_holds_up_to_the_widest_batch_allowed():
    both = lookups(Exploration(price=0.1, tokens=5, max_batch=10))
    assert both.scheduled == [0, *[3] * 8, *[1] * 24]
    assert both.explored == [0, *[5] * 10, *[1] * 22]


def test_exploring_stops_where_full_drafts_would_exceed_the_rows_of_a_step():
    assert lookups(Exploration(price=0.1, tokens=5, max_batch=32), row_budget=24).explored[1:6] == [5] * 4 + [
        3
    ]


def test_a_batch_wider_than_the_engine_runs_changes_nothing_more():
    both = lookups(Exploration(price=0.1, tokens=5, max_batch=1000))
    assert both.explored == [0, *[5] * 32]


def test_a_lookup_of_another_size_than_vllms_is_refused():
    with pytest.raises(ValueError, match="for 32 requests, not 64"):
        prepare_lookups(Schedule(1, (Step(8, 3),)), build, 65, 100)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=40))
def test_the_startup_schedule_says_what_the_lookup_says(depths):
    schedule = schedule_of([0, *depths], 99, 99)
    assert [schedule.tokens_at(b) for b in range(1, len(depths) + 1)] == depths
    assert all(a.tokens != b.tokens for a, b in zip(schedule.steps, schedule.steps[1:], strict=False))
    assert schedule.generation == 0


def test_without_a_lookup_the_startup_schedule_is_one_static_depth():
    assert schedule_of(None, 16, 3).steps == (Step(16, 3),)
