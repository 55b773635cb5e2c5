"""The graph map against vLLM's own capture and dispatch code, run on this machine's CPU."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.engine.warm import Warm
from tests.setup import vllm

from specpilot.plan.graphs import Graphs, captured, plan_captures

pytestmark = pytest.mark.xdist_group("vllm-code")

DEPTHS = [(0, 1, 3, 7), (0, 1, 3, 5, 7), (0, 7), (0, 2, 4), (0, 1, 2, 4), (0, 3), tuple(range(8))]
SEQS = [1, 3, 8, 100, 250, 256, 1024]


def startup(depths: tuple[int, ...], seqs: int, wide: int = 1) -> list[list[int]]:
    """One wide row and one each for the others at the top, as many as fit."""
    others = [k for k in depths if k != wide][: seqs - 1]
    first = seqs - len(others)
    return [[1, first, wide], *([first + i, first + i, k] for i, k in enumerate(others, 1))]


def planned_case(depths: tuple[int, ...], seqs: int, cap: int = 512) -> dict[str, Any]:
    schedule = startup(depths, seqs, depths[1])
    used = tuple(sorted({k for _, _, k in schedule}))
    sizes = list(plan_captures(used, (seqs,), cap))
    case = {"schedule": schedule, "sizes": sizes, "seqs": seqs, "tokens": 8192, "k": depths[-1]}
    return {**case, "depths": list(used), "cap": cap}


def cases() -> list[dict[str, Any]]:
    """Planned sizes first, then two of vLLM's own choosing."""
    planned = [planned_case(depths, seqs) for depths in DEPTHS for seqs in SEQS]
    planned += [planned_case(depths, 1024, 1024) for depths in DEPTHS]
    rows = [[1, 252, 3], [253, 253, 0], [254, 254, 1], [255, 255, 5], [256, 256, 7]]
    default = {**planned_case((0, 1, 3, 5, 7), 256), "sizes": None, "schedule": rows}
    static = {"schedule": None, "sizes": None, "seqs": 256, "tokens": 8192, "k": 7, "depths": [7], "cap": 512}
    return [*planned, default, static]


@dataclass(frozen=True)
class Said:
    """What one version answers to each case."""

    version: str
    pairs: list[tuple[dict[str, Any], dict[str, Any]]]

    @property
    def planned(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [pair for pair in self.pairs if pair[0]["sizes"] is not None]


@pytest.fixture(scope="module", params=[vllm.VERSION, vllm.NEWEST])
def said(request: pytest.FixtureRequest, code: Callable[[str], Warm]) -> Said:
    asked = cases()
    answers = code(request.param).run("vllm_graphs_probe.py", given=json.dumps(asked))
    return Said(request.param, list(zip(asked, json.loads(answers.splitlines()[-1]), strict=True)))


def graph_map(case: dict[str, Any], sizes: list[int]) -> Graphs:
    return captured(sizes, case["depths"], case["seqs"], case["k"])


def test_hits_and_counts_are_vllms(said: Said) -> None:
    for case, answer in said.pairs:
        graphs = graph_map(case, answer["sizes"])
        batches = range(1, case["seqs"] + 1)
        ours = {str(k): [b for b in batches if graphs.hit(k, b)] for k in case["depths"]}
        assert ours == answer["full"], case
        assert graphs.total == answer["graphs"], case


def test_planned_sizes_are_taken_as_they_are(said: Said) -> None:
    for case, answer in said.planned:
        assert answer["sizes"] == case["sizes"], case


def test_planned_sizes_leave_no_batch_without_a_full_graph(said: Said) -> None:
    for case, answer in said.planned:
        if len(case["depths"]) < 8:
            for k in case["depths"]:
                expected = [b for b in range(1, case["seqs"] + 1) if b * (k + 1) <= case["cap"]]
                assert answer["full"][str(k)] == expected, (case, k)


def test_where_full_graphs_are_hit_the_first_runner_hits_piecewise_ones(said: Said) -> None:
    for case, answer in said.pairs:
        for k in case["depths"]:
            assert set(answer["full"][str(k)]) <= set(answer["piecewise"][str(k)]), (case, k)


def test_sizes_of_vllms_own_choosing_lose_graphs_that_planning_keeps(said: Said) -> None:
    (_, default), (_, static) = said.pairs[-2:]
    lost = {k: 256 - len(default["full"][str(k)]) for k in (0, 1)}
    if said.version == vllm.NEWEST:
        assert lost == {0: 61, 1: 47}
        assert 85 - len(default["full"]["5"]) == 31
        assert (default["graphs"], static["graphs"]) == (240, 48)
    else:
        assert min(lost.values()) > 0


@pytest.mark.parametrize("version", [vllm.VERSION, vllm.NEWEST])
def test_under_adaptive_verification_every_cap_has_its_graphs_and_a_schedule_costs_none(
    code: Callable[[str], Warm], version: str
) -> None:
    case = {"sizes": None, "seqs": 256, "tokens": 8192, "k": 7, "depths": list(range(8)), "adaptive": True}
    asked = [{**case, "schedule": schedule} for schedule in (None, [[1, 1024, 7]])]
    said = code(version).run("vllm_graphs_probe.py", given=json.dumps(asked))
    without, capped = json.loads(said.splitlines()[-1])
    assert capped == without
    largest = capped["sizes"][-1]
    assert largest >= 512
    for k in range(8):
        assert capped["full"][str(k)] == [b for b in range(1, 257) if b * (k + 1) <= largest]
