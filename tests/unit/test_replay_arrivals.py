"""Open loops: arrivals, the batch that follows them, and latency."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.unit.replay_small import small
from tests.unit.test_replay_engine import Watch, at

from specpilot.replay.arrivals import Emissions, arrivals
from specpilot.replay.play import oracle, play
from specpilot.replay.policy import Fixed
from specpilot.replay.truth import Truth
from specpilot.replay.world import Phase, World


def open_phase(rate: float, seconds: float = 600, tokens: float = 100, **more: Any) -> dict[str, Any]:
    return {"seconds": seconds, "rate": rate, "output_tokens": tokens, "traffic": {"code": 1.0}, **more}


def opened(*phases: dict[str, Any], **more: Any) -> World:
    return small(phases=list(phases), step_noise=0.05, window_noise=0.0, **more)


def test_requests_arrive_at_the_rate_with_lengths_and_kinds_as_asked() -> None:
    phase = Phase(
        seconds=1000,
        rate=5.0,
        output_tokens=50.0,
        traffic={"code": 0.8, "prose": 0.2},
        traffic_per_request=True,
    )
    come = arrivals(phase, 300.0, np.random.default_rng(0))
    assert len(come.at) == pytest.approx(5000, rel=0.05)
    assert come.at == sorted(come.at)
    assert (come.at[0] >= 300, come.at[-1] <= 1300) == (True, True)
    assert np.mean(come.tokens) == pytest.approx(50, rel=0.05)
    assert np.mean(np.exp(-np.diff(come.at) * 5)) == pytest.approx(0.5, abs=0.02)  # exponential gaps
    assert np.mean(come.kind) == pytest.approx(0.2, abs=0.02)


def test_emissions_follow_the_survival_and_count_what_was_used() -> None:
    emissions = Emissions(np.array([0.8, 0.6, 0.4]), np.random.default_rng(0))
    taken = [t for _ in range(1000) for t in emissions.take(7)]
    emissions.settle()
    assert np.mean(taken) == pytest.approx(2.8, rel=0.02)
    assert emissions.accepted.tolist() == np.bincount(taken, minlength=5).tolist()
    assert [np.mean([t > j for t in taken]) for j in (1, 2, 3)] == pytest.approx([0.8, 0.6, 0.4], abs=0.02)


def test_everything_that_arrives_is_emitted_below_saturation() -> None:
    world = opened(open_phase(1.0))
    come = arrivals(world.phases[0], 0.0, np.random.default_rng((3, 2, 0)))
    for policy in (Fixed(0), Fixed(3)):
        tokens = play(world, policy, 3).phases[0].tokens
        assert tokens == pytest.approx(sum(come.tokens), rel=0.01)


def test_latency_at_a_small_rate_is_the_time_of_the_answer_alone() -> None:
    # Hardly two requests at once: 100 tokens at 2.8 a step of 16 ms, and 10 ms each without drafts.
    world = opened(
        open_phase(0.05, seconds=6000),
        batches=[1, 2, 16],
        step_time_ms=[[10] * 3, [12] * 3, [16] * 3],
        scrape_seconds=600,
    )
    arrived = len(arrivals(world.phases[0], 0.0, np.random.default_rng((0, 2, 0))).at)
    deep, none = (play(world, Fixed(k), 0).phases[0].stayed / arrived for k in (3, 0))
    # The last step emits what is left, and half a step passes before a request is in the batch.
    assert none == pytest.approx(1.0, rel=0.05)
    assert deep == pytest.approx(0.016 * (100 / 2.8 + 0.5), rel=0.05)


def test_the_batch_follows_the_load_as_littles_law_says() -> None:
    world = opened(open_phase(3.0, seconds=600))
    watch = Watch([at(3)])
    played = play(world, watch, 0)
    mean = sum(c.running + c.waiting for c in watch.seen[5:]) / len(watch.seen[5:])
    assert mean == pytest.approx(played.phases[0].stayed / 600, rel=0.15)


def test_requests_beyond_the_largest_batch_wait() -> None:
    watch = Watch([at(0)])
    play(opened(open_phase(20.0, seconds=60)), watch, 0)
    last = watch.seen[-1]
    assert last.running == 16
    assert last.waiting is not None
    assert last.waiting > 500
    assert set(last.cells) <= {(0, edge) for edge in (1, 2, 4, 8, 16)}


def test_saturated_requests_count_their_stay_though_they_never_end() -> None:
    world = opened(open_phase(20.0, seconds=60), open_phase(0.0, seconds=60))
    played = play(world, Fixed(0), 0)
    come = arrivals(world.phases[0], 0.0, np.random.default_rng((0, 2, 0)))
    both = sum(phase.stayed for phase in played.phases)
    # 533 tokens a second of 2,000: most are still there in the end, each since it came.
    assert sum(120 - at for at in come.at) * 0.6 < both < sum(120 - at for at in come.at)
    assert played.phases[1].stayed > 0


def test_steps_beside_an_arrival_or_an_end_are_not_timed() -> None:
    watch = Watch([at(1)])
    play(opened(open_phase(3.0, seconds=300)), watch, 0)
    last = watch.seen[-1]
    clean = sum(cell.steps for cell in last.cells.values())
    assert last.all_steps is not None
    assert 0.5 * last.all_steps < clean < 0.95 * last.all_steps
    for (_, edge), cell in last.cells.items():
        assert cell.emitted / cell.requests == pytest.approx(1.8, rel=0.1), edge


def test_clean_steps_have_their_true_time_where_requests_come_and_go_all_the_time() -> None:
    watch = Watch([at(3)])
    world = opened(open_phase(40.0, seconds=120, tokens=10))
    play(world, watch, 0)
    truth = Truth(world)
    for (k, edge), cell in watch.seen[-1].cells.items():
        if cell.steps > 50:
            mean = np.interp(
                cell.requests / cell.steps,
                np.arange(1, world.max_batch + 1),
                truth.seconds[world.depths.index(k)],
            )
            assert cell.seconds / cell.steps == pytest.approx(mean, rel=0.03), edge


def test_counters_only_grow_and_agree_with_what_was_emitted() -> None:
    watch = Watch([at(3)])
    played = play(opened(open_phase(2.0), open_phase(8.0, traffic_per_request=True)), watch, 0)
    for a, b in pairwise(watch.seen):
        assert (a.generated or 0) <= (b.generated or 0)
        assert all(x <= y for x, y in zip(a.accepted, b.accepted, strict=True))
    last = watch.seen[-1]
    assert last.generated == sum(phase.tokens for phase in played.phases)
    assert last.latency_count == last.drafts
    assert last.generated <= (last.latency_count or 0) + sum(last.accepted)


@pytest.mark.parametrize("rate", [0.5, 3.0])
def test_the_oracle_has_the_least_latency_of_all_depths(rate: float) -> None:
    # Depth 3 pays up to batch 11, depth 1 above.
    world = opened(open_phase(rate, seconds=400))
    best = oracle(world, 1).phases[0].stayed
    others = [play(world, Fixed(k), 1).phases[0].stayed for k in world.depths]
    assert best <= min(others) * 1.01
    assert best < max(others) * 0.8
