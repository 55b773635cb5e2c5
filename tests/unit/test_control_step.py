"""One tick of one deployment: when a change begins as a trial, and what ends one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from tests.unit.test_decide_tuner import FIGURE_3

from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.vocabulary import Reason
from specpilot.control.step import Evidence, Pod, Taken, settings, step
from specpilot.decide.settings import Settings
from specpilot.estimate.counters import Cell, Counters, TrialCount
from specpilot_engine.protocol import Budget, Pairs, Schedule, Step, Trial

POD: Pod = ("default", "pod-1")
DEPTHS, SMALL = (0, 1, 3, 5, 6, 7), (Step(256, 0),)
TO = Settings(DEPTHS, 256, Schedule(4, SMALL), interval=15.0, budget=Budget(0.01), prove=True)
ON_TRIAL = Schedule(5, (Step(256, 3),), trial=Trial(SMALL, 8, 60))
ABLE = TrialCount()


def counters(tick: int, trial: TrialCount | None = ABLE, live: bool = True) -> Counters:
    """After so many ticks of 15 s at 16 requests, all of them accepting well at depths 0 and 3."""
    steps = 100.0 * tick
    cells = {(k, 16): Cell(steps, steps * FIGURE_3.seconds(k, 16), 16 * steps, 32 * steps) for k in (0, 3)}
    drafted, accepted = (16 * steps,) * 3, (13.0 * steps, 10.5 * steps, 8.2 * steps)
    return Counters(
        "life", 15.0 * tick, cells, drafted, accepted, all_steps=2 * steps, live=live, trial=trial
    )


def ticks(to: Settings, publish: bool = True, count: int = 6, **how: object) -> Taken:
    """The first tick that gives a schedule, or the last one."""
    evidence = Evidence()
    for tick in range(1, count + 1):
        now = {POD: counters(tick, **how)}  # type: ignore[arg-type]
        taken = step(evidence, now, FIGURE_3.profile(), to, publish, 1e6 + 15 * tick)
        evidence = taken.evidence
        if taken.schedule is not None and taken.decision.steps_changed:
            break
    return taken


def test_a_change_is_published_as_a_trial_and_the_rest_of_the_schedule_stays() -> None:
    taken = ticks(TO)
    assert taken.schedule is not None
    assert taken.schedule.trial is not None
    assert taken.schedule.trial.against == SMALL
    assert (taken.schedule.generation, taken.schedule.budget) == (5, Budget(0.01))


@pytest.mark.parametrize("how", [{"trial": None}, {"live": False}])
def test_where_an_engine_cannot_compare_schedules_changes_are_not_proved(how: dict[str, object]) -> None:
    taken = ticks(TO, **how)
    assert taken.schedule is not None
    assert taken.schedule.trial is None


def test_without_leave_to_publish_nothing_is_tried() -> None:
    taken = ticks(TO, publish=False)
    assert (taken.schedule, taken.decision.trial) == (None, None)


@pytest.mark.parametrize("publish", [True, False])
def test_a_trial_that_was_begun_is_brought_to_its_end_in_every_mode(publish: bool) -> None:
    to = replace(TO, in_force=ON_TRIAL)
    taken = ticks(to, publish, count=3, trial=TrialCount(5, Pairs(12, -2.4, 0.49), False))
    assert taken.decision.reason is Reason.CHANGE_UNDONE
    assert taken.schedule is not None
    assert (taken.schedule.generation, taken.schedule.steps, taken.schedule.trial) == (6, SMALL, None)


BLIND = Counters("life", 45.0, generated=1e6, latency_sum=1e4, latency_count=1e6, running=16.0)


@pytest.mark.parametrize("missed", [{}, {("default", "pod-2"): BLIND}], ids=["not read", "not the package's"])
def test_an_engine_that_cannot_be_read_for_once_does_not_end_the_trial_it_still_runs(
    missed: dict[tuple[str, str], Counters],
) -> None:
    to, other = replace(TO, in_force=ON_TRIAL), ("default", "pod-2")
    unclear, evidence, reasons = Pairs(20, 0.1, 0.4), Evidence(), []
    for tick in (1, 2, 3):
        now = {POD: counters(tick, TrialCount(5, unclear, running=False)), **(missed if tick == 3 else {})}
        if tick < 3:
            now[other] = counters(tick, TrialCount(5, unclear, running=True))
        taken = step(evidence, now, FIGURE_3.profile(), to, True, 1e6 + 15 * tick)
        evidence = taken.evidence
        reasons.append(taken.decision.reason)
    assert reasons[1:] == [Reason.VERIFYING, Reason.VERIFYING]


def test_a_package_that_is_not_heard_for_a_while_leaves_no_gap_and_at_last_vllms_own_series_count() -> None:
    evidence = step(Evidence(), {POD: counters(1)}, (), TO, False, 1e6).evidence
    blind = replace(BLIND, at=30.0)
    lost = step(evidence, {POD: blind}, (), TO, False, 1e6)
    assert (lost.windows, lost.evidence.before) == ({}, evidence.before)
    back = step(lost.evidence, {POD: counters(3)}, (), TO, False, 1e6).windows[POD]
    assert (back.seconds, back.cells[0, 16].steps) == (30.0, 200.0)
    for at in (930.0, 960.0):
        last = step(
            evidence, {POD: replace(blind, at=at, latency_sum=at, latency_count=40 * at)}, (), TO, False, 1e6
        )
        evidence = last.evidence
    assert last.windows[POD].cells == {(0, 1): Cell(1200.0, 30.0, 1200.0, 0.0)}


@pytest.mark.parametrize(("mode", "proves"), [("Apply", True), ("Observe", False), ("Recommend", False)])
def test_only_mode_apply_proves(mode: str, proves: bool) -> None:
    with open("deploy/samples/sim-two-replicas.yaml") as file:
        sd = SpeculativeDeployment.model_validate(yaml.safe_load(file))
    spec = sd.spec.model_copy(update={"tuning": sd.spec.tuning.model_copy(update={"mode": mode})})
    assert settings(spec, ON_TRIAL).prove is proves


def test_looks_without_a_clean_step_add_up_until_there_is_one() -> None:
    """An engine that cuts most drafts times few whole steps; what it counted between them is not lost."""
    first = counters(1)
    cut = replace(
        first, at=30.0, drafted=(1700.0,) * 3, accepted=(1400.0,) * 3, all_steps=250.0, trimmed_rows=500.0
    )
    whole = replace(counters(3), trimmed_rows=500.0)
    evidence = Evidence()
    for seen in (first, cut, whole):
        taken = step(evidence, {POD: seen}, FIGURE_3.profile(), TO, False, seen.at)
        evidence = taken.evidence
    assert taken.windows[POD].seconds == 30.0
    assert taken.windows[POD].drafted == (16 * 200.0,) * 3


def test_a_reading_that_comes_twice_neither_ends_nor_lengthens_what_adds_up() -> None:
    """As from a Prometheus that scrapes less often than the tuner looks."""
    first = replace(counters(1), generated=0.0)
    unclean = [replace(first, at=15.0 * n, all_steps=200.0 + 30 * n) for n in (2, 3, 4)]
    whole = counters(5)
    evidence = Evidence()
    for seen in (first, *(u for one in unclean for u in (one, one, one)), whole):
        taken = step(evidence, {POD: seen}, FIGURE_3.profile(), TO, False, seen.at)
        evidence = taken.evidence
    assert taken.windows[POD].seconds == whole.at - first.at


def test_idle_time_ends_what_adds_up() -> None:
    """Traffic that comes back is no window over the night."""
    first = replace(counters(1), generated=0.0)
    unclean = replace(first, at=30.0, all_steps=first.all_steps + 50, generated=100.0)
    later = replace(counters(2), at=615.0, all_steps=first.all_steps + 150, generated=1700.0)
    evidence = Evidence()
    for seen in (first, unclean, *(replace(unclean, at=at) for at in (45.0, 60.0, 600.0)), later):
        taken = step(evidence, {POD: seen}, FIGURE_3.profile(), TO, False, seen.at)
        evidence = taken.evidence
    assert taken.windows[POD].seconds == 15.0
    assert taken.windows[POD].generated == 1600.0


def test_an_operator_that_came_late_learns_of_a_load_that_engines_did_not_list() -> None:
    """Seven cells are listed at depth 7; one that comes back has no baseline, which must not last."""
    listed = {(k, b): Cell(100.0, 2.0, 100.0 * b, 150.0 * b) for k in (0, 7) for b in (1, 2, 4)}
    listed[7, 8] = Cell(100.0, 2.0, 800.0, 1200.0)
    drafted = (1e4,) * 7

    def seen(tick: int) -> Counters:
        back = {
            (0, 16): Cell(5000.0 + 100 * tick, 100.0 + 2 * tick, 80000.0 + 1600 * tick, 90000.0 + 1600 * tick)
        }
        cells = {**listed, **(back if tick else {})}
        trimmed = 100.0 * tick  # the budget is on, so that vLLM's own latency is no way out
        return Counters(
            "life", 15.0 * tick, dict(list(cells.items())[-7:]), drafted, drafted, all_steps=9000.0 + 100 * tick,
            trimmed_rows=trimmed, live=True, trial=ABLE,
        )  # fmt: skip

    evidence, windows = Evidence(), []
    for tick in range(4):
        taken = step(evidence, {POD: seen(tick)}, FIGURE_3.profile(), TO, False, 1e6 + 15 * tick)
        evidence = taken.evidence
        windows.append({key: cell.steps for w in taken.windows.values() for key, cell in w.cells.items()})
    assert windows == [{}, {}, {(0, 16): 100.0}, {(0, 16): 100.0}]
