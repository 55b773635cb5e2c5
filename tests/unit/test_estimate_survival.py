"""Survival: right under changing depths, monotone, honest about what was not seen, quick after a shift."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.estimate import constants as c
from specpilot.estimate.counters import Cell
from specpilot.estimate.survival import SurvivalMemory, believe, learn
from specpilot.estimate.windows import Window

TRUTH = (0.7, 0.5, 0.35, 0.2)


def window(
    drafted: tuple[float, ...],
    rates: tuple[float, ...] = TRUTH,
    requests: float = 256.0,
    seconds: float = 15.0,
) -> Window:
    accepted = tuple(d * r for d, r in zip(drafted, rates, strict=False))
    steps = {(len(drafted), 256): Cell(10.0, 1.0, 10 * requests, 10 * requests)}
    return Window("pod-1", 0.0, seconds, steps, drafted, accepted)


def after(*windows: Window, memory: SurvivalMemory | None = None) -> SurvivalMemory:
    memory = memory or SurvivalMemory()
    for w in windows:
        memory, _ = learn(memory, [w])
    return memory


def test_depths_that_change_within_windows_leave_no_bias() -> None:
    # 80% of drafts at depth 1, 15% at 2, 5% at 4: each position has its own denominator.
    memory = after(*[window((10000.0, 2000.0, 500.0, 500.0))] * 10)
    assert believe(memory, 4).survival == pytest.approx(TRUTH, abs=0.015)


def test_times_at_depth_zero_teach_nothing_and_forget_nothing() -> None:
    memory = after(*[window((1000.0,) * 4)] * 5)
    assert after(*[window((0.0,) * 4)] * 100, memory=memory) == memory


def test_positions_never_drafted_follow_from_the_ones_before_with_wide_uncertainty() -> None:
    belief = believe(after(*[window((10000.0, 10000.0))] * 10), 4)
    assert belief.survival[:2] == pytest.approx(TRUTH[:2], abs=0.01)
    assert belief.acceptance[2] == pytest.approx(belief.acceptance[1], abs=0.01)
    assert belief.deviation()[3] > 20 * belief.deviation()[1]


def test_replicas_are_pooled() -> None:
    one = window((1000.0,) * 4, requests=8)
    pooled, _ = learn(SurvivalMemory(), [one, one, one])
    single, _ = learn(SurvivalMemory(), [window((3000.0,) * 4, requests=24)])
    assert pooled.drafted == pytest.approx(single.drafted)
    assert pooled.accepted == pytest.approx(single.accepted)


def test_many_drafts_of_few_requests_tell_less_than_as_many_of_many() -> None:
    few, many = (after(window((60.0,), requests=r)).drafted[0] for r in (2.0, 1000.0))
    assert few == pytest.approx(60 / (1 + c.ALIKE * 29))
    assert many == pytest.approx(60)


def test_requests_end_and_others_come_so_a_long_window_sees_more_of_them() -> None:
    # 3,000 drafts of two requests at a time are of thirty; exploring spreads over all of them.
    memory = after(window((3000.0, 300.0), requests=2))
    assert memory.drafted == pytest.approx((3000 / (1 + c.ALIKE * 99), 300 / (1 + c.ALIKE * 9)))


def test_uncertainty_is_binomial_over_the_drafts_of_each_position() -> None:
    memory = SurvivalMemory((1e6, 1e6, 400.0), (0.7e6, 0.5e6, 140.0))
    deviation = believe(memory, 3).deviation()
    effective = 400 / memory.dispersion.value
    assert deviation[2] == pytest.approx((0.35 * 0.65 / effective) ** 0.5, rel=0.15)


def test_old_evidence_fades_with_traffic() -> None:
    memory = after(*[window((100.0,))] * 200)
    keep = 0.5 ** (15 / c.SURVIVAL_HALF_LIFE)
    assert memory.drafted[0] == pytest.approx(100 / (1 - keep), rel=0.01)


def test_a_shift_is_seen_in_one_window_and_what_was_before_is_dropped() -> None:
    memory = after(*[window((4000.0,) * 4)] * 20)
    memory, shift = learn(memory, [window((4000.0,) * 4, (0.4, 0.2, 0.1, 0.05))])
    assert shift is not None
    assert shift.after < shift.before
    assert believe(memory, 4).survival == pytest.approx((0.4, 0.2, 0.1, 0.05), abs=0.02)


def test_after_a_shift_unseen_positions_move_as_the_seen_ones_did() -> None:
    memory = after(*[window((4000.0,) * 4)] * 20)
    memory, shift = learn(memory, [window((8000.0, 0.0, 0.0, 0.0), (0.9, 0.0, 0.0, 0.0))])
    assert shift is not None
    belief = believe(memory, 4)
    old = TRUTH[1] / TRUTH[0]
    assert belief.acceptance[1] > old + 0.1
    assert belief.evidence[1] == 0
    assert belief.deviation()[3] > 0.03


@pytest.mark.parametrize("requests", [1.0, 2.0, 8.0])
def test_few_requests_of_a_slow_engine_show_a_shift_within_three_windows(requests: float) -> None:
    # Eight steps a window: where each window tells little, several together do.
    drafts = 8 * requests
    memory = after(*[window((drafts,) * 3, (0.85, 0.75, 0.65), requests, 2.0)] * 12)
    shifts = []
    for _ in range(3):
        memory, shift = learn(memory, [window((drafts,) * 3, (0.3, 0.0, 0.0), requests, 2.0)])
        shifts.append(shift)
    assert any(shifts)
    assert believe(memory, 3).survival[:2] == pytest.approx((0.3, 0.03), abs=0.12)


@pytest.mark.parametrize("listed", [1, 4])
@pytest.mark.parametrize("rejected", [300.0, 3000.0, 300_000.0])
def test_deeper_slots_come_back_as_they_were_after_traffic_that_accepts_nothing(
    rejected: float, listed: int
) -> None:
    """Requests that sample, say, of which only the first slot is ever explored: however sure that one is by then,
    nothing was learnt of how much surer the others are."""
    before = after(*[window((10000.0,) * 4)] * 10)
    others = (0.0,) * (listed - 1)
    hopeless = after(*[window((rejected / 10, *others), (0.0, *others))] * 10, memory=before)
    assert believe(hopeless, 4).survival[0] < 0.01
    back, shift = learn(hopeless, [window((400.0, *others), TRUTH[:listed], requests=64)])
    assert shift is not None
    assert believe(back, 4).acceptance == pytest.approx(believe(before, 4).acceptance, abs=0.12)


@pytest.mark.parametrize("reached", [5.0, 25.0])
def test_a_deeper_slot_that_few_drafts_reached_in_vain_comes_back_with_the_first(reached: float) -> None:
    """Where a first slot is accepted once in ten, few drafts tell of the second: none of them accepted is no sign that
    it stays as bad when the first one recovers."""
    before = after(*[window((10000.0,) * 4)] * 10)
    poor = after(*[window((reached, reached), (0.1, 0.0), requests=64)] * 10, memory=before)
    assert believe(poor, 4).survival[0] < 0.15
    back, shift = learn(poor, [window((400.0,), TRUTH[:1], requests=64)])
    assert shift is not None
    belief = believe(back, 4)
    assert (
        belief.acceptance[1] > 0.2
    )  # a third of it, and a fourteenth where those 25 are taken at their word
    assert belief.deviation()[1] > 0.08


def test_a_small_drift_is_followed_without_an_alarm() -> None:
    memory, alarms = SurvivalMemory(), 0
    for i in range(80):
        memory, shift = learn(memory, [window((20000.0,), (0.7 - 0.001 * i,))])
        alarms += shift is not None
    assert alarms == 0
    # An exponential memory lags by its time constant: 300 s / ln 2 at 0.001 each 15 s.
    assert believe(memory, 1).survival[0] == pytest.approx(0.62, abs=0.035)


def test_windows_that_vary_more_than_binomially_widen_the_uncertainty_instead_of_alarming() -> None:
    rng = np.random.default_rng(1)
    memory, alarms = SurvivalMemory(), 0
    for _ in range(200):
        memory, shift = learn(memory, [window((12000.0,), (float(np.clip(rng.normal(0.6, 0.03), 0, 1)),))])
        alarms += shift is not None
    # With 47 drafts a request the deviation would be 0.0075; 0.03 is 16 times that variance.
    assert 6 < memory.dispersion.value < 40
    assert alarms <= 4


def test_log_gradient_is_the_derivative_of_log_accepted_length() -> None:
    belief = believe(after(window((3000.0,) * 4)), 4)
    gradient = belief.log_gradient()
    for i in range(4):
        q = belief.acceptance.copy()
        q[i] += 1e-6
        moved = np.log(np.concatenate(([1.0], 1 + np.cumsum(np.cumprod(q)))))
        assert gradient[:, i] == pytest.approx((moved - np.log(belief.lengths())) / 1e-6, abs=1e-4)


counts = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1)), min_size=1, max_size=8)


@given(counts, st.integers(1, 12))
def test_survival_never_rises_and_stays_a_probability(rows: list[tuple[float, float]], depth: int) -> None:
    memory = SurvivalMemory(tuple(d for d, _ in rows), tuple(d * r for d, r in rows))
    belief = believe(memory, depth)
    assert np.all(np.diff(belief.survival) <= 0)
    assert np.all((belief.survival >= 0) & (belief.survival <= 1))
    assert np.all(belief.variance > 0)
    assert np.all(np.diff(belief.lengths()) >= 0)
    assert np.all(np.isfinite(belief.log_gradient()))
