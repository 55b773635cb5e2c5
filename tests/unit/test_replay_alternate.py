"""Trials in the simulated engine, which plays the engine package's own rules."""

from __future__ import annotations

import math

import pytest
from tests.unit.replay_small import PHASE, small
from tests.unit.test_replay_arrivals import open_phase
from tests.unit.test_replay_engine import Watch

from specpilot.estimate.counters import Counters
from specpilot.replay.engine import ScheduleRefused
from specpilot.replay.play import play
from specpilot.replay.world import World
from specpilot_engine.protocol import Schedule, Step, Trial


def on_trial(new: int, old: int, slice_: int = 10, pairs: int = 40, generation: int = 2) -> Schedule:
    return Schedule(generation, (Step(16, new),), trial=Trial((Step(16, old),), slice_, pairs))


def tried(world: World, *schedules: Schedule) -> list[Counters]:
    watch = Watch(list(schedules))
    play(world, watch, 0)
    return watch.seen


def test_a_trial_measures_the_true_gain_and_goes_on_with_the_better() -> None:
    seen = tried(small(), on_trial(3, 0))
    at_once = seen[1].trial
    assert at_once is not None
    assert (at_once.generation, at_once.running) == (2, False)
    gain = math.log(2.8 / 0.034) - math.log(1 / 0.020)
    assert at_once.pairs.mean == pytest.approx(gain, abs=0.1)
    # Only depth 3 from then on.
    assert seen[-1].cells[0, 8].steps == seen[1].cells[0, 8].steps
    assert seen[-1].cells[3, 8].steps > 5 * seen[1].cells[3, 8].steps


def test_a_worse_schedule_on_trial_is_left() -> None:
    seen = tried(small(), on_trial(0, 3))
    at_once = seen[1].trial
    assert at_once is not None
    assert at_once.pairs.mean < -0.3
    assert seen[-1].cells[0, 8].steps == seen[1].cells[0, 8].steps


def test_half_the_steps_of_a_trial_are_the_new_schedules_and_exploring_pauses() -> None:
    # Depths 0 and 1 that emit and take alike, so that nothing is ever told apart.
    world = small(
        step_time_ms=[[10, 20, 30], [10, 20, 30], [16, 34, 70]], traffic={"code": {"survival": [0.0] * 3}}
    )
    seen = tried(world, on_trial(1, 0, slice_=20, pairs=300))
    cells, count = seen[3].cells, seen[3].trial
    assert count is not None
    assert count.running
    # A pair is 40 clean steps of 20 ms and two that are lost between its slices; the next begins with the same.
    assert count.pairs.count == 45 / 0.020 // 42
    assert cells[0, 8].steps == pytest.approx(cells[1, 8].steps, rel=0.02)
    assert cells[0, 8].steps == pytest.approx(45 / 0.020 / 2 * 40 / 42, rel=0.02)
    assert seen[3].explored_steps == 0


def test_without_a_trial_the_engine_says_that_it_could_have_one() -> None:
    seen = tried(small(), Schedule(1, (Step(16, 1),)))
    assert seen[-1].trial is not None
    assert (seen[-1].trial.generation, seen[-1].trial.pairs.count) == (0, 0)


def test_a_trial_in_an_open_loop_compares_too() -> None:
    seen = tried(small(phases=[open_phase(4.0, seconds=300)]), on_trial(3, 0, pairs=300))
    count = seen[-1].trial
    assert count is not None
    assert count.pairs.count >= 5
    assert count.pairs.mean > 0.2


def test_an_earlier_depth_that_is_no_candidate_is_refused() -> None:
    with pytest.raises(ScheduleRefused, match=r"\[1, 2\]"):
        tried(small(phases=[PHASE]), on_trial(1, 2))
