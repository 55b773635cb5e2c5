"""Whether a trial bore a change out: errors stay within their chance, and real differences are seen."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.decide.proof import Answer, Proof, borne_out, extent, favour, weigh
from specpilot.decide.proof import refuted as refuted_by
from specpilot.estimate import constants as c
from specpilot.estimate.counters import TrialCount
from specpilot_engine.protocol import Pairs

STEP_NOISE = 0.15  # of one step's time, as in the lab


def counts(*ratios: list[float], running: bool = True) -> list[TrialCount]:
    """One replica for each list of log ratios."""
    return [TrialCount(7, Pairs(len(r), sum(r), sum(x * x for x in r)), running) for r in ratios]


def answers(gain: float, batch: float, seed: int, pairs: int, replicas: int = 1) -> Iterator[Proof]:
    """What is answered after each further pair of every replica, until the last may have no more."""
    rng = np.random.default_rng(seed)
    steps, _ = extent(batch, gain, 1.0, 0.02, STEP_NOISE)
    noise = math.sqrt(2 * (c.LENGTH_NOISE**2 / batch + STEP_NOISE**2) / steps + 0.01**2)
    ratios = rng.normal(math.log1p(gain), noise, (pairs, replicas))
    for n in range(1, pairs + 1):
        yield weigh(counts(*ratios[:n].T.tolist(), running=n < pairs))


def verdict(gain: float, batch: float, seed: int, pairs: int, replicas: int = 1) -> Proof:
    return next(p for p in answers(gain, batch, seed, pairs, replicas) if p.answer is not Answer.GO_ON)


@pytest.mark.parametrize("replicas", [1, 4])
def test_without_a_difference_hardly_anything_is_kept_however_often_it_is_looked_at(replicas: int) -> None:
    """The chance is 5% for both sides together; 200 runs of 120 looks each."""
    found = [verdict(0.0, 16, seed, 120, replicas).answer for seed in range(200)]
    assert found.count(Answer.KEEP) + found.count(Answer.UNDO) <= 10
    assert found.count(Answer.INCONCLUSIVE) >= 190


@pytest.mark.parametrize("batch", [1, 4, 16, 64])
def test_five_percent_are_told_within_the_pairs_that_they_get(batch: float) -> None:
    _, pairs = extent(batch, math.log(1.05), 1.0, 0.01, STEP_NOISE)
    found = [verdict(0.05, batch, seed, pairs).answer for seed in range(30)]
    assert found.count(Answer.KEEP) >= 24
    assert Answer.UNDO not in found


@pytest.mark.parametrize(("gain", "answer"), [(0.5, Answer.KEEP), (-0.1, Answer.UNDO), (-0.5, Answer.UNDO)])
@pytest.mark.parametrize("batch", [1, 16])
def test_a_large_difference_takes_few_pairs(gain: float, answer: Answer, batch: float) -> None:
    for seed in range(10):
        proof = verdict(gain, batch, seed, 500)
        assert proof.answer is answer
        assert proof.pairs.count <= (100 if abs(gain) < 0.2 else 20)


def test_the_measured_gain_lies_in_its_interval_and_the_truth_too() -> None:
    missed = 0
    for seed in range(100):
        measured = verdict(0.08, 16, seed, 400).measured
        assert measured is not None
        assert measured.low < measured.gain < measured.high
        missed += not measured.low < 0.08 < measured.high
    assert missed <= 5


def test_replicas_are_weighed_together() -> None:
    rng = np.random.default_rng(1)
    each = rng.normal(0.05, 0.1, (8, 10)).tolist()
    assert all(weigh(counts(one)).answer is Answer.GO_ON for one in each)
    assert weigh(counts(*each)).answer is Answer.KEEP


def test_it_goes_on_while_an_engine_does_and_nothing_is_clear() -> None:
    unclear = [0.1, -0.1] * 6
    assert weigh([]).answer is Answer.GO_ON
    assert weigh(counts(unclear, unclear)).answer is Answer.GO_ON
    assert weigh(counts(unclear, running=False) + counts(unclear)).answer is Answer.GO_ON
    assert weigh(counts(unclear, running=False)).answer is Answer.INCONCLUSIVE
    assert weigh(counts([0.1, -0.1], running=False)).answer is Answer.UNMEASURED
    assert weigh(counts([], running=False)).measured is None


@given(
    st.floats(1, 512),
    st.floats(-2, 2),
    st.floats(1, c.TRIAL_FAVOUR),
    st.floats(0.0005, 2),
    st.floats(0.01, 1),
)
def test_a_trial_is_bounded(batch: float, gain: float, ratio: float, seconds: float, noise: float) -> None:
    steps, pairs = extent(batch, gain, ratio, seconds, noise)
    assert c.TRIAL_SLICE[0] <= steps <= c.TRIAL_SLICE[2]
    assert pairs >= c.TRIAL_PAIRS
    long = pairs > c.TRIAL_PAIRS
    assert not long or (pairs - 1) * (1 + ratio) * steps * seconds <= c.TRIAL_SECONDS * (1 + 1e-9)


def test_a_trial_without_an_answer_outlasts_ten_minutes_whatever_was_predicted() -> None:
    """So that going back is no second change within them."""
    for batch, gain in ((16, 1.5), (16, 1.01), (64, 1.1)):
        steps, pairs = extent(batch, math.log(gain), 1.0, 0.05, STEP_NOISE)
        assert 2 * steps * pairs * 0.05 > 600


def test_a_large_gain_gets_short_slices_and_a_small_one_those_that_average_out() -> None:
    slices = [extent(16, math.log1p(gain), 1.0, 0.02, STEP_NOISE)[0] for gain in (1.0, 0.4, 0.03)]
    assert slices == [4, 4, 8]
    assert [extent(1, math.log1p(gain), 1.0, 0.02, STEP_NOISE)[0] for gain in (1.0, 0.03)] == [5, 16]


@pytest.mark.parametrize(
    ("gain", "deviation", "ratio"),
    [
        (0.0, 0.1, 1.0),
        (-0.1, 0.05, 1.0),  # never less than the old one
        (0.05, 0.05, 2.3),  # 84 to 16: the root of 5.3
        (0.06, 0.05, 2.8),
        (0.2, 0.01, 3.0),
        (0.2, 0.0, 3.0),
    ],
)
def test_the_schedule_believed_better_gets_steps_by_the_root_of_its_odds(
    gain: float, deviation: float, ratio: float
) -> None:
    assert favour(gain, deviation) == ratio


@given(st.floats(0.0, 0.2), st.floats(0.01, 0.1))
def test_no_other_division_of_the_steps_costs_less(gain: float, deviation: float) -> None:
    """Steps for a variance of 1, times the chance that they go to the worse schedule."""

    def cost(ratio: float) -> float:
        return (1 + 1 / ratio) * (chance + (1 - chance) * ratio)

    chance = 0.5 * math.erfc(-gain / deviation / math.sqrt(2))
    best = favour(gain, deviation)
    for other in (1.0, 0.8 * best, 1.2 * best, c.TRIAL_FAVOUR):
        assert cost(best) <= cost(min(max(other, 1.0), c.TRIAL_FAVOUR)) * 1.002


def test_the_sentence_has_the_numbers() -> None:
    measured = Proof(Answer.UNDO, Pairs(20, -1.0, 0.06)).measured
    assert measured is not None
    text = str(measured)
    assert text.startswith("4.9% less goodput measured (-")
    assert text.endswith(", 20 pairs of slices)")


def told(mean: float, deviation: float, count: int, running: bool) -> Proof:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 1, count)
    values = mean + deviation * (values - values.mean()) / values.std()
    pairs = Pairs(count, float(values.sum()), float((values**2).sum()))
    return weigh([TrialCount(2, pairs, running)])


@pytest.mark.parametrize(
    ("measured", "gain", "deviation", "running", "kept"),
    [
        (0.006, 0.010, 0.006, False, True),  # neither is clear alone, both together are
        (0.006, 0.010, 0.006, True, False),  # more pairs are to come
        (0.012, 0.020, 0.004, True, True),  # hardly anything is open
        (0.006, 0.020, 0.002, True, False),  # the belief is contradicted
        (-0.001, 0.020, 0.004, False, False),  # measured to be no gain
        (0.006, -0.001, 0.004, False, False),  # believed to be none by now
        (0.002, 0.004, 0.006, False, False),  # agreeing is not enough
    ],
)
def test_a_belief_and_a_measurement_that_agree_bear_a_change_out_together(
    measured: float, gain: float, deviation: float, running: bool, kept: bool
) -> None:
    proof = told(measured, 0.08, 400, running)
    assert proof.answer is (Answer.GO_ON if running else Answer.INCONCLUSIVE)
    assert borne_out(proof, gain, deviation) is kept


@pytest.mark.parametrize(
    ("believed", "measured", "refuted"),
    [
        ((-0.04, 0.02), Pairs(20, 0.0, 0.2), True),  # 0% ± 2.3%: together −2.3% ± 1.5%, and 3% are needed
        ((-0.04, 0.02), Pairs(20, 0.8, 0.24), False),  # 4% ± 2.3%: they contradict each other
        ((0.04, 0.02), Pairs(20, 0.0, 0.2), False),
        ((-0.04, 0.02), Pairs(c.TRIAL_ENOUGH - 1, 0.0, 0.2), False),  # hardly measured
        ((0.0, 0.03), Pairs(20, 0.0, 0.2), False),  # 0% ± 1.8% may be 3%
    ],
)
def test_what_both_say_is_too_little_is_not_tried_to_the_end(believed, measured, refuted) -> None:
    proof = weigh([TrialCount(7, measured, True)])
    assert proof.answer is Answer.GO_ON
    assert refuted_by(proof, *believed, 0.03) is refuted


@given(st.floats(-0.2, 0.2), st.floats(0.001, 0.1), st.floats(-0.2, 0.2), st.floats(0.001, 0.1))
def test_nothing_is_borne_out_and_refuted_at_once(gain, deviation, mean, spread) -> None:
    pairs = Pairs(20, 20 * mean, 20 * (mean**2 + spread**2))
    proof = Proof(Answer.GO_ON, pairs)
    assert not (borne_out(proof, gain, deviation) and refuted_by(proof, gain, deviation, 0.0))


def test_what_is_clearly_worse_is_borne_out_by_no_belief() -> None:
    assert not borne_out(told(-0.05, 0.08, 400, True), 0.2, 0.001)
