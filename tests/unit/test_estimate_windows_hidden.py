"""Windows of engines that list only their latest cells: what is known of the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.test_estimate_windows import reason, window

from specpilot.estimate.counters import Cell, Counters
from specpilot.estimate.discards import Discard, Discarded
from specpilot.estimate.windows import Window, between, remember, waiting
from specpilot_engine.protocol import Step, Trial, bucket, exported_cells
from specpilot_engine.record import Recorder
from specpilot_engine.trial import TrialRun

STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 300)), max_size=30)


def reading(recorder: Recorder, steps: list[tuple[int, int]], on_trial: bool = False) -> Counters:
    """What an engine exports after `steps` more, of (depth, batch)."""
    recorder.trial = TrialRun(Trial((Step(8, 1),), 4, 9), 2) if on_trial else None
    for tokens, batch in steps:
        recorder.all_steps += 1
        recorder.clean_step(tokens, batch, 100 * batch, 0.02, batch)
    exported = recorder.exported_cells().items()
    cells = {key: Cell(c.steps, c.seconds, c.requests, c.emitted, c.context) for key, c in exported}
    positions = (0.0,) * recorder.positions
    return Counters(
        "one", float(recorder.all_steps), cells, positions, positions, all_steps=recorder.all_steps
    )


@given(STEPS, STEPS, st.booleans(), st.booleans())
def test_a_window_never_holds_steps_of_another_time(past, present, trial_before, trial_after) -> None:
    recorder = Recorder(7)
    before = reading(recorder, past, trial_before)
    after = reading(recorder, [*present, (7, 256)], trial_after)
    truth = Counter((tokens, bucket(batch)) for tokens, batch in [*present, (7, 256)])
    found = between(before, after)
    cells = found.cells if isinstance(found, Window) else {}
    assert {key: cell.steps for key, cell in cells.items()} == {key: truth[key] for key in cells}


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([0, 7]), st.sampled_from([1, 16, 256])), max_size=9), max_size=9
    )
)
def test_who_has_watched_an_engine_from_its_start_misses_no_step(looks) -> None:
    recorder, known = Recorder(7), None
    for steps in [[], *looks]:
        now = reading(recorder, steps)
        if known is not None and steps:
            cells = window(known, now).cells
            truth = Counter((tokens, bucket(batch)) for tokens, batch in steps)
            assert {key: cell.steps for key, cell in cells.items()} == truth
        known = remember(known, now)


@given(STEPS, st.lists(STEPS, max_size=9))
def test_steps_that_were_displaced_between_two_looks_never_add_up_to_more_than_were_taken(
    past, looks
) -> None:
    recorder = Recorder(7)
    known = remember(None, reading(recorder, past))
    for steps in looks:
        now = reading(recorder, steps)
        found = between(known, now)
        cells = found.cells if isinstance(found, Window) else {}
        truth = Counter((tokens, bucket(batch)) for tokens, batch in steps)
        assert sum(cell.steps for cell in cells.values()) <= len(steps) + 1
        assert all(cells[key].steps == truth[key] for key in cells.keys() & known.cells.keys())
        known = remember(known, now)


def test_what_was_displaced_between_two_looks_teaches_nothing_where_it_comes_back_for_a_moment() -> None:
    recorder, loads = Recorder(7), [(0, 2**n) for n in range(exported_cells(7))]
    known = remember(None, reading(recorder, [(3, 16)] * 50))
    known = remember(known, reading(recorder, [(3, 16)] * 500 + loads))
    assert set(window(known, reading(recorder, [(3, 16)] * 9 + [(0, 1)])).cells) == {(0, 1)}


def test_a_reading_that_falls_into_a_step_costs_nothing_of_what_comes_back() -> None:
    recorder, loads = Recorder(7), [(0, 2**n) for n in range(exported_cells(7))]
    known = remember(None, reading(recorder, [(3, 16)] * 50))
    known = replace(remember(known, reading(recorder, loads)), all_steps=recorder.all_steps + 1.0)
    assert window(known, reading(recorder, [(3, 16)] * 20)).cells[3, 16].steps == 20


def test_a_cell_that_comes_back_goes_on_from_what_was_last_seen_of_it() -> None:
    recorder = Recorder(7)
    known = remember(None, reading(recorder, [(3, 16)] * 50))
    loads = [(0, 2**n) for n in range(exported_cells(7))]
    for steps in (loads, loads[::-1]):
        known = remember(known, reading(recorder, steps))
    assert (3, 16) not in known.cells
    back = reading(recorder, [(3, 16)] * 20)
    assert window(known, back).cells[3, 16].steps == 20
    other = replace(back, life="two")
    assert remember(known, other).hidden == {}


def test_an_operator_that_came_late_does_not_take_old_steps_for_new() -> None:
    recorder = Recorder(7)
    loads = [(0, 2**n) for n in range(exported_cells(7))]
    known = remember(None, reading(recorder, [(3, 16)] * 50 + loads))
    assert not known.whole
    now = reading(recorder, [(3, 16)] * 60)
    assert reason(known, now) is Discard.NOTHING_CLEAN
    held = waiting(known, now)
    assert window(held, reading(recorder, [(3, 16)] * 70)).cells[3, 16].steps == 70


@given(STEPS, STEPS, STEPS, st.booleans())
def test_what_was_not_read_for_a_while_is_no_window_of_steps(past, meanwhile, present, known_before) -> None:
    """vLLM's own series may be there without the engine package's: another port, another scrape."""
    recorder = Recorder(7)
    known = remember(None, reading(recorder, past)) if known_before else None
    blind = replace(reading(recorder, meanwhile), cells={}, drafted=(), accepted=(), all_steps=None)
    blind = remember(known, replace(blind, at=blind.at + 0.1))
    now = replace(reading(recorder, present), at=blind.at + 60)
    found = between(blind, now)
    assert not isinstance(found, Window) or found.cells == {}
    known = remember(blind, now)
    later = replace(reading(recorder, [(7, 256)]), at=now.at + 60)
    found = between(known, later)
    assert isinstance(found, Discarded) or {key: cell.steps for key, cell in found.cells.items()} == {
        (7, 256): 1
    }
