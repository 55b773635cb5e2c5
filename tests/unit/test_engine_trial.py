"""Two schedules alternate on one engine: fairly, within bounds, and the better one wins."""

import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot_engine import protocol
from specpilot_engine.protocol import Pairs, Schedule, ScheduleError, Step, Trial, half_width, parse_schedule
from specpilot_engine.trial import LEAST_PAIRS, Slice, TrialRun

TRIAL = Trial((Step(8, 1), Step(64, 0)), slice=6, pairs=200)
SCHEDULE = Schedule(7, (Step(64, 3),), trial=TRIAL)


def drive(run: TrialRun, rate_new: float, rate_old: float, noise: float, steps: int, batch: int = 8) -> int:
    """Clean steps of 10 ms until the run ends; how many of them ran the new schedule."""
    rng, new_steps = random.Random(3), 0
    for _ in range(steps):
        of = run.next(True)
        run.took()
        new_steps += run.new_runs
        rate = rate_new if run.new_runs else rate_old
        if run.running:
            of.add(batch, round(100 * rate * batch * rng.gauss(1, noise)), 1.0)
        run.landed(of)
    return new_steps


def test_the_file_says_it_and_is_read_back():
    assert parse_schedule(SCHEDULE.dump()) == SCHEDULE
    parts = json.loads(SCHEDULE.dump())["optional"]
    assert parts["trial"] == {"against": [[8, 1], [64, 0]], "slice": 6, "pairs": 200}
    favoured = replace(SCHEDULE, trial=replace(TRIAL, ratio=2.5))
    assert parse_schedule(favoured.dump()) == favoured


def test_without_one_the_file_is_what_it_always_was_and_an_engine_that_knows_none_takes_it():
    plain = Schedule(7, (Step(64, 3),))
    assert "optional" not in json.loads(plain.dump())
    assert plain.hash == SCHEDULE.hash
    document = json.loads(SCHEDULE.dump())
    del document["optional"]
    assert parse_schedule(json.dumps(document)) == plain


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        (Trial((), 6, 9), "at least one step"),
        (Trial((Step(8, 40),), 6, 9), r"schedule\[0\]\.tokens"),
        (Trial((Step(8, 1),), 1, 9), r"trial\.slice must be a number from 4"),
        (Trial((Step(8, 1),), 6, 0), r"trial\.pairs must be a number from 1"),
        (Trial((Step(8, 1),), 6, 9, 0.0), r"trial\.ratio must be a number from 0\.1"),
    ],
)
def test_a_trial_that_cannot_be_is_refused_by_name(trial, message):
    with pytest.raises(ScheduleError, match=message):
        parse_schedule(Schedule(7, (Step(64, 3),), trial=trial).dump())


def test_the_order_turns_with_every_pair():
    assert [Slice(i).new for i in range(8)] == [True, False, False, True, True, False, False, True]


@pytest.mark.parametrize(("length_noise", "time_noise"), [(0.5, 0.0), (0.0, 0.3), (0.4, 0.3)])
def test_a_short_slice_of_noisy_steps_is_judged_as_a_long_one_is(length_noise, time_noise):
    rng = random.Random(5)

    def log_rate(steps: int) -> float:
        of = Slice(0)
        for _ in range(steps):
            length = 1 + (rng.random() < 0.5) * 4 * length_noise  # mean 1 + 2 noise
            of.add(
                8,
                8 * length,
                0.01 * rng.gammavariate(1 / time_noise**2, time_noise**2) if time_noise else 0.01,
            )
        return of.log_rate - math.log((1 + 2 * length_noise) / 0.01)

    pairs = 8000
    short, long = (sum(log_rate(steps) for _ in range(pairs)) / pairs for steps in (4, 12))
    # Without correction they are apart by half the variance of a step times 1/4 - 1/12: 0.5% to 2%.
    assert (short, long) == (pytest.approx(0, abs=0.004), pytest.approx(0, abs=0.004))


