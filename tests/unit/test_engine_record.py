"""Counters: what is exported of them, and that they only ever grow."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from specpilot_engine.protocol import MAX_SERIES, bucket, exported_cells
from specpilot_engine.record import RING, Recorder


def test_a_cell_adds_up_the_batches_of_its_bucket():
    recorder = Recorder(5)
    recorder.clean_step(3, 5, 500, 0.010, 9)
    recorder.clean_step(3, 8, 900, 0.020, 17)
    recorder.clean_step(3, 9, 100, 0.030, 9)
    cells = recorder.exported_cells()
    assert set(cells) == {(3, 8), (3, 16)}
    cell = cells[3, 8]
    assert (cell.steps, cell.requests, cell.emitted, cell.context) == (2, 13, 26, 1400)
    assert cell.seconds == 0.010 + 0.020


def test_only_the_latest_cells_are_exported_and_one_that_returns_goes_on():
    recorder = Recorder(2)
    recorder.clean_step(2, 1, 10, 1.0, 1)
    for k in (0, 1):
        for batch in (1, 2, 4, 8, 16, 32):
            recorder.clean_step(k, batch, 10, 1.0, 1)
    cells = recorder.exported_cells()
    assert len(cells) == exported_cells(2) == 9
    assert (2, 1) not in cells
    recorder.clean_step(2, 1, 10, 1.0, 1)
    assert recorder.exported_cells()[2, 1].steps == 2


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 300)), max_size=200))
def test_an_exported_counter_never_shrinks(steps):
    recorder, last = Recorder(5), Counter()
    for k, batch in steps:
        recorder.clean_step(k, batch, 100, 0.01, batch)
        now = {key: cell.steps for key, cell in recorder.exported_cells().items()}
        assert all(now[key] >= last[key] for key in now)
        assert (k, bucket(batch)) in now
        last.update({key: n - last[key] for key, n in now.items()})


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=50))
def test_counts_by_position_are_those_of_counting_each_draft(drafts):
    recorder = Recorder(7)
    drafted, accepted = [0] * 7, [0] * 7
    for length, limit in drafts:
        taken = min(length, limit)
        recorder.draft_lengths[length] += 1
        recorder.accepted_lengths[taken] += 1
        for i in range(length):
            drafted[i] += 1
        for i in range(taken):
            accepted[i] += 1
    assert recorder.drafted() == drafted
    assert recorder.accepted() == accepted


def test_samples_are_those_after_the_one_asked_for_and_bounded():
    recorder = Recorder(2)
    for i in range(RING + 10):
        recorder.clean_step(2, 2, 2 * i, 0.5, 2)
    samples = recorder.samples()
    assert len(samples) == RING
    assert (samples[0].seq, samples[-1].seq) == (11, RING + 10)
    assert [s.seq for s in recorder.samples(RING + 8)] == [RING + 9, RING + 10]
    assert samples[-1].as_json() == [RING + 10, 2, 2, RING + 9, 0.5]


@given(st.integers(0, 64))
def test_no_depth_exports_more_than_the_series_allowed(max_tokens):
    recorder = Recorder(max_tokens)
    for k in range(max_tokens + 1):
        for batch in (1, 2, 4, 8, 16, 32, 64, 128):
            recorder.clean_step(k, batch, 10, 0.1, 1)
    cells = recorder.exported_cells()
    assert len(cells) == min(exported_cells(max_tokens), 8 * (max_tokens + 1)) >= 3
    # Beside six others, and four each of a trial and a row budget.
    assert 5 * len(cells) + 2 * recorder.positions + 14 <= MAX_SERIES
