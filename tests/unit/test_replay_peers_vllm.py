"""vLLM's two policies on counters made by hand, and what all peers have in common."""

from __future__ import annotations

import pytest
from tests.unit.replay_counters import Engine, setup

from specpilot.replay.peers import PEERS
from specpilot.replay.peers.vllm_adaptive_k import AdaptiveK, capped
from specpilot.replay.peers.vllm_static import StaticSchedule

DEPTHS = (0, 1, 3, 7)
# A drafter of a tenth of the target's time a token.
TENTH = {0: 0.010, 1: 0.011, 3: 0.013, 7: 0.017}


def one_window(policy: AdaptiveK, accepted: tuple[float, ...], batch: int = 16, steps: float = 1000) -> int:
    engine = Engine()
    policy.look(engine.counters(), 0.0)
    engine.run(len(accepted), batch, steps, accepted)
    return policy.look(engine.counters(), 15.0).tokens_at(batch)


@pytest.mark.parametrize(
    ("q", "depth"),
    # (1 + q + … ) / (1 + K/10 + 0.032): at 0.9 7 wins with 3.29, at 0.6 3 with 1.63, at 0.3 1 with 1.15;
    # at 0.1 nothing reaches 1.
    [(0.9, 7), (0.6, 3), (0.3, 1), (0.1, 0)],
)
def test_the_depth_has_the_highest_goodput_by_a_cost_linear_in_it(q: float, depth: int) -> None:
    policy = AdaptiveK()
    policy.start(setup(DEPTHS, TENTH))
    assert one_window(policy, tuple(q**j for j in range(1, 8))) == depth


def test_a_position_not_seen_has_the_prior_acceptance() -> None:
    policy = AdaptiveK()
    policy.start(setup(DEPTHS, TENTH))
    # One slot at 0.5, six at 0.85: 1 + 0.5 (1 + 0.85 + … + 0.85^6) = 3.26 over 1.732 at depth 7.
    assert policy._goodput(7, 16) == pytest.approx(sum(0.85**j for j in range(8)) / 1.732)
    assert one_window(policy, (0.5,)) == 7
    assert policy._goodput(7, 16) == pytest.approx((1 + 0.5 * sum(0.85**j for j in range(7))) / 1.732)


def test_ten_steps_are_one_update_of_three_tenths() -> None:
    policy = AdaptiveK()
    policy.start(setup(DEPTHS, TENTH))
    one_window(policy, (0.5,), steps=20)
    assert policy._rates[0] == pytest.approx(0.5 + 0.35 * 0.7**2)


def test_verification_of_more_requests_is_taken_as_the_same_for_all_depths() -> None:
    policy = AdaptiveK()
    policy.start(setup(DEPTHS, TENTH, max_batch=512))
    assert policy._goodput(1, 1) == pytest.approx(1.85 / 1.102)
    assert policy._goodput(1, 500) == pytest.approx(1.85 / 2.1)


def test_under_a_table_it_drafts_no_deeper_than_the_table() -> None:
    policy = capped()
    assert policy.start(setup(DEPTHS, TENTH)).tokens_at(16) == 3
    assert one_window(policy, (1.0,) * 7) == 3
    assert one_window(policy, (0.1, 0.01, 0.0)) == 0


def test_a_tenth_of_the_steps_are_random_among_all_depths() -> None:
    policy, engine = AdaptiveK(), Engine()
    policy.start(setup(DEPTHS, TENTH))
    explored = []
    for i in range(4):
        x = policy.look(engine.counters(), 15.0 * i).exploration
        assert x.price / x.cost == pytest.approx(0.075)  # a quarter of the tenth is the present depth
        explored.append(x.tokens)
        engine.run(3, 16, 1000, (0.6, 0.36, 0.22))
    assert explored[1:] == [1, 0, 7]


def test_the_ratio_of_draft_to_target_is_the_profiles_or_the_default() -> None:
    told, untold = AdaptiveK(), AdaptiveK()
    told.start(setup(DEPTHS, TENTH))
    untold.start(setup(DEPTHS))
    assert told._ratio == pytest.approx(0.1)
    assert untold._ratio == 0.1144


def test_the_static_table_is_the_profiles_best_at_an_acceptance_of_seven_tenths() -> None:
    schedule = StaticSchedule().start(setup(DEPTHS, TENTH))
    # L = 1, 1.7, 2.533, 3.141 over 10, 11, 13, 17 ms: 3 wins with 195 against 185 at 7.
    assert schedule.steps == (schedule.steps[0],)
    assert schedule.tokens_at(16) == 3


def test_the_static_table_never_changes() -> None:
    policy, engine = StaticSchedule(), Engine()
    first = policy.start(setup(DEPTHS, TENTH))
    policy.look(engine.counters(), 0.0)
    engine.run(3, 16, 1000, (0.0, 0.0, 0.0))
    assert policy.look(engine.counters(), 15.0) is first


def test_without_a_profile_the_static_table_is_the_documentations_example() -> None:
    schedule = StaticSchedule().start(setup(DEPTHS, max_batch=256))
    assert schedule.as_vllm() == [(1, 64, 3), (65, 128, 1), (129, 256, 0)]


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("depths", [(0, 1, 2, 3, 5), (0, 1, 3), (1, 3, 7), (2,), (0,)])
def test_a_peer_asks_for_candidates_only_whatever_it_sees(name: str, depths: tuple[int, ...]) -> None:
    policy, engine = PEERS[name](), Engine()
    schedules = [policy.start(setup(depths, {k: 0.01 * (1 + k / 10) for k in depths}))]
    schedules.append(policy.look(engine.counters(), 0.0))
    for i in range(4):
        for accepted in ((1.0,) * 7, (0.0,) * 7):
            depth = schedules[-1].tokens_at(16)
            engine.run(depth, 16, 500, accepted[:depth])
            schedules.append(policy.look(engine.counters(), 15.0 * (i + 1)))
        schedules.append(policy.look(engine.counters(), 15.0 * (i + 1)))  # nothing ran in between
    for s in schedules:
        assert {step.tokens for step in s.steps} <= set(depths)
        assert s.exploration.price == 0 or s.exploration.tokens in depths
