"""The batch distribution as the scheduler sees it."""

from __future__ import annotations

import numpy as np
import pytest

from specpilot.estimate import constants as c
from specpilot.estimate.counters import Cell
from specpilot.estimate.load import LoadMemory, learn
from specpilot.estimate.windows import Window


def window(*cells: tuple[int, int, float, float], context: float | None = None) -> Window:
    """Cells of (depth, bucket, seconds, mean batch) at 10 ms a step."""
    return Window(
        "pod-1",
        0.0,
        15.0,
        {(k, edge): Cell(s * 100, s, s * 100 * b, 1) for k, edge, s, b in cells},
        context=context,
    )


def test_buckets_weigh_by_time_and_depths_are_pooled() -> None:
    load = learn(LoadMemory(), [window((3, 16, 6.0, 12), (7, 16, 3.0, 12), (3, 64, 3.0, 40))])
    weights = load.weights(256)
    assert weights[11] == pytest.approx(0.75)
    assert weights[39] == pytest.approx(0.25)
    assert weights.sum() == pytest.approx(1)


def test_a_mean_between_two_batches_is_split_over_them() -> None:
    weights = learn(LoadMemory(), [window((1, 16, 10.0, 12.25))]).weights(64)
    assert (weights[11], weights[12]) == (pytest.approx(0.75), pytest.approx(0.25))


def test_a_load_above_the_largest_batch_counts_there() -> None:
    assert learn(LoadMemory(), [window((1, 128, 10.0, 100.0))]).weights(64)[63] == 1


def test_old_load_fades_within_minutes() -> None:
    load = learn(LoadMemory(), [window((1, 1, 15.0, 1))])
    for _ in range(int(3 * c.LOAD_HALF_LIFE / 15)):
        load = learn(load, [window((1, 1, 3.0, 1), (1, 64, 12.0, 64))])
    assert load.shares()[64] == pytest.approx(0.8, abs=0.06)


def test_a_window_at_other_sizes_altogether_is_another_load() -> None:
    load = learn(LoadMemory(), [window((1, 1, 15.0, 1), context=1000.0)])
    assert learn(load, [window((1, 1, 1.0, 1), (1, 64, 14.0, 64))]).shares()[64] > c.LOAD_GONE
    # Half of the time is not: a load that wanders is all that it has been lately.
    assert learn(load, [window((1, 1, 8.0, 1), (1, 64, 8.0, 64))]).shares()[64] < 0.35


def test_idle_windows_forget_nothing() -> None:
    load = learn(LoadMemory(), [window((1, 16, 15.0, 16))])
    assert learn(load, []) == load


def test_context_is_averaged_over_requests() -> None:
    load = learn(
        LoadMemory(), [window((1, 16, 15.0, 16), context=1000.0), window((1, 16, 5.0, 16), context=5000.0)]
    )
    assert load.context == pytest.approx(2000)


def test_how_far_a_load_moved() -> None:
    one = learn(LoadMemory(), [window((1, 16, 15.0, 16))])
    other = learn(LoadMemory(), [window((1, 16, 5.0, 16), (1, 64, 10.0, 64))])
    assert one.moved(one) == 0
    assert one.moved(other) == pytest.approx(2 / 3)
    assert LoadMemory().moved(one) == 0


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ((16, 16), (32, 17), 0.0),  # one request more is in the next bucket, and the same load
        ((16, 9), (16, 16), 1.0),  # the same bucket, and nearly twice as many
        ((16, 12), (32, 18), 0.0),
        ((16, 12), (32, 19), 1.0),
    ],
)
def test_a_load_is_another_by_its_batch_sizes_not_by_their_buckets(
    before: tuple[int, float], after: tuple[int, float], moved: float
) -> None:
    one, other = (learn(LoadMemory(), [window((1, edge, 10.0, b))]) for edge, b in (before, after))
    assert one.moved(other) == other.moved(one) == pytest.approx(moved)


def test_each_share_of_time_is_the_same_as_one_other_only() -> None:
    one = learn(LoadMemory(), [window((1, 16, 5.0, 14), (1, 32, 5.0, 20))])
    other = learn(LoadMemory(), [window((1, 32, 10.0, 18))])
    assert one.moved(other) == other.moved(one) == 0.0
    other = learn(LoadMemory(), [window((1, 16, 2.5, 10), (1, 32, 7.5, 25))])
    assert one.moved(other) == pytest.approx(0.25)


def test_no_traffic_weighs_nothing() -> None:
    assert not np.any(LoadMemory().weights(64))
