"""The tuner in a small world: converges, follows, holds, heals, survives restarts and garbage."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.unit.tuner_world import Phase, Run, World, play

from specpilot.api.vocabulary import Reason
from specpilot.decide.memory import Memory
from specpilot.decide.settings import Settings
from specpilot.decide.tuner import initial_schedule, tune
from specpilot.estimate.counters import Cell, Counters
from specpilot.estimate.discards import Discarded
from specpilot.estimate.windows import Window, between
from specpilot_engine.protocol import Schedule, Step

# DeepSeek V4-Pro on 8 B300, vLLM's figure of July 2026 (tokens per second by concurrency and depth); the
# survival is the one that the small-batch column implies.
FIGURE_DEPTHS = (0, 1, 3, 5, 6, 7)
FIGURE_BATCHES = (1, 16, 32, 64, 128, 256)
FIGURE = [
    [101, 153, 231, 251, 258, 251],
    [1124, 1408, 1906, 1939, 1931, 1878],
    [1664, 2384, 3112, 3071, 3029, 2939],
    [2774, 3864, 4856, 4931, 4804, 4611],
    [4406, 5912, 7402, 6846, 6623, 6250],
    [6323, 8619, 9728, 8766, 8176, 7609],
]
CODE = tuple(np.cumprod([0.82, 0.80, 0.78, 0.76, 0.75, 0.74, 0.73]))
CHAT = tuple(np.cumprod([0.62, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6]))
# A 155M target with a 17M draft on two CPU cores, measured.
LAB_DEPTHS, LAB_BATCHES = (0, 1, 2, 3, 5), (1, 4, 16, 32)
LAB = [[33, 52, 74, 80, 68], [132, 187, 230, 210, 195], [348, 404, 329, 296, 313], [437, 446, 406, 363, 295]]
AGREEING = (0.70, 0.48, 0.32, 0.22, 0.15)
HOPELESS = (0.02, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def world(
    depths: tuple[int, ...],
    batches: tuple[int, ...],
    table: list[list[int]],
    survival: tuple[float, ...],
    **more: float,
) -> World:
    lengths = np.array([1 + sum(survival[:k]) for k in depths])
    step_time = np.array(batches)[:, None] * lengths / np.array(table, float)
    return World(depths, batches, step_time.T.tolist(), **more)  # type: ignore[arg-type]


FIGURE_3 = world(FIGURE_DEPTHS, FIGURE_BATCHES, FIGURE, CODE)
LAB_CPU = world(LAB_DEPTHS, LAB_BATCHES, LAB, AGREEING, max_batch=64)


def depth_share(w: World, run: Run, phase: Phase, since: float, until: float) -> float:
    """The mean goodput of the depths in force between two times of a run, over the best depth's."""
    start = run.ticks[0][0]
    rates = [w.goodput(k, phase) for t, k, _ in run.ticks if since <= t - start <= until]
    return float(np.mean(rates)) / w.goodput(w.best(phase), phase)


@pytest.mark.parametrize("clients", FIGURE_BATCHES)
def test_with_a_profile_it_runs_the_best_depth_within_minutes(clients: int) -> None:
    phase = Phase(480, clients, CODE)
    run = play(FIGURE_3, [phase], FIGURE_3.profile(), minimum_gain=0.0)
    assert depth_share(FIGURE_3, run, phase, 60, 480) >= 0.98
    assert depth_share(FIGURE_3, run, phase, 300, 480) >= 0.985


def test_a_change_of_load_takes_its_depth_at_the_next_step() -> None:
    phases = [Phase(600, 1, AGREEING), Phase(300, 16, AGREEING), Phase(300, 1, AGREEING)]
    run = play(LAB_CPU, phases, LAB_CPU.profile(), minimum_gain=0.0)
    depths = [k for _, k, _ in run.ticks]
    assert depths[39:41] == [3, 1]  # before and after the jump from 1 to 16 clients
    assert depths[-20:] == [3] * 20
    assert min(run.shares) >= 0.97


def test_a_shift_of_survival_is_followed_within_three_scrapes() -> None:
    phases = [Phase(600, 64, CODE), Phase(300, 64, HOPELESS), Phase(300, 64, CODE)]
    run = play(FIGURE_3, phases, FIGURE_3.profile())
    shifts = [(t, d) for t, _, d in run.ticks if d.steps_changed and d.reason is Reason.TRAFFIC_SHIFT]
    start = run.ticks[0][0] - 15
    assert [t for t, _ in shifts if 600 < t - start <= 645]
    assert depth_share(FIGURE_3, run, phases[1], 640, 885) >= 0.999
    assert depth_share(FIGURE_3, run, phases[2], 945, 1185) >= 0.97


