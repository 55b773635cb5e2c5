"""What is true in a world: step times, accepted lengths, the best depth."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.replay_small import PHASE, small

from specpilot.replay.truth import Truth, merged
from specpilot_engine.protocol import Step


def test_step_times_are_linear_between_points_and_go_on_from_the_last_two() -> None:
    truth = Truth(small(phases=[{**PHASE, "requests": 32}]))
    depth_0 = 1e3 * truth.seconds[0]
    assert len(depth_0) == 32
    assert depth_0[[0, 7, 15]] == pytest.approx([10, 20, 30])
    assert depth_0[[1, 11, 31]] == pytest.approx([10 + 10 / 7, 25, 50])


def test_below_the_first_point_its_time_holds() -> None:
    truth = Truth(small(batches=[4, 8, 16]))
    assert 1e3 * truth.seconds[0, :4] == pytest.approx([10, 10, 10, 10])


def test_step_times_never_fall_to_nothing_far_out() -> None:
    world = small(step_time_ms=[[10, 20, 12]] * 3, phases=[{**PHASE, "requests": 200}])
    assert Truth(world).seconds[0, 199] == pytest.approx(0.001)


def test_the_context_scales_linearly_between_its_keys_and_is_held_outside() -> None:
    truth = Truth(small(context_factor={"1000": 0.8, "3000": 1.2}))
    assert [truth.factor(c) for c in (10, 1000, 1500, 3000, 9000)] == pytest.approx([0.8, 0.8, 0.9, 1.2, 1.2])


def test_the_survival_of_a_mix_is_the_mean_over_its_kinds() -> None:
    truth = Truth(small())
    assert truth.survival({"code": 0.25, "prose": 0.75}) == pytest.approx([0.275, 0.15, 0.1])


def test_goodput_is_requests_times_accepted_length_over_step_time() -> None:
    world = small(context_factor={"8192": 2.0})
    goodput = Truth(world).goodput(world.phases[0])
    assert goodput[:, 7] == pytest.approx([8 / 0.040, 8 * 1.8 / 0.048, 8 * 2.8 / 0.068])


def test_the_best_schedule_has_at_each_batch_the_depth_of_the_most_goodput() -> None:
    truth = Truth(small())
    phase = truth.world.phases[0]
    best, goodput = truth.best(phase), truth.goodput(phase)
    for batch in range(1, 17):
        at_best = goodput[truth.depths.index(best.tokens_at(batch)), batch - 1]
        assert at_best == goodput[:, batch - 1].max()
    assert (best.tokens_at(8), best.tokens_at(16)) == (3, 1)


@given(st.lists(st.sampled_from([0, 1, 3]), min_size=1, max_size=40))
def test_merging_depths_by_batch_keeps_each_of_them(depths: list[int]) -> None:
    schedule = merged(depths, 7)
    assert [schedule.tokens_at(b) for b in range(1, len(depths) + 1)] == depths
    assert len(schedule.steps) == 1 + sum(a != b for a, b in pairwise(depths))
    assert schedule.steps[-1] == Step(len(depths), depths[-1])


def test_a_profile_is_off_by_its_relative_error_and_made_at_its_context() -> None:
    world = small(context_factor={"8192": 1.0, "16384": 2.0}, profile={"context": 16384, "error": 0.1})
    off = [
        p.seconds / (2 * world.step_time_ms[world.depths.index(p.tokens)][world.batches.index(p.batch)] / 1e3)
        for seed in range(100)
        for p in Truth(world).profile(np.random.default_rng(seed))
    ]
    assert len(off) == 900
    assert np.mean(off) == pytest.approx(1.0, abs=0.01)
    assert np.std(off) == pytest.approx(0.1, rel=0.1)
    assert {p.context for p in Truth(world).profile(np.random.default_rng(0))} == {16384}


def test_without_a_profile_nothing_is_told() -> None:
    assert Truth(small()).profile(np.random.default_rng(0)) == ()
