"""The simulated engine: it counts and explores as the engine package does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.replay_small import PHASE, small

from specpilot.estimate.counters import Counters, TrialCount
from specpilot.estimate.windows import Window, between
from specpilot.replay.counting import Ledger, Stretch
from specpilot.replay.engine import ScheduleRefused
from specpilot.replay.play import play
from specpilot.replay.policy import Setup, everywhere
from specpilot.replay.world import World
from specpilot_engine import record
from specpilot_engine.protocol import Exploration, Schedule, Step


@dataclass
class Watch:
    """Keeps what it is shown, and plays the schedules given in turn."""

    schedules: list[Schedule]
    seen: list[Counters] = field(default_factory=list)

    def start(self, setup: Setup) -> Schedule:
        self.setup = setup
        return self.schedules[0]

    def look(self, counters: Counters, now: float) -> Schedule:
        assert now == counters.at
        self.seen.append(counters)
        return self.schedules[min(len(self.seen), len(self.schedules)) - 1]


def watch(world: World, *schedules: Schedule) -> list[Counters]:
    policy = Watch(list(schedules))
    play(world, policy, 0)
    return policy.seen


def window(before: Counters, after: Counters) -> Window:
    found = between(before, after)
    assert isinstance(found, Window)
    return found


def at(depth: int, x: Exploration | None = None) -> Schedule:
    return Schedule(1, (Step(16, depth),), x or Exploration())


def test_a_window_shows_the_true_step_time_survival_and_batch() -> None:
    seen = watch(small(step_noise=0.1, window_noise=0.0), at(3))
    assert [c.at - seen[0].at for c in seen] == [15 * i for i in range(9)]
    whole = window(seen[0], seen[-1])
    cell = whole.cells[3, 8]
    assert list(whole.cells) == [(3, 8)]
    assert cell.seconds / cell.steps == pytest.approx(0.034, rel=0.01)
    assert cell.requests / cell.steps == 8
    assert cell.context / cell.requests == 8192
    assert cell.emitted / cell.requests == pytest.approx(2.8, rel=0.01)
    accepted = [a / d for a, d in zip(whole.accepted, whole.drafted, strict=True)]
    assert accepted == pytest.approx([0.8, 0.6, 0.4], abs=0.01)
    assert whole.generated == pytest.approx(120 * 8 * 2.8 / 0.034, rel=0.01)


def test_every_scrape_holds_its_seconds_of_steps() -> None:
    seen = watch(small(step_noise=0.0, window_noise=0.0), at(0))
    # A step of 20 ms that has begun is counted whole.
    assert [c.all_steps for c in seen] == [750 * i for i in range(9)]
    assert seen[-1].latency_count == 6000 * 8
    assert seen[-1].latency_sum == pytest.approx(120 * 8)
    assert (seen[-1].drafts, seen[-1].drafted) == (0, (0, 0, 0))


def test_exploring_costs_its_price_and_shows_the_slots_beyond() -> None:
    x = Exploration(0.02, 3, 0.2, 16)
    seen = watch(small(), at(1, x))
    last = seen[-1]
    assert last.explored_steps is not None
    assert last.all_steps is not None
    share = last.explored_steps / last.all_steps
    assert share == pytest.approx(0.1, abs=0.005)
    assert last.drafted[1] == last.drafted[2] == last.explored_steps * 8
    # Of a run of four, two have equal neighbours.
    assert last.cells[3, 8].steps == pytest.approx(last.explored_steps / 2, abs=2)
    runs = last.explored_steps / 4
    assert last.cells[1, 8].steps == pytest.approx(last.all_steps - last.explored_steps - 2 * runs, abs=4)


def test_all_steps_of_a_window_share_its_factor() -> None:
    seen = watch(small(step_noise=0.0, window_noise=0.2), at(0))
    times = [w.cells[0, 8].seconds / w.cells[0, 8].steps for w in (window(a, b) for a, b in pairwise(seen))]
    assert len({round(t, 6) for t in times}) == 8
    again = watch(small(step_noise=0.0, window_noise=0.2), at(3))
    w = window(again[2], again[3])
    assert w.cells[3, 8].seconds / w.cells[3, 8].steps / times[2] == pytest.approx(34 / 20, rel=0.01)


def test_kinds_mixed_within_the_batch_have_their_shares_over_time() -> None:
    mixed = {**PHASE, "seconds": 1800, "traffic": {"code": 0.5, "prose": 0.5}, "traffic_per_request": True}
    apart, seen = [], watch(small(phases=[mixed], window_noise=0.0), at(3))
    for a, b in pairwise(seen):
        w = window(a, b)
        apart.append(w.accepted[0] / w.drafted[0])
    whole = window(replace(seen[0], at=seen[-2].at), seen[-1])
    assert whole.accepted[0] / whole.drafted[0] == pytest.approx(0.45, abs=0.06)
    # With eight requests the mix wanders, which drafts of one probability would not.
    assert 0.03 < max(apart) - 0.45 < 0.35


def test_a_depth_that_is_no_candidate_is_refused() -> None:
    with pytest.raises(ScheduleRefused, match=r"asked for the depths \[2\] where only \[0, 1, 3\] can"):
        watch(small(), at(2))
    with pytest.raises(ScheduleRefused, match=r"\[1, 5\]"):
        watch(small(), at(1, Exploration(0.01, 5, 1.0, 16)))


def test_a_policy_is_told_the_candidates_the_largest_batch_and_the_profile() -> None:
    policy = Watch([everywhere(0, Setup((0,), 32, (), 15))])
    world = small(phases=[{**PHASE, "requests": 32}], profile={"context": 8192, "error": 0.0})
    play(world, policy, 0)
    assert (policy.setup.depths, policy.setup.max_batch, policy.setup.interval) == ((0, 1, 3), 32, 15)
    assert [(p.tokens, p.batch) for p in policy.setup.profile[:3]] == [(0, 1), (0, 8), (0, 16)]
    assert policy.setup.profile[-1].seconds == pytest.approx(0.070)
    assert policy.seen[0].all_steps == 0


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 7), st.integers(1, 300)), max_size=40))
def test_the_export_is_bounded_as_the_engines(deepest: int, steps: list[tuple[int, int]]) -> None:
    ours, theirs = Ledger(deepest), record.Recorder(deepest)
    for depth, batch in steps:
        k = min(depth, deepest)
        ours.add(Stretch(k, batch, 100.0, 1, 1, 0.02, 0.02, batch, batch))
        theirs.clean_step(k, batch, 100 * batch, 0.02, batch)
    counters = ours.counters(0.0, 1, TrialCount(), 0, 0)
    exported = theirs.exported_cells()
    assert counters.cells.keys() == exported.keys()
    for key, cell in exported.items():
        mine = counters.cells[key]
        assert (mine.steps, mine.requests, mine.emitted) == (cell.steps, cell.requests, cell.emitted)
        assert mine.context == cell.context
    assert len(counters.drafted) == theirs.positions
