"""Step times between measured points, and what fills in where points are missing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.estimate.profile import CostPrior, generic
from specpilot_engine.protocol import ProfilePoint


def point(k: int, batch: int, ms: float, context: int = 8192) -> ProfilePoint:
    return ProfilePoint(k, batch, context, ms / 1e3, 0.02, 16)


GRID = [point(0, 1, 10), point(0, 16, 13), point(3, 1, 20), point(3, 16, 35), point(3, 64, 83)]


def ms(prior: CostPrior, k: int, batch: float, context: float | None = None) -> float:
    one = prior.second(k, batch, context)
    assert float(prior.seconds(k, np.array([batch]), context)[0]) == pytest.approx(one, rel=1e-12)
    return one * 1e3


def test_measured_points_are_exact_and_the_batch_is_linear_between() -> None:
    prior = CostPrior(GRID)
    assert ms(prior, 3, 16) == pytest.approx(35)
    assert ms(prior, 3, 40) == pytest.approx(59)


def test_beyond_the_points_the_last_slope_goes_on() -> None:
    prior = CostPrior(GRID)
    assert ms(prior, 3, 128) == pytest.approx(147)
    assert ms(prior, 0, 64) == pytest.approx(22.6)


def test_depths_not_measured_lie_between_or_beyond_those_that_were() -> None:
    prior = CostPrior(GRID)
    assert ms(prior, 1, 16) == pytest.approx(13 + 22 / 3)
    assert ms(prior, 5, 16) == pytest.approx(35 + 2 * 22 / 3)


def test_a_deeper_draft_never_extrapolates_to_a_cheaper_step() -> None:
    prior = CostPrior([point(1, 8, 20), point(3, 8, 18)])
    assert ms(prior, 7, 8) == pytest.approx(18)


def test_context_is_linear_between_lengths_and_held_outside() -> None:
    prior = CostPrior([point(1, 8, 10, 1000), point(1, 8, 20, 3000)])
    assert ms(prior, 1, 8, 2000) == pytest.approx(15)
    assert ms(prior, 1, 8, 9000) == pytest.approx(20)
    assert ms(prior, 1, 8, 10) == pytest.approx(10)
    assert ms(prior, 1, 8) == pytest.approx(20)


def test_one_point_is_enough_for_a_curve() -> None:
    prior = CostPrior([point(2, 8, 20)])
    assert ms(prior, 2, 8) == pytest.approx(20)
    assert ms(prior, 2, 32) == pytest.approx(20 * float(generic(2, 32) / generic(2, 8)))
    assert ms(prior, 5, 8) == pytest.approx(20 * float(generic(5, 8) / generic(2, 8)))


def test_a_depth_cut_off_by_the_budget_grows_as_the_others_do() -> None:
    """At 16 requests depth 3 was not reached; depth 1 has grown four times by then, and it more so."""
    prior = CostPrior(
        [point(0, 1, 48), point(0, 16, 113), point(1, 1, 47), point(1, 16, 187), point(3, 1, 68)]
    )
    assert ms(prior, 3, 1) == pytest.approx(68)
    growth = float(generic(3, 16) / generic(3, 1) / (generic(1, 16) / generic(1, 1)))
    assert ms(prior, 3, 16) == pytest.approx(68 * 187 / 47 * growth)
    assert ms(prior, 5, 16) > ms(prior, 3, 16) > ms(prior, 2, 16) > ms(prior, 1, 16)


def test_points_that_cannot_be_true_are_left_out() -> None:
    prior = CostPrior([point(1, 8, float("nan")), point(1, 8, -1.0), point(0, 1, 10)])
    assert ms(prior, 0, 1) == pytest.approx(10)
    assert not CostPrior([point(1, 8, 0.0)]).measured


points = st.builds(
    point, st.sampled_from([0, 1, 3, 7]), st.sampled_from([1, 8, 64, 256]), st.floats(1, 100),
    st.sampled_from([512, 8192]),
)  # fmt: skip


@given(st.lists(points, max_size=20), st.integers(0, 10), st.sampled_from([None, 100.0, 4000.0, 1e6]))
def test_any_set_of_points_gives_positive_finite_times(
    given_points: list[ProfilePoint], depth: int, context: float | None
) -> None:
    seconds = CostPrior(given_points).seconds(depth, np.arange(1.0, 1025.0), context)
    assert np.all(np.isfinite(seconds))
    assert np.all(seconds > 0)


def test_steps_that_grow_with_depth_and_batch_contradict_nothing() -> None:
    assert CostPrior(GRID).disorder == 0.0
    stairs = [point(k, b, 10 * (1 + k // 2) * (1 + b // 8)) for k in (0, 1, 3, 7) for b in (1, 7, 8, 9, 64)]
    assert CostPrior(stairs).disorder == 0.0


@pytest.mark.parametrize("error", [0.05, 0.25])
def test_points_that_contradict_each_other_tell_how_wrong_they_are(error: float) -> None:
    rng = np.random.default_rng(0)
    points = [point(k, b, 10 * math.exp(rng.normal(0, error))) for k in range(8) for b in range(1, 60)]
    assert CostPrior(points).disorder == pytest.approx(error, rel=0.1)