def test_with_a_hopeless_drafter_nothing_is_drafted_but_it_still_looks() -> None:
    phase = Phase(600, 16, HOPELESS)
    run = play(FIGURE_3, [phase], FIGURE_3.profile())
    assert [k for _, k, _ in run.ticks[2:]] == [0] * 38
    assert run.schedule is not None
    assert run.schedule.exploration.price > 0
    assert run.schedule.exploration.tokens > 0


@pytest.mark.parametrize("seed", range(5))
def test_two_depths_within_one_percent_do_not_flap_where_engines_cannot_try_changes(seed: int) -> None:
    survival = (0.7, 0.5, 0.35)
    base = np.array([0.010, 0.020, 0.040])
    rows = [base, base * 1.7 / 1.5, base * 2.55 / 1.5 / 1.01]
    close = World((0, 1, 3), (1, 16, 64), [r.tolist() for r in rows], 0.15, 0.03, max_batch=64)
    run = play(close, [Phase(600, 16, survival)], close.profile(0.01, seed), seed, minimum_gain=0.0)
    depths = [k for _, k, _ in run.ticks]
    assert sum(a != b for a, b in pairwise(depths)) <= 1


def test_a_gain_below_the_minimum_changes_nothing() -> None:
    run = play(FIGURE_3, [Phase(900, 64, CODE)], FIGURE_3.profile(), minimum_gain=0.5)
    assert not [d for _, _, d in run.ticks if d.steps_changed and d.reason is not Reason.TRAFFIC_SHIFT]
    assert {d.reason for _, _, d in run.ticks[3:]} <= {Reason.BELOW_MINIMUM_GAIN, Reason.HOLDING}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("clients", [16, 128])
def test_a_wrong_profile_heals(clients: int, seed: int) -> None:
    phase = Phase(900, clients, CODE)
    wrong = FIGURE_3.profile(error=0.12, seed=seed)
    run = play(FIGURE_3, [phase], wrong, seed, minimum_gain=0.0)
    assert depth_share(FIGURE_3, run, phase, 600, 900) >= 0.98


def test_a_profile_of_another_context_misleads_nobody() -> None:
    phase = Phase(600, 16, CODE)
    run = play(FIGURE_3, [phase], FIGURE_3.profile(factor=1.4), minimum_gain=0.0)
    assert depth_share(FIGURE_3, run, phase, 300, 600) >= 0.98


@pytest.mark.parametrize("w", [FIGURE_3, LAB_CPU], ids=["figure", "lab"])
def test_without_a_profile_it_starts_small_and_gets_there(w: World) -> None:
    phase = Phase(900, 16, CODE if w is FIGURE_3 else AGREEING)
    run = play(w, [phase], minimum_gain=0.0)
    assert run.ticks[0][1] == 1
    assert depth_share(w, run, phase, 300, 900) >= 0.97


def test_a_restart_from_its_memory_changes_nothing() -> None:
    phase = Phase(900, 64, CODE)
    run = play(FIGURE_3, [phase], FIGURE_3.profile(), minimum_gain=0.0)
    assert run.schedule is not None
    before, count = run.schedule.steps, len(run.changes)
    run.memory = Memory.from_json(run.memory.to_json())
    play(FIGURE_3, [Phase(300, 64, CODE)], FIGURE_3.profile(), seed=5, resume=run, minimum_gain=0.0)
    assert len(run.changes) == count
    assert run.schedule.steps == before


def test_after_a_restart_the_schedule_holds_until_fresh_evidence() -> None:
    run = play(FIGURE_3, [Phase(600, 64, CODE)], FIGURE_3.profile())
    assert run.schedule is not None
    wrong = replace(run.schedule, steps=(Step(256, 0),))
    memory = replace(Memory.from_json(run.memory.to_json()), steps=wrong.steps)
    settings = Settings(FIGURE_DEPTHS, 256, wrong)
    _, decision = tune(memory, [], FIGURE_3.profile(), settings, 2e6)
    assert (decision.change, decision.reason) == (False, Reason.WAITING_FOR_EVIDENCE)


def test_no_traffic_changes_nothing() -> None:
    settings = Settings(FIGURE_DEPTHS, 256, Schedule(3, (Step(256, 3),)))
    memory, decision = tune(Memory(), [], FIGURE_3.profile(), settings, 1e6)
    again, _ = tune(memory, [], FIGURE_3.profile(), settings, 1e6 + 3600)
    assert again == memory
    assert not decision.change
    assert decision.steps == (Step(256, 3),)


