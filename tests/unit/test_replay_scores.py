"""Scores: shares of the oracle's, the same for the same seed, and the product's own code among those that play."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.replay_small import PHASE, small
from tests.unit.test_replay_arrivals import open_phase

from specpilot.estimate.counters import Counters
from specpilot.replay.engine import ScheduleRefused
from specpilot.replay.play import EPOCH, PhasePlayed, Played, oracle, play
from specpilot.replay.policy import Fixed
from specpilot.replay.product import Options, Product
from specpilot.replay.registry import POLICIES, compare, contenders
from specpilot.replay.score import score, share_from
from specpilot.replay.truth import Truth
from specpilot.replay.world import WorldError
from specpilot_engine.protocol import Schedule, Step

PROSE = {**PHASE, "traffic": {"prose": 1.0}}
SHIFT = small(phases=[PHASE, PROSE], profile={"context": 8192, "error": 0.03})


def test_a_depth_that_is_best_throughout_scores_as_the_oracle_does() -> None:
    outcome = compare(small(), 5, ["fixed-3", "oracle"])
    assert outcome.scores["fixed-3"].oracle_share == 1
    assert outcome.scores["fixed-3"].phases[0].settle_seconds == 0
    assert outcome.scores["oracle"].tokens == pytest.approx(120 * 8 * 2.8 / 0.034, rel=0.02)


def test_the_shares_of_fixed_depths_are_those_of_their_true_goodput() -> None:
    outcome = compare(SHIFT, 2, ["fixed-0", "fixed-1", "fixed-3"])
    truth = Truth(SHIFT)
    for i, k in enumerate(SHIFT.depths):
        for phase, played in zip(SHIFT.phases, outcome.scores[f"fixed-{k}"].phases, strict=True):
            goodput = truth.goodput(phase)[:, 7]
            assert played.oracle_share == pytest.approx(goodput[i] / goodput.max(), rel=0.01)
    worst = outcome.scores["fixed-3"]
    assert worst.worst_phase_share == worst.phases[1].oracle_share < 0.7
    assert [p.settle_seconds for p in worst.phases] == [0, None]


@settings(max_examples=25)
@given(
    st.lists(st.tuples(*[st.floats(5, 100)] * 3), min_size=3, max_size=3),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.integers(1, 20),
)
def test_no_fixed_depth_is_ahead_of_the_oracle(
    times: list[tuple[float, ...]], survival: list[float], requests: int
) -> None:
    world = small(
        step_time_ms=times,
        traffic={"code": {"survival": sorted(survival, reverse=True)}},
        phases=[{**PHASE, "seconds": 45, "requests": requests}],
        step_noise=0.0,
    )
    scores = compare(world, 0, ["fixed-0", "fixed-1", "fixed-3"]).scores.values()
    # One of them is the oracle's; what another may be ahead by is luck, of 450 steps of one request at least.
    assert max(score.oracle_share for score in scores) == pytest.approx(1, abs=0.1)
    assert any(score.oracle_share == 1 for score in scores)


def test_a_policy_that_leaves_the_candidates_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "wild", lambda: Fixed(2))
    with pytest.raises(ScheduleRefused, match=r"^wild asked for the depths \[2\] where only .* in small$"):
        compare(small(), 0, ["wild"])


def test_the_oracle_changes_with_the_phases_and_the_product_follows() -> None:
    outcome = compare(SHIFT, 0, ["oracle", "specpilot"])
    assert outcome.scores["oracle"].changes == 1
    assert [p.settle_seconds for p in outcome.scores["oracle"].phases] == [0, 0]
    ours = outcome.scores["specpilot"]
    assert 0.9 < ours.oracle_share <= 1
    assert ours.phases[1].settle_seconds in (15, 30, 45)


def test_the_same_seed_gives_the_same_answer_whoever_else_plays() -> None:
    world = small(phases=[PHASE, open_phase(2.0, seconds=120)], profile={"error": 0.05})
    alone = compare(world, 9, ["specpilot"]).scores["specpilot"]
    among = compare(world, 9, ["fixed-1", "specpilot", "oracle"]).scores["specpilot"]
    assert alone == among
    assert compare(world, 10, ["specpilot"]).scores["specpilot"] != alone


def played(*phases: tuple[int, float]) -> Played:
    return Played(tuple(PhasePlayed(tokens, stayed, 0.0) for tokens, stayed in phases), 0)


def test_closed_loops_count_by_tokens_open_ones_by_latency_and_both_by_their_seconds() -> None:
    world = small(phases=[PHASE, open_phase(2.0, seconds=360)])
    got = score(world, played((90, 0.0), (500, 40.0)), played((100, 0.0), (500, 30.0)))
    assert [p.oracle_share for p in got.phases] == [0.9, 0.75]
    assert got.oracle_share == pytest.approx((120 * 0.9 + 360 * 0.75) / 480)
    assert (got.tokens, got.worst_phase_share) == (590, 0.75)


def test_a_share_from_later_on_counts_from_the_next_scrape() -> None:
    ours, best = (
        Played((PhasePlayed(n, 0.0, 0.0),), 0, (), marks)
        for n, marks in ((90, (0, 5, 20)), (100, (0, 10, 30)))
    )
    world = small(phases=[{**PHASE, "seconds": 45}])
    assert [share_from(world, ours, best, at) for at in (0, 15, 20, 30)] == [0.9, 85 / 90, 1, 1]


def test_what_was_emitted_by_each_scrape_and_when_the_depth_moved_is_kept() -> None:
    best = oracle(SHIFT, 0)
    assert (best.changes, best.moves) == (1, (120.0,))
    assert len(best.emitted) == 240 / 15 + 1
    assert (best.emitted[0], best.emitted[8]) == (0, best.phases[0].tokens)
    assert best.emitted[-1] == sum(phase.tokens for phase in best.phases)
    assert [b > a for a, b in pairwise(best.emitted)] == [True] * 16
    ours = play(SHIFT, Product(), 0)
    assert 120 < ours.moves[-1] <= 165


class Elsewhere(Fixed):
    """Changes its mind about more requests than run."""

    def look(self, counters: Counters, now: float) -> Schedule:  # noqa: ARG002
        deeper = 3 if now > EPOCH + 60 else 0
        return Schedule(1, (Step(8, self.depth), Step(16, deeper)))


def test_a_change_at_batch_sizes_that_do_not_run_is_no_move() -> None:
    got = play(small(), Elsewhere(1), 0)
    assert (got.changes, got.moves) == (2, ())


def test_where_nothing_was_to_be_done_nothing_was_missed() -> None:
    world = small(phases=[{**PHASE, "requests": 0}, open_phase(0.0, seconds=60)])
    for got in compare(world, 0).scores.values():
        assert (got.tokens, got.oracle_share, got.changes) == (0, 1, 0)
        assert [p.settle_seconds for p in got.phases] == [0, 0]


def test_phases_need_not_end_with_a_scrape() -> None:
    world = small(phases=[{**PHASE, "seconds": 20}, {**PROSE, "seconds": 7}, {**PHASE, "seconds": 33.5}])
    outcome = compare(world, 0, ["fixed-3", "oracle"])
    tokens = [p.tokens for p in outcome.scores["fixed-3"].phases]
    rates = [8 * 2.8 / 0.034, 8 * 1.1 / 0.034, 8 * 2.8 / 0.034]
    assert tokens == pytest.approx([20 * rates[0], 7 * rates[1], 33.5 * rates[2]], rel=0.03)
    assert outcome.scores["fixed-3"].phases[2].oracle_share == pytest.approx(1, abs=0.01)


def test_the_document_is_as_it_is_described() -> None:
    outcome = compare(SHIFT, 3, ["specpilot", "fixed-3"])
    doc: Any = json.loads(json.dumps(outcome.as_json()))
    assert {**doc, "policies": sorted(doc["policies"])} == {
        "world": "small",
        "seed": 3,
        "policies": ["fixed-3", "specpilot"],
    }
    ours = doc["policies"]["fixed-3"]
    assert sorted(ours) == ["changes", "oracle_share", "phases", "tokens", "worst_phase_share"]
    assert [sorted(phase) for phase in ours["phases"]] == [["oracle_share", "settle_seconds", "tokens"]] * 2
    assert ours["tokens"] == sum(phase["tokens"] for phase in ours["phases"])
    assert ours["phases"][1]["settle_seconds"] is None


def test_everybody_plays_unless_some_are_named() -> None:
    everybody = contenders(small())
    assert {"oracle", "fixed-0", "fixed-1", "fixed-3", *POLICIES} == set(everybody)
    assert list(contenders(small(), ["fixed-1", "specpilot"])) == ["fixed-1", "specpilot"]
    with pytest.raises(
        WorldError, match=r"^fixed-2 is not a policy that can play small: did you mean fixed-"
    ):
        contenders(small(), ["fixed-2"])


def test_a_minimum_gain_holds_the_product_back() -> None:
    # Told that all depths cost alike, it begins with the deepest, and what it could gain is 43%.
    world = small(phases=[PROSE], profile={"context": 8192, "error": 0.0})
    assert compare(world, 0, ["specpilot"]).scores["specpilot"].changes >= 1
    held = compare(world, 0, ["specpilot"], Options(minimum_gain=9.0)).scores["specpilot"]
    assert held.changes == 0
    assert Product().options == Options(0.0, 120.0, 0.005)
