"""Changes that begin as trials: kept, undone, not tried again, given up; and what a restart makes of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.test_decide_tuner import CODE, FIGURE_3, FIGURE_DEPTHS, HOPELESS
from tests.unit.trial_world import Proved, play
from tests.unit.tuner_world import Phase

from specpilot.api.vocabulary import Reason
from specpilot.decide.decision import Decision
from specpilot.decide.memory import Memory, Tried, Undone, materially_differs
from specpilot.decide.settings import Settings
from specpilot.decide.tuner import tune
from specpilot.estimate.counters import Cell, TrialCount
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import Exploration, Pairs, Schedule, Step, Trial

CODE_16 = Phase(600, 16, CODE)
SMALL = Schedule(1, (Step(256, 1),))
VERDICTS = (Reason.GAIN_CONFIRMED, Reason.CHANGE_UNDONE, Reason.GAIN_INCONCLUSIVE)


def trials(run: Proved) -> list[Decision]:
    return [d for d in run.decisions if d.trial is not None]


def verdicts(run: Proved) -> list[Decision]:
    return [d for d in run.decisions if d.reason in VERDICTS]


@pytest.mark.parametrize("replicas", [1, 4])
def test_a_better_schedule_is_tried_and_kept(replicas: int) -> None:
    run = play(FIGURE_3, [CODE_16], FIGURE_3.profile(), schedule=SMALL, replicas=replicas)
    first, verdict = trials(run)[0], verdicts(run)[0]
    assert first.reason is Reason.BETTER_SCHEDULE
    assert first.trial is not None
    assert first.trial.against == SMALL.steps
    assert (verdict.reason, verdict.steps, verdict.steps_changed) == (
        Reason.GAIN_CONFIRMED,
        first.steps,
        False,
    )
    assert verdict.predicted_gain == pytest.approx(first.predicted_gain)
    truth = FIGURE_3.goodput(run.ticks[-1][1], CODE_16) / FIGURE_3.goodput(1, CODE_16) - 1
    assert verdict.measured is not None
    assert verdict.measured.low < truth < verdict.measured.high
    assert "more goodput measured" in verdict.message
    assert run.schedules[-1].trial is None
    assert run.share > 0.97


def test_while_it_is_tried_nothing_else_is_proposed() -> None:
    run = play(FIGURE_3, [CODE_16], schedule=SMALL, minimum_gain=0.0)
    open_trial = False
    for _, _, decision in run.ticks:
        if open_trial and not decision.settled:
            assert (decision.change, decision.reason) == (False, Reason.VERIFYING)
        open_trial = decision.trial is not None or (open_trial and not decision.settled)


def test_a_change_that_loses_is_undone_and_not_tried_again() -> None:
    """Something that neither acceptance nor step times show makes every deeper draft lose a tenth."""
    phase = Phase(1800, 16, CODE)
    run = play(
        FIGURE_3, [phase], FIGURE_3.profile(), schedule=SMALL, bias=lambda new, old: -0.5 * (new > old)
    )
    first, verdict = trials(run)[0], verdicts(run)[0]
    assert verdict.reason is Reason.CHANGE_UNDONE
    assert (verdict.steps, verdict.steps_changed) == (SMALL.steps, True)
    assert verdict.measured is not None
    assert verdict.measured.high < 0 < (verdict.predicted_gain or 0)
    tried = [Schedule(0, d.steps).tokens_at(16) for d in trials(run)]
    assert len(tried) == len(set(tried))  # each depth once in half an hour
    assert tried[0] == Schedule(0, first.steps).tokens_at(16)
    assert run.ticks[-1][1] == 1


def test_what_cannot_be_told_apart_goes_back_to_the_old() -> None:
    def even(new: int, old: int) -> float:
        return -math.log(FIGURE_3.goodput(new, CODE_16) / FIGURE_3.goodput(old, CODE_16))

    run = play(FIGURE_3, [replace(CODE_16, seconds=1500)], FIGURE_3.profile(), 3, schedule=SMALL, bias=even)
    verdict = verdicts(run)[0]
    assert (verdict.reason, verdict.steps) == (Reason.GAIN_INCONCLUSIVE, SMALL.steps)
    assert "not told from none, so undone" in verdict.message
    assert run.memories[-1].undone


def test_a_shift_makes_an_undone_change_possible_again() -> None:
    phases = [Phase(900, 16, CODE), Phase(300, 16, HOPELESS)]
    run = play(FIGURE_3, phases, FIGURE_3.profile(), schedule=SMALL, bias=lambda new, old: -0.5 * (new > old))
    barred = [{(u.old, u.new) for u in memory.undone} for memory in run.memories]
    before = barred[round(900 / FIGURE_3.scrape) - 1]
    assert {(1, 3), (1, 5)} <= before
    assert not before & barred[-1]


def test_a_change_away_from_the_load_begins_no_trial() -> None:
    run = play(FIGURE_3, [CODE_16], FIGURE_3.profile(0.12, 1))
    elsewhere = [d for d in run.decisions if "does not run now" in d.message]
    assert elsewhere
    assert all(d.trial is None for d in elsewhere)


def on_trial(pairs: Pairs, running: bool = True) -> tuple[Settings, list[TrialCount]]:
    trial = Trial((Step(256, 1),), 8, 60)
    schedule = Schedule(9, (Step(256, 3),), trial=trial)
    settings = Settings(FIGURE_DEPTHS, 256, schedule, interval=15.0, prove=True)
    return settings, [TrialCount(9, pairs, running)]


def window(batch: int, start: float = 0.0, depths: tuple[int, ...] = (1, 3)) -> Window:
    cells = {
        (k, batch): Cell(100, 100 * FIGURE_3.seconds(k, batch), 100 * batch, 250 * batch) for k in depths
    }
    return Window(
        "pod-1", start, start + 15, cells, (100.0 * batch,) * 3, (70.0 * batch, 50.0 * batch, 30.0 * batch)
    )


def test_after_a_trial_what_explores_is_priced_for_the_schedule_that_stays() -> None:
    settings, counts = on_trial(Pairs(12, 2.4, 0.49))
    stale = Exploration(0.005, 7, 0.025, 256)
    settings = replace(settings, in_force=replace(settings.in_force, exploration=stale))
    _, decision = tune(Memory(), [window(64)], FIGURE_3.profile(), settings, 1e6, counts)
    assert decision.reason is Reason.GAIN_CONFIRMED
    assert decision.exploration.cost > 0.1


def test_an_operator_that_comes_back_goes_on_with_the_trial() -> None:
    """It finds a schedule on trial, and at first nothing else."""
    settings, counts = on_trial(Pairs(4, 0.1, 0.01))
    memory, decision = tune(Memory(), [], [], settings, 1e6)
    assert not decision.change
    assert memory.trial is not None
    assert memory.trial.generation == 9
    memory, decision = tune(memory, [window(16)], [], settings, 1e6 + 15, counts)
    assert (decision.change, decision.reason) == (False, Reason.VERIFYING)
    settings, counts = on_trial(Pairs(12, 2.4, 0.49))
    memory, decision = tune(memory, [window(16)], [], settings, 1e6 + 30, counts)
    assert (decision.reason, decision.steps, decision.settled) == (
        Reason.GAIN_CONFIRMED,
        settings.in_force.steps,
        True,
    )


def test_without_traffic_a_trial_waits() -> None:
    settings, counts = on_trial(Pairs(12, 2.4, 0.49), running=False)
    memory, decision = tune(Memory(), [], [], settings, 1e6, counts)
    again, later = tune(memory, [], [], settings, 1e6 + 3600, counts)
    assert (decision.change, later.change, again) == (False, False, memory)


def test_counts_of_another_generation_say_nothing() -> None:
    settings, _ = on_trial(Pairs())
    _, decision = tune(
        Memory(), [window(16)], [], settings, 1e6, [TrialCount(8, Pairs(12, 2.4, 0.49), False)]
    )
    assert decision.reason is Reason.VERIFYING


def test_when_the_load_of_a_trial_is_gone_the_change_stays_unproved() -> None:
    settings, counts = on_trial(Pairs(2, 0.1, 0.01))
    schedule = replace(settings.in_force, steps=(Step(16, 3), Step(256, 1)))
    settings = replace(settings, in_force=schedule, minimum_gain=9.0)
    _, decision = tune(Memory(), [window(64)], [], settings, 1e6, counts)
    assert (decision.change, decision.settled, decision.reason) == (True, True, Reason.LOAD_SHIFT)
    assert decision.steps == schedule.steps
    assert decision.message == (
        "depth 3 instead of depth 1: the load at which the two differ is gone, so it is kept as estimated, unproved"
    )


def test_a_load_that_moved_need_not_wait_for_the_trial() -> None:
    """Both depths that alternate are wrong for the many requests that came meanwhile."""
    deep, counts = (Step(256, 7),), [TrialCount(9, Pairs(2, 0.4, 0.08), True)]
    before = replace(on_trial(Pairs())[0], in_force=Schedule(8, (Step(256, 5),)))
    during = replace(before, in_force=Schedule(9, deep, trial=Trial((Step(256, 5),), 8, 60)))
    profile, memory, now = FIGURE_3.profile(), Memory(), 1e6
    for settings in (before, before, during, during):
        memory, decision = tune(memory, [window(1, depths=(5, 7))], profile, settings, now, counts)
        now += 15
    assert decision.reason is Reason.VERIFYING
    for _ in range(3):
        memory, decision = tune(memory, [window(256, depths=(5, 7))], profile, during, now, counts)
        now += 15
        if decision.change:
            break
    assert (decision.reason, decision.settled) == (Reason.LOAD_SHIFT, True)
    assert Schedule(0, decision.steps).tokens_at(256) < 5


@pytest.mark.parametrize(("ago", "released"), [(15, True), (75, True), (600, False)])
def test_a_trial_begun_when_traffic_shifted_gives_way_to_a_depth_better_than_both(
    ago: int, released: bool
) -> None:
    """The first look at new traffic knows little of it: depth 1 seemed worth a trial against depth 3, and by the next
    looks nothing should be drafted at all."""
    old, new = (Step(256, 3),), (Step(256, 1),)
    before = replace(on_trial(Pairs())[0], in_force=Schedule(9, new))
    settings = replace(before, in_force=Schedule(9, new, trial=Trial(old, 8, 60)))
    cells = {(k, 64): Cell(100, 100 * FIGURE_3.seconds(k, 64), 6400, 6400) for k in (0, 1, 3)}
    hopeless = Window("pod-1", 0.0, 15.0, cells, (6400.0,) * 3, (0.0,) * 3)
    profile, memory, now = FIGURE_3.profile(), Memory(), 1e6
    for _ in range(3):
        memory, _ = tune(memory, [hopeless], profile, before, now)
        now += 15
    shifted = replace(memory, shift="survival", shifted_at=now - ago, changed_at=now - ago)
    counts = [TrialCount(9, Pairs(2, 0.4, 0.08), True)]
    _, decision = tune(shifted, [hopeless], profile, settings, now, counts)
    if not released:
        assert (decision.change, decision.reason) == (False, Reason.VERIFYING)
        return
    assert (decision.settled, decision.trial, decision.reason) == (True, None, Reason.TRAFFIC_SHIFT)
    assert Schedule(0, decision.steps).tokens_at(64) == 0


@pytest.mark.parametrize(
    ("survival", "measured", "predicted", "refuted"),
    [
        ((0.9, 0.64, 0.25, 0.02, 0.005, 0.005), Pairs(20, 0.2, 0.5), 0.4, True),  # 1% ± 3.5% measured
        (
            (0.9, 0.64, 0.25, 0.02, 0.005, 0.005),
            Pairs(20, 0.2, 0.5),
            0.0,
            False,
        ),  # much like what was predicted
        ((0.9, 0.8, 0.75, 0.6, 0.55, 0.5), Pairs(20, 0.2, 0.5), 0.4, False),  # believed to be better still
    ],
)
def test_a_change_that_turns_out_to_be_a_mistake_is_undone_and_another_tried_at_once(
    survival: tuple[float, ...], measured: Pairs, predicted: float, refuted: bool
) -> None:
    """Slots that nobody had seen turn out bad: depth 6 gives about what depth 1 gives, which no measurement tells soon,
    and depth 3 far more than either."""
    old = (Step(256, 1),)
    settings = replace(on_trial(Pairs())[0], in_force=Schedule(9, (Step(256, 6),), trial=Trial(old, 8, 600)))
    cells = {(k, 16): Cell(200, 200 * FIGURE_3.seconds(k, 16), 3200, 6400) for k in (1, 6)}
    drafted = (6400.0,) + (3200.0,) * 5
    accepted = tuple(d * s for d, s in zip(drafted, survival, strict=True))
    memory, counts = Memory(trial=Tried(9, 1e6, predicted)), [TrialCount(9, measured, True)]
    for tick in range(1, 5):
        seen = Window("pod-1", 15.0 * tick - 15, 15.0 * tick, cells, drafted, accepted)
        memory, decision = tune(memory, [seen], FIGURE_3.profile(), settings, 1e6 + 15 * tick, counts)
        if decision.change:
            break
    if not refuted:
        assert decision.steps == settings.in_force.steps
        return
    assert (decision.reason, decision.steps, decision.settled) == (Reason.CHANGE_UNDONE, old, True)
    assert "with what is known of the two besides too little, so undone" in decision.message
    settings = replace(settings, in_force=Schedule(10, old))
    seen = Window("pod-1", 15.0 * tick, 15.0 * tick + 15, cells, drafted, accepted)
    memory, decision = tune(memory, [seen], FIGURE_3.profile(), settings, 1e6 + 15 * tick + 15)
    assert decision.trial is not None
    assert decision.trial.against == old
    assert Schedule(0, decision.steps).tokens_at(16) == 3


def test_what_is_predicted_of_a_trial_is_of_the_batch_sizes_where_it_will_be_measured() -> None:
    """The same gain, whether 64 requests run all of the time or a third of it: at one nothing changes."""
    gains = []
    for alone in (0.0, 20.0):
        held = Schedule(1, (Step(8, 0), Step(256, 1)))
        settings = Settings(FIGURE_DEPTHS, 256, held, interval=15.0, prove=True)
        cells = {(1, 64): Cell(400, 400 * FIGURE_3.seconds(1, 64), 25600, 28160)}
        if alone:
            steps = alone / FIGURE_3.seconds(0, 1)
            cells[0, 1] = Cell(steps, alone, steps, steps)
        memory, now = Memory(), 1e6
        for _ in range(8):
            seen = Window("pod-1", now - 15, now, cells, (25600.0,), (2560.0,))
            memory, decision = tune(memory, [seen], FIGURE_3.profile(), settings, now)
            now += 15
            if decision.trial is not None:
                break
        assert memory.trial is not None
        assert memory.trial.predicted == pytest.approx(math.log1p(decision.predicted_gain or 0.0))
        assert (decision.steps[0].tokens, Schedule(0, decision.steps).tokens_at(64)) == (0, 0)
        gains.append(decision.predicted_gain)
    assert gains[1] == pytest.approx(gains[0], rel=0.2)


@pytest.mark.parametrize("counts", [[], [TrialCount(9, Pairs(2, 0.1, 0.01), False)]])
def test_what_cannot_be_measured_is_kept_as_estimated(counts: list[TrialCount]) -> None:
    settings = replace(on_trial(Pairs())[0], minimum_gain=9.0)
    memory, decision = tune(Memory(), [window(16)], [], settings, 1e6, counts)
    for tick in range(1, 7 if not counts else 1):
        assert decision.reason is Reason.VERIFYING
        memory, decision = tune(memory, [window(16)], [], settings, 1e6 + 15 * tick, counts)
    assert (decision.reason, decision.steps) == (Reason.GAIN_INCONCLUSIVE, settings.in_force.steps)


def test_a_replica_without_traffic_does_not_hold_a_spent_trial_up() -> None:
    settings, _ = on_trial(Pairs())
    counts = [TrialCount(9, Pairs(60, 0.1, 1.2), False), TrialCount(9, Pairs(), True)]
    memory, decision = tune(Memory(), [window(16)], [], settings, 1e6, counts)
    for tick in range(1, 8):
        assert decision.reason is Reason.VERIFYING
        memory, decision = tune(memory, [window(16)], [], settings, 1e6 + 15 * tick, counts)
    assert (decision.reason, decision.steps) == (Reason.GAIN_INCONCLUSIVE, (Step(256, 1),))
    assert [(u.old, u.new) for u in memory.undone] == [(1, 3)]


def test_the_memory_of_trials_survives_and_older_memories_load() -> None:
    undone = (Undone(16.0, 3, 5, 0.1, 0.2, 1e6),)
    settings, _ = on_trial(Pairs())
    memory, _ = tune(Memory(undone=undone), [], [], settings, 1e6)
    back = Memory.from_json(memory.to_json())
    assert (back.undone, back.note) == (undone, "")
    assert back.trial is not None
    assert (back.trial.generation, back.trial.at) == (9, 1e6)
    assert not materially_differs(back, memory)
    assert materially_differs(replace(memory, undone=()), memory)
    older = (
        memory.to_json()
        .replace('"trial":[9,1000000.0,null],', "")
        .replace('"undone":[[16.0,3,5,0.1,0.2,1000000.0]],', "")
    )
    assert "undone" not in older
    assert (Memory.from_json(older).undone, Memory.from_json(older).note) == ((), "")


def test_trials_cost_little() -> None:
    phases = [Phase(600, 64, CODE), Phase(300, 64, HOPELESS), Phase(300, 64, CODE)]
    shares = [play(FIGURE_3, phases, FIGURE_3.profile(), seed).share for seed in range(2)]
    assert np.mean(shares) >= 0.95