def arms(run: TrialRun, steps: int, clean: int) -> str:
    """Which schedule each step runs where every so manieth is clean: n new, o old."""
    text = ""
    for i in range(steps):
        of = run.next(True)
        run.took()
        text += "n" if run.new_runs else "o"
        if i % clean == 0:
            of.add(8, 16, 0.01)
        run.landed(of)
    return text


def test_each_schedule_has_slices_of_as_many_clean_steps():
    assert arms(TrialRun(TRIAL, 7), 24, 1) == 6 * "n" + 12 * "o" + 6 * "n"
    assert arms(TrialRun(TRIAL, 7), 24, 2) == 11 * "n" + 13 * "o"


def test_the_new_schedule_may_have_longer_slices():
    run = TrialRun(replace(TRIAL, ratio=2.5), 7)
    assert arms(run, 60, 1) == 15 * "n" + 12 * "o" + 30 * "n" + 3 * "o"
    assert (run.pairs.count, run.pairs.mean) == (2, 0)


def test_where_few_steps_are_clean_a_slice_ends_with_what_it_has():
    assert arms(TrialRun(TRIAL, 7), 40, 4) == 12 * "n" + 24 * "o" + 4 * "n"


def test_a_slice_without_clean_steps_ends_all_the_same():
    assert arms(TrialRun(TRIAL, 7), 96, 1000) == 24 * "n" + 48 * "o" + 24 * "n"


def test_steps_at_which_the_two_do_not_differ_do_not_count():
    run = TrialRun(TRIAL, 7)
    for _ in range(100):
        run.next(False)
    first = run.next(True)
    assert (first.number, run.new_runs) == (0, True)


@pytest.mark.parametrize(("gain", "most"), [(1.5, 6), (0.67, 6), (1.1, 30), (0.9, 30)])
def test_a_clear_difference_ends_it_early_with_the_better_one(gain, most):
    run = TrialRun(TRIAL, 7)
    drive(run, gain, 1.0, 0.1, 6000)
    assert not run.running
    assert LEAST_PAIRS <= run.pairs.count <= most
    assert run.new_runs == (gain > 1)
    assert run.pairs.low < math.log(gain) < run.pairs.high


def test_without_a_difference_it_ends_after_the_most_pairs_with_the_one_before():
    run = TrialRun(Trial(TRIAL.against, 6, 40), 7)
    drive(run, 1.0, 1.0, 0.1, 6000)
    assert (run.running, run.tried, run.new_runs) == (False, 40, False)


def test_slices_that_cannot_be_compared_count_as_tried():
    run = TrialRun(Trial(TRIAL.against, 6, 10), 7)
    for i in range(400):
        of = run.next(True)
        run.took()
        if run.running:
            of.add(8 if run.new_runs else 16, 100, 0.01)  # other crowds
        run.landed(of)
        assert i < 399 or not run.running
    assert (run.pairs.count, run.tried, run.new_runs) == (0, 10, False)


def agreeing(own_noise: float, steps: int = 12) -> TrialRun:
    """Slices that are all alike, of steps whose times differ."""
    run = TrialRun(Trial(TRIAL.against, steps, 200), 7)
    for i in range(12 * steps):
        of = run.next(True)
        run.took()
        of.add(8, 16, (0.9 if of.new else 1.0) * (1 + own_noise * (-1) ** i))
        run.landed(of)
    return run


@pytest.mark.parametrize(("emitted", "seconds"), [(0, 0.02), (6, 0.0)])
def test_a_slice_without_a_rate_is_compared_with_none(emitted, seconds):
    empty, other = Slice(0), Slice(1)
    for _ in range(8):
        empty.add(3, emitted, seconds)
        other.add(3, 6, 0.02)
    assert not empty.comparable(other)
    assert not other.comparable(empty)
    assert other.comparable(other)


def test_pairs_that_happen_to_agree_are_no_surer_than_their_own_steps():
    calm, noisy = agreeing(0.001), agreeing(0.5)
    assert (calm.running, calm.new_runs, calm.pairs.count) == (False, True, LEAST_PAIRS)
    assert noisy.running
    assert noisy.pairs.mean == pytest.approx(-math.log(0.9))
    # Each slice's mean is known to 0.5 / sqrt(11), a pair to sqrt(2) of that.
    assert noisy.pairs.error == pytest.approx(0.5 * math.sqrt(2 / 11 / (noisy.pairs.count - 1)), rel=1e-6)


