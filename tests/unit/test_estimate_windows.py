"""Windows: differences of one life's counters, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.estimate.counters import Cell, Counters, TrialCount
from specpilot.estimate.discards import Discard, Discarded
from specpilot.estimate.windows import Window, between
from specpilot_engine.protocol import ModelShape

BEFORE = Counters(
    "pod-1",
    1000.0,
    cells={(3, 16): Cell(100, 2.0, 1600, 3200, 1600 * 512)},
    drafted=(5000.0, 5000.0, 5000.0),
    accepted=(3000.0, 2000.0, 1000.0),
    all_steps=400,
    generated=10000,
    prompt=5000,
    preemptions=0,
    generation=4,
)
AFTER = replace(
    BEFORE,
    at=1015.0,
    cells={(3, 16): Cell(600, 12.5, 9600, 20000, 9600 * 512)},
    drafted=(13000.0, 13000.0, 13000.0),
    accepted=(8000.0, 5000.0, 2500.0),
    all_steps=950,
    generated=28000,
    prompt=5600,
)


def window(before: Counters = BEFORE, after: Counters = AFTER) -> Window:
    found = between(before, after)
    assert isinstance(found, Window), found
    return found


def reason(before: Counters, after: Counters) -> Discard:
    found = between(before, after)
    assert isinstance(found, Discarded), found
    assert found.message
    return found.reason


def test_a_window_holds_the_differences() -> None:
    w = window()
    assert w.cells == {(3, 16): Cell(500, 10.5, 8000, 16800, 8000 * 512)}
    assert w.drafted == (8000.0, 8000.0, 8000.0)
    assert w.accepted == (5000.0, 3000.0, 1500.0)
    assert (w.seconds, w.steps, w.goodput, w.context) == (15.0, 500, 1200.0, 512.0)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (replace(AFTER, life="pod-1/restart-1"), Discard.OTHER_LIFE),
        (replace(AFTER, at=990.0), Discard.CLOCK_BACK),
        (replace(AFTER, at=1000.0), Discard.CLOCK_BACK),
        (replace(AFTER, at=1000.0 + 3600), Discard.GAP),
        (replace(AFTER, at=math.nan), Discard.NOT_A_NUMBER),
        (replace(AFTER, generated=9000), Discard.RESET),
        (replace(AFTER, drafted=(4000.0, 5000.0, 5000.0)), Discard.RESET),
        (replace(AFTER, cells={(3, 16): Cell(90, 1.9, 1500, 3000)}), Discard.RESET),
        (replace(AFTER, generated=math.nan), Discard.NOT_A_NUMBER),
        (replace(AFTER, accepted=(math.nan, 1.0, 1.0)), Discard.NOT_A_NUMBER),
        (replace(AFTER, drafted=(math.inf, 9e3, 9e3)), Discard.NOT_A_NUMBER),
        (replace(AFTER, prompt=-1.0), Discard.NOT_A_NUMBER),
        (replace(AFTER, cells={(3, 16): Cell(600, math.nan, 9600, 20000)}), Discard.NOT_A_NUMBER),
        (replace(BEFORE, at=1015.0), Discard.IDLE),
        (replace(BEFORE, at=1015.0, all_steps=420.0), Discard.NOTHING_CLEAN),
    ],
)
def test_what_is_no_window_is_discarded_with_its_reason(after: Counters, expected: Discard) -> None:
    assert reason(BEFORE, after) is expected


def test_a_cell_that_first_appears_is_skipped_when_others_may_have_been_hidden() -> None:
    before = replace(BEFORE, cells={(0, 1): Cell(5, 0.1, 5, 5), (3, 16): BEFORE.cells[3, 16]})
    after = replace(AFTER, cells={(1, 8): Cell(9000, 90.0, 72000, 120000), (3, 16): AFTER.cells[3, 16]})
    assert set(window(before, after).cells) == {(3, 16)}


def test_a_cell_that_first_appears_counts_from_zero_when_none_was_hidden() -> None:
    after = replace(AFTER, cells={**AFTER.cells, (1, 8): Cell(50, 0.5, 400, 640)})
    assert window(after=after).cells[1, 8] == Cell(50, 0.5, 400, 640)


def test_a_cell_that_first_appears_has_no_more_steps_than_the_engine_took() -> None:
    # An engine package that exports another number of cells while a schedule is on trial.
    after = replace(AFTER, cells={**AFTER.cells, (3, 1): Cell(30_000, 600.0, 30_000, 70_000)})
    assert set(window(after=after).cells) == {(3, 16)}


def test_all_cells_count_from_zero_when_the_life_began_in_the_window() -> None:
    before = Counters("pod-1", 1000.0, all_steps=0, drafted=(0.0,) * 3, accepted=(0.0,) * 3, generated=0)
    assert window(before).cells[3, 16] == AFTER.cells[3, 16]


def test_accepted_never_exceeds_drafted() -> None:
    w = window(after=replace(AFTER, accepted=(13001.0, 5000.0, 2500.0)))
    assert w.accepted[0] == w.drafted[0] == 8000


def test_positions_that_come_or_go_are_no_evidence() -> None:
    w = window(before=replace(BEFORE, drafted=(), accepted=()))
    assert (w.drafted, w.accepted) == ((), ())


def test_context_by_total_counts_only_between_equal_sets_of_cells() -> None:
    def plain(c: Counters, total: float, *extra: tuple[int, int]) -> Counters:
        cells = {key: replace(cell, context=0.0) for key, cell in c.cells.items()}
        return replace(c, cells={**cells, **dict.fromkeys(extra, Cell(1, 1, 1, 1))}, context_tokens=total)

    assert window(plain(BEFORE, 1e6), plain(AFTER, 1e6 + 8000 * 300)).context == 300
    assert window(plain(BEFORE, 1e6), plain(AFTER, 9e6, (0, 1))).context is None


# Without the engine package: vLLM's own series.
STOCK_BEFORE = Counters(
    "pod-1", 0.0, generated=0, prompt=0, preemptions=0, latency_sum=0, latency_count=0, first_tokens=0,
    drafts=0, drafted_tokens=0, accepted_tokens=0,
)  # fmt: skip
STOCK_AFTER = Counters(
    "pod-1", 10.0, generated=8010, prompt=1000, preemptions=0, latency_sum=80.0, latency_count=4000,
    first_tokens=10, drafts=4000, drafted_tokens=12000, accepted_tokens=4000,
)  # fmt: skip


def test_stock_series_give_step_time_batch_depth_and_length() -> None:
    w = window(STOCK_BEFORE, STOCK_AFTER)
    cell = w.cells[3, 8]  # 80 request-seconds in 10 s: a batch of 8; 3 tokens a draft
    assert cell.seconds / cell.steps == pytest.approx(0.02)
    assert cell.requests / cell.steps == pytest.approx(8)
    assert cell.emitted / cell.requests == pytest.approx(2.0)
    assert sum(w.accepted) / w.drafted[0] == pytest.approx(1.0)
    assert w.accepted[0] > w.accepted[1] > w.accepted[2]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"prompt": 100000.0}, Discard.PROMPT_HEAVY),
        ({"preemptions": 2.0}, Discard.PREEMPTED),
        ({"latency_sum": 0.0, "latency_count": 0.0}, Discard.IDLE),
    ],
)
def test_latency_that_is_no_step_time_is_discarded(change: dict[str, float], expected: Discard) -> None:
    assert reason(STOCK_BEFORE, replace(STOCK_AFTER, **change)) is expected


@pytest.mark.parametrize(
    ("steps", "drafts", "drafted", "depth"),
    [
        (100, 4000, 12000, None),  # the next look may see a clean one
        (500, 4000, 12000, 3),  # a prompt is in every step
        (500, 4000, 11800, 3),  # the last tokens of requests: drafts cut short
        (500, 4000, 22000, None),  # depths 4 and 7 at batch sizes that come in turns
        (500, 2000, 14000, None),  # depths 0 and 7
        (500, 20, 140, 0),  # depth 0, and 7 explored
        (500, 3980, 11940, 3),  # depth 3, and 0 explored
        (500, 0, 0, 0),
    ],
)
def test_without_a_clean_step_latency_stands_in_where_waiting_is_in_vain(
    steps: int, drafts: int, drafted: int, depth: int | None
) -> None:
    before = replace(STOCK_BEFORE, all_steps=0, explored_steps=10)
    after = replace(STOCK_AFTER, all_steps=steps, explored_steps=12)
    after = replace(after, drafts=drafts, drafted_tokens=drafted)
    if depth is None:
        assert reason(before, after) is Discard.NOTHING_CLEAN
    else:
        assert list(window(before, after).cells) == [(depth, 8)]


@pytest.mark.parametrize(("drafts", "depth"), [(4000, 4), (2400, 4), (300, 4), (0, 0)])
@pytest.mark.parametrize("steps", [500, None])
def test_a_drafter_that_proposes_what_it_finds_is_of_its_depth_however_little_that_is(
    drafts: int, depth: int, steps: int | None
) -> None:
    shape = ModelShape(1, 1.0, 1.0, device="cpu")
    before = replace(STOCK_BEFORE, all_steps=steps and 0, shape=shape)
    after = replace(STOCK_AFTER, all_steps=steps, drafts=drafts, drafted_tokens=4 * drafts, shape=shape)
    assert list(window(before, after).cells) == [(depth, 8)]


def test_where_a_tenth_of_the_steps_explores_latency_is_of_no_depth() -> None:
    before = replace(STOCK_BEFORE, all_steps=0, explored_steps=0)
    assert reason(before, replace(STOCK_AFTER, all_steps=500, explored_steps=60)) is Discard.NOTHING_CLEAN


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (TrialCount(3, running=True), TrialCount(3, running=True), False),
        (TrialCount(3, running=True), TrialCount(3), False),
        (TrialCount(), TrialCount(3), False),  # begun and over between the two
        (TrialCount(3), TrialCount(3), True),
        (None, TrialCount(), True),
    ],
)
def test_latency_under_a_trial_is_of_no_depth_even_where_the_mean_is_whole(
    before: TrialCount | None, after: TrialCount | None, told: bool
) -> None:
    first, last = replace(STOCK_BEFORE, all_steps=0), replace(STOCK_AFTER, all_steps=500)
    found = between(replace(first, trial=before), replace(last, trial=after))
    assert isinstance(found, Window) is told


def test_prompts_do_not_spoil_what_the_engine_package_timed() -> None:
    assert window(after=replace(AFTER, prompt=1e9, preemptions=3)).steps == 500


counts = st.lists(st.tuples(*[st.integers(0, 10**6)] * 3), min_size=3, max_size=3)


@given(counts)
def test_two_windows_add_up_to_the_one_over_both(increments: list[tuple[int, int, int]]) -> None:
    readings, totals = [], [0, 0, 0]
    for i, row in enumerate(increments):
        totals = [t + r for t, r in zip(totals, row, strict=True)]
        steps = totals[0] + 10 * i + 1
        readings.append(
            Counters(
                "pod-1",
                10.0 * i,
                {(1, 4): Cell(steps, steps * 0.01, steps * 3, steps * 4)},
                (float(totals[1] + totals[2]),),
                (float(totals[1]),),
                generated=sum(totals) + i,
            )
        )
    one, two = window(readings[0], readings[1]), window(readings[1], readings[2])
    both = window(readings[0], readings[2])
    assert one.steps + two.steps == both.steps
    assert one.drafted[0] + two.drafted[0] == both.drafted[0]
    assert one.accepted[0] + two.accepted[0] == both.accepted[0]
    assert (one.generated or 0) + (two.generated or 0) == both.generated
    assert one.seconds + two.seconds == both.seconds


numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(numbers, min_size=12, max_size=12))
def test_garbage_gives_a_finite_window_or_a_reason(v: list[float]) -> None:
    after = Counters("pod-1", v[0], {(1, 4): Cell(*v[1:5])}, (v[5], v[6]), (v[7], v[8]), generated=v[9])
    found = between(Counters("pod-1", v[10], {(1, 4): Cell(1, 1, 1, 1)}, (0.0, 0.0), (0.0, 0.0)), after)
    if isinstance(found, Window):
        values = [found.seconds, *found.drafted, *found.accepted, found.steps]
        assert all(math.isfinite(x) and x >= 0 for x in values)
