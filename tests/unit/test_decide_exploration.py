"""Exploration: at a price that is known, of what may change the decision, and hardly of anything else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specpilot.decide.exploration import explore
from specpilot.decide.goodput import Landscape, landscape
from specpilot.decide.schedule import depth_indices
from specpilot.estimate import constants as c
from specpilot.estimate.cost import CostMemory, Costs, learn
from specpilot.estimate.counters import Cell
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.survival import SurvivalMemory, believe
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import Exploration, ProfilePoint, Step

DEPTHS = (0, 1, 3, 7)
OFF = Exploration()
PRICE = 0.005
AT_16 = np.eye(64)[15]


def land(drafts: tuple[float, ...], rates: tuple[float, ...], forbidden: tuple[int, ...] = ()) -> Landscape:
    """Step times well known; survival from `drafts` by position."""

    def truth(k: int, b: float) -> float:
        return 0.010 * (1 + 0.01 * b * (1 + k))

    prior = CostPrior([ProfilePoint(k, b, 8192, truth(k, b), 0, 16) for k in DEPTHS for b in (1, 64)])
    cells = {(k, 16): Cell(1e5, 1e5 * truth(k, 16), 16e5, 1) for k in DEPTHS}
    memory = CostMemory()
    for _ in range(20):
        memory, _ = learn(memory, [Window("pod-1", 0, 15, cells)], prior)
    survival = SurvivalMemory(drafts, tuple(d * r for d, r in zip(drafts, rates, strict=True)))
    costs = Costs(memory, prior, DEPTHS, 64, None)
    return landscape(
        DEPTHS, believe(survival, 7), costs, lambda k, b: (k, b) not in [(f, 5) for f in forbidden]
    )


RATES = (0.8, 0.62, 0.48, 0.36, 0.27, 0.2, 0.15)


def run(
    found: Landscape, k: int, present: Exploration = OFF, price: float = PRICE, shifted: bool = False
) -> Exploration:
    in_force = depth_indices((Step(64, k),), DEPTHS, 64)
    return explore(found, in_force, AT_16, price, c.LEAST_GAIN, shifted, present)


def test_deeper_slots_never_seen_are_explored_at_the_whole_price() -> None:
    chosen = run(land((1e6, 0, 0, 0, 0, 0, 0), RATES), 1)
    assert chosen.price == PRICE
    assert chosen.tokens in (3, 7)
    assert chosen.max_batch >= 16


def test_exploring_falls_to_a_trace_once_it_cannot_change_the_decision() -> None:
    chosen = run(land((1e8,) * 7, (0.9, 0.2, 0.05, 0.01, 0.01, 0.01, 0.01)), 1)
    assert chosen.price == pytest.approx(c.EXPLORE_TRACE * PRICE)


def test_at_depth_zero_more_than_a_trace_goes_on_since_nothing_else_shows_acceptance() -> None:
    chosen = run(land((1e8,) * 7, (0.01,) + (0.001,) * 6), 0)
    assert chosen.price == pytest.approx(c.EXPLORE_BLIND * PRICE)
    assert chosen.tokens == 1  # the cheapest look


def test_a_shift_raises_exploring_to_the_whole_price() -> None:
    assert run(land((1e8,) * 7, (0.9, 0.2) + (0.01,) * 5), 1, shifted=True).price == PRICE


def test_the_stated_cost_covers_what_a_step_costs() -> None:
    found = land((1e7,) * 7, (0.02,) + (0.0,) * 6)
    chosen = run(found, 0)
    slower = np.exp(found.log_seconds[DEPTHS.index(chosen.tokens)] - found.log_seconds[0])[15]
    true_cost = slower - found.lengths[DEPTHS.index(chosen.tokens)]
    assert true_cost <= chosen.cost <= 2.5 * true_cost


def test_a_trembling_estimate_leaves_the_exploration_as_it_is() -> None:
    first = run(land((1e4, 200, 200, 200, 50, 50, 50), RATES), 1)
    again = run(land((1.02e4, 210, 210, 210, 55, 55, 55), tuple(r * 1.01 for r in RATES)), 1, present=first)
    assert again == first


def test_a_depth_without_a_graph_at_some_smaller_batch_is_not_explored() -> None:
    found = land((1e6, 0, 0, 0, 0, 0, 0), RATES, forbidden=(3, 7))
    assert run(found, 1).tokens == 0


def test_what_a_depth_promises_that_cannot_be_explored_is_not_paid_for() -> None:
    """Depth 7 has graphs up to 16 requests only, and there 45% of the time goes by."""
    sure = (1e8, 1e8, 1e8, 30.0, 30.0, 30.0, 30.0)
    found = land(sure, (0.8, 0.3, 0.1, 0.09, 0.08, 0.07, 0.06))
    weights = 0.45 * AT_16 + 0.55 * np.eye(64)[63]
    in_force = depth_indices((Step(64, 1),), DEPTHS, 64)

    def price(land: Landscape) -> float:
        return explore(land, in_force, weights, 0.02, c.LEAST_GAIN, False, OFF).price

    everywhere = found.allowed.copy()
    short = everywhere.copy()
    short[3, 16:] = False
    promising = replace(found, log_seconds=np.where(np.arange(4)[:, None] == 3, -5.0, found.log_seconds))
    assert price(promising) == 0.02
    assert price(replace(promising, allowed=short)) == pytest.approx(c.EXPLORE_TRACE * 0.02)


def test_no_price_means_none() -> None:
    assert run(land((1e3,) * 7, RATES), 1, price=0.0) == OFF


def test_with_one_depth_there_is_nothing_to_explore() -> None:
    costs = Costs(CostMemory(), CostPrior([]), (0,), 64, None)
    only = landscape((0,), believe(SurvivalMemory(), 0), costs, lambda _k, _b: True)
    assert explore(only, np.zeros(64, np.intp), AT_16, PRICE, c.LEAST_GAIN, False, OFF) == OFF


def test_a_trace_keeps_its_depth_unless_another_promises_far_more_and_enough() -> None:
    settled = land((1e8,) * 7, (0.8, 0.22, 0.13, 0.05, 0.04, 0.03, 0.02))
    trace = run(settled, 1)
    assert trace.price == pytest.approx(c.EXPLORE_TRACE * PRICE)
    # Whatever else there is, of what is known so well nothing promises enough for a new schedule.
    for k in (0, 3, 7):
        assert run(settled, 1, replace(trace, tokens=k)).tokens == k
    open_still = land((300,) * 7, (0.8, 0.24, 0.144, 0.05, 0.04, 0.03, 0.02))
    at_zero = run(open_still, 1, replace(trace, tokens=0))
    assert (at_zero.price, at_zero.tokens) == (pytest.approx(c.EXPLORE_TRACE * PRICE), 3)


def test_a_cost_stated_far_too_high_is_corrected_even_at_a_trace() -> None:
    nothing = land((1e8,) * 7, (0.9, 0.2, 0.05, 0.01, 0.01, 0.01, 0.01))
    trace = run(nothing, 1)
    near, far = (replace(trace, cost=trace.cost * f) for f in (c.STALE_COST * 0.7, c.STALE_COST * 1.5))
    assert run(nothing, 1, near) == near
    assert run(nothing, 1, far).cost < far.cost


def test_batches_far_below_the_load_neither_raise_the_cost_nor_bound_the_batch() -> None:
    found = land((1e6,) * 7, RATES)
    before = run(found, 1)
    slow = found.log_seconds.copy()
    slow[DEPTHS.index(before.tokens), :4] += 5.0  # at one to four requests
    chosen = run(replace(found, log_seconds=slow), 1)
    assert chosen == before
    assert chosen.max_batch >= 16
