"""Exploration: what it spends never exceeds what the price earned."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot_engine.explore import MAX_SHARE, RUN, STEADY, Explorer
from specpilot_engine.protocol import Exploration

ON = Exploration(price=0.01, tokens=7, cost=0.5, max_batch=64)


def explore(explorer: Explorer, x: Exploration, steps: int) -> list[bool]:
    return [explorer.step(x, True, 16, lambda: True) for _ in range(steps)]


@given(st.floats(0.0001, 1.0), st.floats(0.0, 50.0), st.integers(0, 3000))
def test_the_goodput_spent_is_at_most_the_price_of_all_steps(price, cost, steps):
    done = sum(explore(Explorer(), Exploration(price, 7, cost, 64), steps))
    assert done * cost <= price * steps * (1 + 1e-9)
    assert done <= MAX_SHARE * steps * (1 + 1e-9)


@given(
    st.lists(
        st.tuples(st.floats(0, 0.05), st.floats(0.01, 5.0), st.booleans(), st.integers(1, 64), st.booleans()),
        max_size=400,
    )
)
def test_it_stays_within_the_price_while_price_cost_and_batch_change(turns):
    explorer, earned, spent = Explorer(), 0.0, 0.0
    for price, cost, differs, batch, may_start in turns:
        earned += price
        if explorer.step(Exploration(price, 7, cost, 64), differs, batch, lambda may=may_start: may):
            spent += cost
        assert spent <= earned * (1 + 1e-9)


def test_it_uses_the_price_up_but_for_a_run_in_reserve():
    done = sum(explore(Explorer(), ON, 10_000))
    assert 10_000 * 0.01 / 0.5 - 2 * RUN <= done <= 10_000 * 0.01 / 0.5 - RUN


@pytest.mark.parametrize(("batch", "soon"), [(3, True), (9, True), (10, False), (25, False), (26, True)])
def test_a_run_is_in_reserve_for_when_the_load_moves(batch, soon):
    explorer = Explorer()
    explore(explorer, ON, 1000)
    while not explore(explorer, ON, 1)[0]:
        pass
    explore(explorer, ON, RUN - 1 + 5)  # a run ended five steps ago, at 16 requests
    done = [explorer.step(ON, True, batch, lambda: True) for _ in range(STEADY + RUN + 1)]
    assert done == [False] * STEADY + [soon] * RUN + [False]


@pytest.mark.parametrize("way", [[1] * 7 + [3] * 7, [12, 12, 9, 9, 9, 6, 6, 4], [0, 1, 2, 3], [40] * 8 + [2]])
def test_the_run_in_reserve_waits_until_the_load_has_arrived(way):
    explorer = Explorer()
    explore(explorer, ON, 2000)
    while explorer.step(ON, True, 16, lambda: True):
        pass  # a run, if one is under way, ends
    saved = [explorer.step(ON, True, batch, lambda: True) for batch in way if batch]
    assert not any(saved)
    later = [explorer.step(ON, True, 4, lambda: True) for _ in range(STEADY + RUN)]
    assert later.count(True) == RUN  # where it is now


def test_a_load_that_grew_step_by_step_counts_as_what_it_grew_to():
    explorer = Explorer()
    for _ in range(300):
        explorer.step(ON, False, 40, lambda: True)  # saves up one run and a half
    for batch in (1, 2, 5, 9, *[16] * 150):
        explorer.step(ON, True, batch, lambda: True)
    assert explorer.explored == RUN
    for _ in range(STEADY + RUN):
        explorer.step(ON, True, 4, lambda: True)
    assert explorer.explored == 2 * RUN


def test_what_moves_to_and_fro_has_no_more_than_its_price():
    explorer = Explorer()
    done = sum(explorer.step(ON, True, (2, 32)[n // 7 % 2], lambda: True) for n in range(10_000))
    assert done <= 10_000 * 0.01 / 0.5


def test_it_explores_in_runs_so_that_steps_have_equal_neighbours():
    flags = "".join("x" if f else "." for f in explore(Explorer(), ON, 3000))
    runs = [len(run) for run in flags.split(".") if run]
    assert runs
    assert set(runs[:-1]) == {RUN}


def test_a_price_of_zero_never_explores_and_forgets_what_was_saved():
    explorer = Explorer()
    explore(explorer, replace(ON, price=0.001), 1900)
    assert not any(explore(explorer, replace(ON, price=0.0), 100))
    assert not any(explore(explorer, ON, 100))


def test_a_quiet_time_saves_up_one_run_and_no_burst():
    explorer = Explorer()
    for _ in range(100_000):
        assert not explorer.step(ON, False, 16, lambda: True)
    assert sum(explore(explorer, ON, 60)) == RUN


def test_a_run_does_not_start_where_the_engine_has_no_room_and_asks_only_when_it_could():
    explorer, asked = Explorer(), []

    def full() -> bool:
        asked.append(1)
        return False

    flags = [explorer.step(ON, True, 16, full) for _ in range(RUN * 50)]
    assert not any(flags)
    assert len(asked) == 1


def test_a_run_ends_when_the_batch_leaves_its_bounds():
    explorer = Explorer()
    while not explorer.step(ON, True, 16, lambda: True):
        pass
    assert not explorer.step(ON, False, 16, lambda: True)
    assert not explorer.step(ON, True, 16, lambda: True)


def test_the_share_it_tells_follows_what_it_spends():
    explorer = Explorer()
    explore(explorer, ON, 20_000)
    assert explorer.share == pytest.approx(0.01, rel=0.2)
    assert explorer.explored == pytest.approx(20_000 * 0.02, rel=0.02)


def explored(x: Exploration, pieces: list[tuple[int, bool, int]]) -> tuple[list[int], list[int]]:
    """Explored steps after each piece of (steps, whether exploring may, batch): in stretches, and step by step."""
    bulk, single = Explorer(), Explorer()
    counts: tuple[list[int], list[int]] = ([], [])
    for length, differs, batch in pieces:
        for _ in range(length):
            single.step(x, differs, batch, lambda: True)
        left = length
        while left:
            explores, most = bulk.stretch(x, differs, batch)
            steps = int(min(most, left))
            bulk.took(x, explores, batch, steps)
            left -= steps
        counts[0].append(bulk.explored)
        counts[1].append(single.explored)
        assert bulk.share == pytest.approx(single.share, abs=1e-9)
    return counts


@settings(max_examples=50)
@given(
    st.integers(1, 100),
    st.integers(0, 500),
    st.lists(st.tuples(st.integers(1, 400), st.booleans(), st.integers(1, 40)), min_size=1, max_size=6),
)
def test_exploring_in_stretches_is_exploring_step_by_step(price, more, pieces):
    # Prices and costs whose sums are exact, and a cost that is above what bounds the share.
    bulk, single = explored(Exploration(price / 1024, 3, (5 * price + more) / 1024, 16), pieces)
    assert bulk == single


def test_however_cheap_exploring_is_a_fifth_of_the_steps_at_most_explores():
    bulk, single = explored(Exploration(0.02, 3, 0.0, 16), [(10_000, True, 16)])
    assert bulk[0] == pytest.approx(2000, abs=2 * RUN)
    assert single[0] == pytest.approx(2000, abs=2 * RUN)
