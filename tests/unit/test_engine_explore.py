"""Exploration: what it spends never exceeds what the price earned."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot_engine.explore import MAX_SHARE, RUN, Explorer
from specpilot_engine.protocol import Exploration

ON = Exploration(price=0.01, tokens=7, cost=0.5, max_batch=64)


def explore(explorer: Explorer, x: Exploration, steps: int) -> list[bool]:
    return [explorer.step(x, True, lambda: True) for _ in range(steps)]


@given(st.floats(0.0001, 1.0), st.floats(0.0, 50.0), st.integers(0, 3000))
def test_the_goodput_spent_is_at_most_the_price_of_all_steps(price, cost, steps):
    done = sum(explore(Explorer(), Exploration(price, 7, cost, 64), steps))
    assert done * cost <= price * steps * (1 + 1e-9)
    assert done <= MAX_SHARE * steps * (1 + 1e-9)


@given(
    st.lists(st.tuples(st.floats(0, 0.05), st.floats(0.01, 5.0), st.booleans(), st.booleans()), max_size=400)
)
def test_it_stays_within_the_price_while_price_cost_and_batch_change(turns):
    explorer, earned, spent = Explorer(), 0.0, 0.0
    for price, cost, differs, may_start in turns:
        earned += price
        if explorer.step(Exploration(price, 7, cost, 64), differs, lambda may=may_start: may):
            spent += cost
        assert spent <= earned * (1 + 1e-9)


def test_it_uses_the_price_up():
    done = sum(explore(Explorer(), ON, 10_000))
    assert 0.98 * 0.01 / 0.5 <= done / 10_000 <= 0.01 / 0.5


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
        assert not explorer.step(ON, False, lambda: True)
    assert sum(explore(explorer, ON, 60)) == RUN


def test_a_run_does_not_start_where_the_engine_has_no_room_and_asks_only_when_it_could():
    explorer, asked = Explorer(), []

    def full() -> bool:
        asked.append(1)
        return False

    flags = [explorer.step(ON, True, full) for _ in range(RUN * 50)]
    assert not any(flags)
    assert len(asked) == 1


def test_a_run_ends_when_the_batch_leaves_its_bounds():
    explorer = Explorer()
    while not explorer.step(ON, True, lambda: True):
        pass
    assert not explorer.step(ON, False, lambda: True)
    assert not explorer.step(ON, True, lambda: True)


def test_the_share_it_tells_follows_what_it_spends():
    explorer = Explorer()
    explore(explorer, ON, 20_000)
    assert explorer.share == pytest.approx(0.01, rel=0.2)
    assert explorer.explored == pytest.approx(20_000 * 0.02, rel=0.02)


def explored(x: Exploration, pieces: list[tuple[int, bool]]) -> tuple[list[int], list[int]]:
    """Explored steps after each piece of (steps, whether exploring may): in stretches, and step by step."""
    bulk, single = Explorer(), Explorer()
    counts: tuple[list[int], list[int]] = ([], [])
    for length, differs in pieces:
        for _ in range(length):
            single.step(x, differs, lambda: True)
        left = length
        while left:
            explores, most = bulk.stretch(x, differs)
            steps = int(min(most, left))
            bulk.took(x, explores, steps)
            left -= steps
        counts[0].append(bulk.explored)
        counts[1].append(single.explored)
        assert bulk.share == pytest.approx(single.share, abs=1e-9)
    return counts


@settings(max_examples=50)
@given(
    st.integers(1, 100),
    st.integers(0, 500),
    st.lists(st.tuples(st.integers(1, 400), st.booleans()), min_size=1, max_size=6),
)
def test_exploring_in_stretches_is_exploring_step_by_step(price, more, pieces):
    # Prices and costs whose sums are exact, and a cost that is above what bounds the share.
    bulk, single = explored(Exploration(price / 1024, 3, (5 * price + more) / 1024, 16), pieces)
    assert bulk == single


def test_however_cheap_exploring_is_a_fifth_of_the_steps_at_most_explores():
    bulk, single = explored(Exploration(0.02, 3, 0.0, 16), [(10_000, True)])
    assert bulk[0] == pytest.approx(2000, abs=4)
    assert single[0] == pytest.approx(2000, abs=4)
