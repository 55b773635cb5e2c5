"""Schedules: as good as the best depth at every batch up to a tolerance, and short."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.decide.schedule import ROUND, aligned, depth_indices, in_words, run_lengths, shorten
from specpilot.estimate import constants as c
from specpilot_engine.protocol import Step

DEPTHS = (0, 1, 3, 7)


def even(count: int) -> np.ndarray:
    return np.full(count, 1 / count)


def losses(scores: np.ndarray, steps: tuple[Step, ...]) -> np.ndarray:
    chosen = depth_indices(steps, DEPTHS[: scores.shape[0]], scores.shape[1])
    return np.asarray(scores.max(axis=0) - scores[chosen, np.arange(scores.shape[1])])


def falling(count: int = 256) -> np.ndarray:
    """Goodput of a linear step time: deep pays at small batches, nothing does at large ones."""
    batch = np.arange(1, count + 1)
    lengths = np.array([1, 1.8, 3.0, 4.2])
    seconds = 1 + batch * (1 + np.array(DEPTHS)[:, None]) / 64
    return np.asarray(np.log(lengths[:, None] / seconds))


def test_the_best_depth_falls_with_the_batch_in_few_steps() -> None:
    steps = shorten(falling(), DEPTHS, even(256))
    assert [s.tokens for s in steps] == sorted((s.tokens for s in steps), reverse=True)
    assert steps[-1].up_to == 256
    assert losses(falling(), steps).max() <= c.MERGE_TOLERANCE


def test_boundaries_are_round_where_that_costs_nothing() -> None:
    exact = run_lengths(np.argmax(falling(), axis=0), DEPTHS)
    assert [s.up_to for s in exact] == [10, 63, 255, 256]
    # 63 becomes 64; at 8 or 12 instead of 10 some batch would lose more than the tolerance.
    assert [s.up_to for s in shorten(falling(), DEPTHS, even(256))] == [10, 64, 256]
    assert {64, 256} <= ROUND


def test_a_boundary_in_force_is_kept_where_it_is_as_good() -> None:
    scores = np.zeros((2, 64))
    scores[1] = np.where(np.arange(1, 65) <= 21, 0.001, -0.001)
    assert shorten(scores, DEPTHS[:2], even(64), keep=[21])[0].up_to in (21, 64)
    scores *= 100
    assert shorten(scores, DEPTHS[:2], even(64))[0] == Step(21, 1)


def test_a_narrow_gain_below_tolerance_is_merged_away() -> None:
    scores = np.zeros((2, 64))
    scores[1, 20:24] = 0.9 * c.MERGE_TOLERANCE
    scores[1, :20] = scores[1, 24:] = -1
    assert shorten(scores, DEPTHS[:2], even(64)) == (Step(64, 0),)


def test_a_narrow_gain_above_tolerance_is_not() -> None:
    scores = np.zeros((2, 64))
    scores[1] = -1
    scores[1, 20:24] = 0.05
    assert shorten(scores, DEPTHS[:2], even(64)) == (Step(20, 0), Step(24, 1), Step(64, 0))


def test_forbidden_depths_are_never_chosen_even_when_steps_run_out() -> None:
    scores = np.zeros((2, 40))
    scores[1] = 1.0
    scores[1, ::2] = -np.inf  # every other batch has no graph for depth 1
    steps = shorten(scores, DEPTHS[:2], even(40))
    assert len(steps) <= c.MAX_STEPS
    assert np.all(np.isfinite(losses(scores, steps)))


def test_more_regimes_than_steps_lose_least_where_the_load_is() -> None:
    scores = np.where(np.arange(80) // 8 % 2 == 0, np.array([[0.1], [0.0]]), np.array([[0.0], [0.1]]))
    weights = np.zeros(80)
    weights[8:16] = 1 / 8
    steps = shorten(scores, DEPTHS[:2], weights)
    assert len(steps) <= c.MAX_STEPS
    assert losses(scores, steps)[8:16].max() == pytest.approx(0)


def test_indices_and_steps_are_inverse() -> None:
    steps = (Step(4, 7), Step(32, 3), Step(64, 0))
    assert run_lengths(depth_indices(steps, DEPTHS, 64), DEPTHS) == steps


def test_beyond_the_last_step_its_depth_holds_and_unlisted_depths_count_as_the_next_lower() -> None:
    indices = depth_indices((Step(2, 5), Step(4, 1)), DEPTHS, 6)
    assert [DEPTHS[i] for i in indices] == [3, 3, 1, 1, 1, 1]


scores = st.integers(1, 4).flatmap(
    lambda k: st.integers(1, 48).flatmap(
        lambda b: st.lists(
            st.lists(
                st.sampled_from([-np.inf, -0.5, -0.01, -0.002, 0.0, 0.001, 0.02, 0.4]), min_size=b, max_size=b
            ),
            min_size=k,
            max_size=k,
        )
    )
)


@settings(max_examples=200)
@given(scores)
def test_merging_loses_at_most_the_tolerance_where_the_steps_suffice(rows: list[list[float]]) -> None:
    table = np.array(rows)
    table[0] = np.where(np.isfinite(table[0]), table[0], -0.3)  # depth 0 is always possible
    count = table.shape[1]
    steps = shorten(table, DEPTHS[: len(rows)], even(count))
    assert 1 <= len(steps) <= c.MAX_STEPS
    assert steps[-1].up_to == count
    assert all(a.up_to < b.up_to and a.tokens != b.tokens for a, b in pairwise(steps))
    lost = losses(table, steps)
    assert np.all(np.isfinite(lost))
    exact = run_lengths(np.argmax(table, axis=0), DEPTHS[: len(rows)])
    if len(exact) <= c.MAX_STEPS:
        assert lost.max() <= c.MERGE_TOLERANCE + 1e-12


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (((256, 3),), "depth 3 at any load"),
        (((8, 7), (256, 0)), "depth 7 up to 8 requests, then 0"),
        (((8, 7), (64, 3), (256, 1)), "depth 7 up to 8 requests, 3 up to 64, then 1"),
    ],
)
def test_a_schedule_is_read_out(steps: tuple[tuple[int, int], ...], said: str) -> None:
    assert in_words([Step(*step) for step in steps]) == said


def level(crossing: int, slope: float, count: int = 128) -> np.ndarray:
    """Two depths that are as good as each other at `crossing`, and apart by `slope` a request from there."""
    return np.array([slope * (np.arange(1, count + 1) - crossing), np.zeros(count)])


@pytest.mark.parametrize(("crossing", "slope", "end"), [(37, 0.0005, 40), (34, 0.0005, 32), (36, 0.01, 36)])
def test_a_step_ends_where_its_graph_is_full_if_the_depths_are_as_good_until_there(
    crossing, slope, end
) -> None:
    scores = level(crossing, slope)
    steps = (Step(crossing, 1), Step(128, 0))
    found = aligned(steps, scores, (0, 1), lambda depth, batch: depth == 1 and batch % 8 == 0)
    assert found == (Step(end, 1), Step(128, 0))
    assert losses(scores, found).max() <= c.MERGE_TOLERANCE
    assert aligned(steps, scores, (0, 1), lambda _d, b: b % 8 == 0, keep=(crossing,)) == steps
    assert aligned(steps, scores, (0, 1), lambda _d, _b: False) == steps


@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=24, max_size=24), min_size=2, max_size=4),
    st.sets(st.integers(1, 24)),
)
def test_aligning_loses_no_more_than_merging_may_and_moves_no_step_away(rows, edges) -> None:
    scores = np.array(rows)
    depths = DEPTHS[: len(rows)]
    steps = shorten(scores, depths, even(24))
    found = aligned(steps, scores, depths, lambda _depth, batch: batch in edges)
    assert [s.tokens for s in found] == [s.tokens for s in steps]
    assert [s.up_to for s in found] == sorted({s.up_to for s in found})
    assert found[-1].up_to == 24
    assert losses(scores, found).max() <= max(losses(scores, steps).max(), c.MERGE_TOLERANCE) + 1e-12


def test_where_steps_run_out_the_load_loses_nothing() -> None:
    # A profile that is all noise: more regimes than steps, and the narrow best depth at 40 is where it runs.
    scores = np.random.default_rng(3).normal(0, 0.3, (4, 64))
    scores[:, 39] = (-0.2, 0.0, -0.015, -0.2)
    load = np.arange(1, 65) == 40
    steps = shorten(scores, DEPTHS, even(64), load=load)
    assert len(steps) <= c.MAX_STEPS
    assert losses(scores, steps)[39] <= c.MERGE_TOLERANCE
    assert losses(scores, steps).max() > c.MERGE_TOLERANCE
