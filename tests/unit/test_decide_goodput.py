"""Goodput, its rules and its uncertainty; the objective under a latency ceiling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.decide.goodput import Landscape, goodput, landscape, slot_price, speedup
from specpilot.decide.objective import admissible, scores
from specpilot.estimate.cost import CostMemory, Costs
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.survival import SurvivalMemory, believe
from specpilot_engine.protocol import ProfilePoint

DEPTHS = (0, 1, 3, 7)
BIG = 1e9  # drafts: as good as certain


def land(
    survival: list[float],
    step_ms: list[list[float]],
    evidence: float = BIG,
    batches: tuple[int, ...] = (1, 16),
) -> Landscape:
    points = [
        ProfilePoint(k, b, 8192, ms / 1e3, 0, 16)
        for k, row in zip(DEPTHS, step_ms, strict=True)
        for b, ms in zip(batches, row, strict=True)
    ]
    memory = SurvivalMemory((evidence,) * 7, tuple(evidence * s for s in survival))
    costs = Costs(CostMemory(), CostPrior(points), DEPTHS, 16, None)
    return landscape(DEPTHS, believe(memory, 7), costs, lambda _k, _b: True)


GOOD = [0.8, 0.64, 0.51, 0.41, 0.33, 0.26, 0.21]
STEPS = [[10.0, 16.0], [12.0, 22.0], [16.0, 38.0], [24.0, 70.0]]


def test_goodput_is_emitted_tokens_over_step_time() -> None:
    assert goodput(16, 2.5, 0.02) == pytest.approx(2000)
    assert speedup(2.5, 0.02, 0.01) == pytest.approx(1.25)


def test_log_goodput_is_the_ratio_of_length_and_time() -> None:
    found = land(GOOD, STEPS)
    assert found.log_goodput[2, 15] == pytest.approx(np.log(2.95 / 0.038), abs=1e-6)
    assert found.latency[2, 15] == pytest.approx(0.038 / 2.95, rel=1e-6)


@settings(max_examples=100)
@given(
    st.lists(st.floats(0.0, 1.0), min_size=7, max_size=7),
    st.lists(st.lists(st.floats(1, 100), min_size=2, max_size=2), min_size=4, max_size=4),
)
def test_the_best_depth_is_the_one_brute_force_finds(rates: list[float], step_ms: list[list[float]]) -> None:
    survival = np.minimum.accumulate(rates)
    found = land(survival.tolist(), step_ms)
    lengths = [1 + found.survival.survival[:k].sum() for k in DEPTHS]
    for batch in (1, 4, 16):
        brute = [
            goodput(batch, n, float(np.interp(batch, (1, 16), row)))
            for n, row in zip(lengths, step_ms, strict=True)
        ]
        best = int(np.argmax(found.log_goodput[:, batch - 1]))
        assert brute[best] == pytest.approx(max(brute), rel=1e-9)


@given(st.floats(0, 1), st.floats(1, 8), st.floats(0.001, 1), st.floats(0.001, 1))
def test_the_marginal_rule_says_whether_one_slot_more_raises_goodput(
    s: float, length: float, seconds: float, more: float
) -> None:
    gain = goodput(1, length + s, seconds + more) - goodput(1, length, seconds)
    if abs(gain) > 1e-9:
        assert (s > slot_price(np.array(length), np.array(seconds), np.array(seconds + more))) == (gain > 0)


def test_what_is_unsure_about_survival_makes_deep_drafts_unsure() -> None:
    found = land(GOOD, STEPS, evidence=300.0)
    spread = found.length_variance
    assert 0 < spread[0, 1] < spread[0, 3]
    assert np.diag(spread) == pytest.approx(0)
    assert spread == pytest.approx(spread.T)


def test_the_deviation_of_a_mean_gain_is_not_averaged_away_over_batches() -> None:
    found = land(GOOD, STEPS, evidence=300.0)
    one, spread = np.zeros(16), np.full(16, 1 / 16)
    one[7] = 1.0
    old, new = np.full(16, 1, np.intp), np.full(16, 3, np.intp)
    at_one = found.total_deviation(new, old, one)
    assert at_one == pytest.approx(found.deviation(old)[3, 7], rel=1e-6)
    assert found.total_deviation(new, old, spread) > 0.6 * at_one


def test_depth_zero_is_always_allowed() -> None:
    costs = Costs(CostMemory(), CostPrior([]), DEPTHS, 16, None)
    found = landscape(DEPTHS, believe(SurvivalMemory(), 7), costs, lambda _k, _b: False)
    assert found.allowed[0].all()
    assert not found.allowed[1:].any()


def test_scores_are_gains_less_their_uncertainty_over_the_reference() -> None:
    found = land(GOOD, STEPS, evidence=300.0)
    reference = np.full(16, 1, np.intp)
    score = scores(found, reference, found.allowed)
    assert score[1] == pytest.approx(0)
    gain = found.log_goodput[3] - found.log_goodput[1]
    assert np.all(score[3] < gain)


def test_a_ceiling_bars_slower_depths_where_another_meets_it() -> None:
    found = land([0.0] * 7, STEPS)  # latency is the step time
    may = admissible(found, 0.0125)
    assert may[:, 0].tolist() == [True, True, False, False]


def test_where_no_depth_meets_the_ceiling_the_one_with_the_least_latency_is_left() -> None:
    found = land([0.0] * 7, STEPS)
    assert admissible(found, 0.001)[:, 15].tolist() == [True, False, False, False]


def test_without_a_ceiling_everything_allowed_is_admissible() -> None:
    found = land(GOOD, STEPS)
    assert admissible(found, None) is found.allowed
