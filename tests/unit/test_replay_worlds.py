"""The worlds in benchmarks/worlds: they parse, say where they are from, and show what they are said to."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from specpilot.replay.truth import Truth
from specpilot.replay.world import Phase, World, read_world

FOLDER = Path(__file__).parents[2] / "benchmarks" / "worlds"
WORLDS = {path.stem: read_world(path) for path in sorted(FOLDER.glob("*.json"))}
ROW = re.compile(r"\| (?P<name>[\w-]+) \| (?P<kind>steady|drifting) \|.*\| (?P<lost>\d+%|) ?\|")
TOLD = {m["name"]: m for m in map(ROW.match, (FOLDER / "README.md").read_text().splitlines()) if m}
DRIFTING = [name for name in WORLDS if TOLD[name]["kind"] == "drifting" and TOLD[name]["lost"]]

# Tokens per second by concurrency (1, 16, 32, 64, 128, 256) and depth (0, 1, 3, 5, 6, 7).
FIGURE_3 = [
    [101, 153, 231, 251, 258, 251],
    [1124, 1408, 1906, 1939, 1931, 1878],
    [1664, 2384, 3112, 3071, 3029, 2939],
    [2774, 3864, 4856, 4931, 4804, 4611],
    [4406, 5912, 7402, 6846, 6623, 6250],
    [6323, 8619, 9728, 8766, 8176, 7609],
]
# By requests (1, 4, 16, 32) and depth (0, 1, 2, 3, 5), and a weaker draft at 1 and 8.
LAB = [[33, 52, 74, 80, 68], [132, 187, 230, 210, 195], [348, 404, 329, 296, 313], [437, 446, 406, 363, 295]]
LAB_WEAK = [[39, 46, 52, 48, 40], [229, 228, 209, 174, 117]]


def at_load(truth: Truth, phase: Phase) -> np.ndarray:
    """Goodput of each depth at the phase's number of requests."""
    assert phase.requests is not None
    return truth.goodput(phase)[:, phase.requests - 1]


def shares(world: World) -> np.ndarray:
    """Goodput [phases, depths] over the best depth's of the phase."""
    truth = Truth(world)
    rows = np.array([at_load(truth, phase) for phase in world.phases])
    return np.asarray(rows / rows.max(axis=1, keepdims=True))


def best_single(world: World) -> int:
    """Index of the depth with the most tokens over the whole run."""
    truth = Truth(world)
    return int(sum(phase.seconds * at_load(truth, phase) for phase in world.phases).argmax())


def test_the_table_lists_every_world_and_no_other() -> None:
    assert sorted(TOLD) == sorted(WORLDS)
    assert 12 <= len(WORLDS) <= 18


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_names_itself_and_its_source_and_lasts_long_enough(name: str) -> None:
    world = WORLDS[name]
    assert world.name == name
    assert len(world.source) > 60
    assert 20 * 60 <= world.seconds <= 60 * 60
    assert world.scrape_seconds == 15


@pytest.mark.parametrize("name", WORLDS)
def test_a_step_takes_no_less_time_with_more_requests(name: str) -> None:
    assert (np.diff(np.array(WORLDS[name].step_time_ms), axis=1) >= 0).all()


@pytest.mark.parametrize(
    ("name", "kind", "table"),
    [
        ("figure-3", "published", FIGURE_3),
        ("lab-load", "agreeing", LAB),
        ("lab-weak-drafter", "weak", LAB_WEAK),
    ],
)
def test_what_was_measured_comes_out_again(name: str, kind: str, table: list[list[int]]) -> None:
    world = WORLDS[name]
    phase = Phase(seconds=1, requests=1, traffic={kind: 1.0})
    measured = Truth(world).goodput(phase)[:, [b - 1 for b in world.batches]].T
    assert measured == pytest.approx(np.array(table), rel=1e-3)


@pytest.mark.parametrize("name", DRIFTING)
def test_in_a_drifting_world_one_depth_for_all_loses_five_percent_somewhere(name: str) -> None:
    world = WORLDS[name]
    lost = 1 - shares(world)[:, best_single(world)]
    assert lost.max() >= 0.05
    assert TOLD[name]["lost"] == f"{lost.max():.0%}"
    assert len(set(shares(world).argmax(axis=1).tolist())) > 1


@pytest.mark.parametrize("name", [n for n in WORLDS if TOLD[n]["kind"] == "steady"])
def test_in_a_steady_world_the_table_says_what_one_depth_loses(name: str) -> None:
    world = WORLDS[name]
    assert TOLD[name]["lost"] == f"{1 - shares(world)[:, best_single(world)].min():.0%}"


def test_with_a_longer_context_the_best_depth_stays() -> None:
    assert set(shares(WORLDS["context-drift"]).argmax(axis=1).tolist()) == {3}  # depth 5


def test_flip_flop_has_two_depths_within_one_percent() -> None:
    world = WORLDS["flip-flop"]
    assert np.sort(shares(world)[0])[-2] == pytest.approx(0.99, abs=0.001)
    assert (world.step_noise, world.window_noise) == (0.15, 0.03)


def test_a_hopeless_drafter_is_best_left_alone() -> None:
    assert shares(WORLDS["hopeless-drafter"])[0].tolist() == pytest.approx(
        [1, 0.709, 0.587, 0.487, 0.458, 0.428], abs=0.001
    )


def test_with_an_odd_first_slot_depth_one_loses_and_the_deepest_wins_twofold() -> None:
    assert shares(WORLDS["odd-first-slot"])[0].tolist() == pytest.approx([0.5, 0.468, 0.674, 1], abs=0.001)


def test_sampling_at_temperature_one_leaves_no_draft_worth_its_time() -> None:
    world = WORLDS["lab-traffic"]
    sampling = next(i for i, phase in enumerate(world.phases) if "sampling" in phase.traffic)
    assert shares(world)[sampling].argmax() == 0


def test_one_request_past_a_graph_size_changes_the_best_depth() -> None:
    best = shares(WORLDS["staircase"]).argmax(axis=1)
    loads = [phase.requests for phase in WORLDS["staircase"].phases]
    assert [best[loads.index(16)], best[loads.index(17)]] == [2, 1]  # depths 3 and 1


def test_the_open_loop_stays_below_what_the_best_depths_can_serve() -> None:
    world = WORLDS["open-loop"]
    loads = []
    for phase in world.phases:
        assert phase.rate is not None
        assert phase.output_tokens is not None
        loads.append(phase.rate * phase.output_tokens / Truth(world).goodput(phase).max())
    assert loads == pytest.approx([0.10, 0.83, 0.36], abs=0.01)