def test_the_variance_of_a_slice_is_that_of_its_rate_and_not_of_what_long_steps_emit_more():
    proportional, noisy = Slice(0), Slice(0)
    rng = random.Random(1)
    for _ in range(400):
        seconds = rng.uniform(0.5, 1.5)
        proportional.add(10, round(1e6 * seconds), round(1e6 * seconds) / 1e6)
        noisy.add(10, round(1e6 * rng.gauss(1, 0.2)), 1.0)
    assert proportional.variance == pytest.approx(0, abs=1e-9)
    assert noisy.variance == pytest.approx(0.2**2 / 400, rel=0.15)


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_a_drift_does_not_look_like_a_difference(ratio):
    run = TrialRun(Trial(TRIAL.against, 6, 100, ratio), 7)
    for i in range(2500):
        of = run.next(True)
        run.took()
        if run.running:
            of.add(8, 800, 1.0 + i / 5000)  # each step slower than the one before
        run.landed(of)
    assert abs(run.pairs.mean) < 1e-4
    assert not run.running
    assert not run.new_runs


def test_results_that_come_late_belong_to_the_slice_they_were_scheduled_in():
    """As under asynchronous scheduling, where one step is scheduled before the last one's results."""
    run = TrialRun(Trial(TRIAL.against, 6, 200), 7)
    waiting = None
    for _ in range(7 * 24):
        of, new = run.next(True), run.new_runs
        run.took()
        if waiting is not None:
            waiting[0].add(8, 160 if waiting[1] else 80, 1.0)
            run.landed(waiting[0])
        waiting = (of, new)
    assert run.pairs.count == LEAST_PAIRS  # and without any noise that is enough
    assert run.pairs.mean == pytest.approx(math.log(2))


def test_the_state_says_how_far_it_is():
    run = TrialRun(TRIAL, 7)
    assert run.as_json()["interval"] is None
    drive(run, 1.5, 1.0, 0.05, 500)
    state = run.as_json()
    assert (state["generation"], state["running"], state["newRuns"]) == (7, False, True)
    assert state["interval"][0] < state["logGain"] < state["interval"][1]
    document = protocol.state_document(True, "", SCHEDULE, "", {}, state)
    assert document["trial"]["pairs"] == run.pairs.count


@given(st.lists(st.floats(-2, 2), min_size=12, max_size=60), st.floats(0.1, 10))
def test_the_interval_scales_with_its_values(values, factor):
    width = half_width(len(values), sum(values), sum(v * v for v in values))
    scaled = [v * factor for v in values]
    other = half_width(len(scaled), sum(scaled), sum(v * v for v in scaled))
    assert other == pytest.approx(width * factor, abs=1e-6)


def test_too_few_pairs_say_nothing():
    for count in range(4):
        assert half_width(count, 1.0, 1.0) == math.inf
    assert not Pairs(3, 3.0, 3.0).clear
    assert half_width(8, 0.8, 0.1) < math.inf


def ever_excluded(truth: float, seed: int, pairs: int, shape: str) -> bool:
    """Whether, looking after every pair, the interval of noisy pairs ever misses the truth."""
    rng, total, squares = random.Random(seed), 0.0, 0.0
    for n in range(1, pairs + 1):
        noise = rng.gauss(0, 1) if shape == "normal" else rng.choice((-1.6, -0.4, 0.4, 1.6))
        value = truth + 0.08 * noise
        total, squares = total + value, squares + value * value
        if n >= LEAST_PAIRS and abs(total / n - truth) > half_width(n, total, squares):
            return True
    return False


@pytest.mark.parametrize("shape", ["normal", "lumpy"])
def test_under_constant_looking_the_truth_is_missed_no_more_often_than_said(shape):
    missed = sum(ever_excluded(0.03, seed, 200, shape) for seed in range(400))
    assert missed <= 20