def test_spoilt_counters_never_change_anything() -> None:
    run = play(FIGURE_3, [Phase(300, 64, CODE)], FIGURE_3.profile())
    assert run.schedule is not None
    settings = Settings(FIGURE_DEPTHS, 256, run.schedule)
    good = run.ticks[-1][0]
    for trouble in (math.nan, math.inf, -1.0):

        def spoil(window: Window, _at: float, value: float = trouble) -> Window | Discarded:
            return between(Counters("a", 0.0, generated=1.0), Counters("a", window.seconds, generated=value))

        spoilt = play(FIGURE_3, [Phase(300, 64, HOPELESS)], FIGURE_3.profile(), spoil=spoil)
        assert not spoilt.changes
        assert spoilt.memory.survival == Memory().survival
    _, decision = tune(run.memory, [], FIGURE_3.profile(), settings, good + 15)
    assert not decision.change


def test_dwell_is_waited_for_unless_traffic_shifted_or_the_depth_proved_wrong() -> None:
    run = play(FIGURE_3, [Phase(1800, 16, CODE)], FIGURE_3.profile(0.1, 2), 2, minimum_gain=0.0, dwell=300.0)
    moves = [
        (now, then[2])
        for (_, before, _), (now, after, _), then in zip(run.ticks, run.ticks[1:], run.ticks, strict=False)
        if before != after
    ]
    assert moves
    for (earlier, _), (later, decision) in pairwise(moves):
        sure = decision.predicted_gain is not None and decision.predicted_gain >= 0.05
        assert later - earlier >= 300 or sure or decision.reason is not Reason.BETTER_SCHEDULE


def test_exploring_costs_no_more_than_its_price() -> None:
    phase = Phase(1800, 16, CODE)
    quiet = World(FIGURE_DEPTHS, FIGURE_BATCHES, FIGURE_3.step_time, 0.0, 0.0)
    run = play(quiet, [phase], quiet.profile(0.0), minimum_gain=10.0, exploration_price=0.02)
    depth = run.ticks[-1][1]
    ideal = quiet.goodput(depth, phase) / quiet.goodput(quiet.best(phase), phase)
    assert run.shares[0] >= ideal * (1 - 0.02 - 0.004)


def test_a_latency_ceiling_makes_leaving_urgent() -> None:
    memory = play(LAB_CPU, [Phase(300, 16, AGREEING)], LAB_CPU.profile()).memory
    slow = Schedule(9, (Step(64, 5),))
    settings = Settings(LAB_DEPTHS, 64, slow, minimum_gain=5.0, max_inter_token_latency=0.045)
    window = Window("pod-1", 0, 15, play_window())
    _, held = tune(memory, [window], LAB_CPU.profile(), replace(settings, max_inter_token_latency=None), 2e6)
    _, moved = tune(memory, [window], LAB_CPU.profile(), settings, 2e6)
    assert not held.steps_changed
    assert moved.steps_changed
    assert Schedule(1, moved.steps).tokens_at(16) == 1


def play_window() -> dict[tuple[int, int], Cell]:
    seconds = LAB_CPU.seconds(5, 16)
    return {(5, 16): Cell(300, 300 * seconds, 4800, 4800 * 2.5)}


def test_every_decision_explains_itself() -> None:
    run = play(
        FIGURE_3, [Phase(600, 64, CODE), Phase(300, 64, HOPELESS)], FIGURE_3.profile(), minimum_gain=0.0
    )
    for _, _, decision in run.ticks:
        assert decision.message
        assert "\n" not in decision.message


def test_the_first_schedule_with_a_profile_is_cautious_and_without_one_small() -> None:
    settings = Settings(FIGURE_DEPTHS, 256, Schedule(0, ()))
    assert initial_schedule([], settings) == (Step(256, 1),)
    with_profile = Schedule(1, initial_schedule(FIGURE_3.profile(0.0), settings))
    assert with_profile.tokens_at(1) >= with_profile.tokens_at(256)
    assert with_profile.tokens_at(1) > 0


def test_the_first_schedule_keeps_to_what_is_allowed() -> None:
    settings = Settings((0, 3), 64, Schedule(0, ()), allowed=lambda k, b: k == 0 or b <= 16)
    assert initial_schedule([], settings) == (Step(16, 3), Step(64, 0))


def test_without_speculation_there_is_one_schedule() -> None:
    settings = Settings((0,), 64, Schedule(1, (Step(64, 0),)))
    assert initial_schedule([], settings) == (Step(64, 0),)
    window = Window("pod-1", 0, 15, play_window())
    memory, _ = tune(Memory(), [window], [], settings, 1e6)
    _, decision = tune(memory, [window], [], settings, 1e6 + 15)
    assert (decision.change, decision.reason) == (False, Reason.HOLDING)
