"""Our cost tables and row budget against vLLM's own planner, run on this machine's CPU."""

import json
import random
from collections.abc import Callable
from itertools import accumulate
from operator import mul
from typing import Any

import pytest
from tests.engine.warm import Warm
from tests.setup import vllm

from specpilot_engine.budget import Choice, choose, cost_table

pytestmark = pytest.mark.xdist_group("vllm-code")

REQUESTS, ROWS = 64, 512  # sizes of the tables
GRAPHS = (0, 1, 16, 64, 512)  # largest captured sizes


def case(seed: int) -> dict[str, Any]:
    """Curves that go up and down, samples below and above the limit, drafts of any length."""
    r = random.Random(seed)
    sizes = sorted(r.sample(range(2, 400), r.randint(1, 9)))
    depth, batch = r.randint(1, 7), r.randint(1, 48)
    step = r.uniform(0.002, 0.2)  # how steep: from nearly free rows to dear ones
    return {
        "draft_curve": [[size, r.uniform(0.1, 2.0)] for size in sorted(r.sample(range(1, 64), 3))],
        "verify_curve": [[size, 5.0 + step * size * r.uniform(0.8, 1.2)] for size in sizes],
        "limit": r.choice(GRAPHS),
        "requests": REQUESTS,
        "rows": ROWS,
        "confidence": [[r.uniform(0.01, 0.99) for _ in range(depth)] for _ in range(batch)],
        "lengths": [r.randint(0, depth) for _ in range(batch)],
    }


@pytest.fixture(scope="module")
def said(code: Callable[[str], Warm]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    asked = [case(seed) for seed in range(300)]
    answers = code(vllm.NEWEST).run("vllm_budget_probe.py", given=json.dumps(asked))
    return list(zip(asked, json.loads(answers.splitlines()[-1]), strict=True))


def ours(asked: dict[str, Any]) -> Choice:
    survival = [
        list(accumulate(confidence, mul))[:length]
        for confidence, length in zip(asked["confidence"], asked["lengths"], strict=True)
    ]
    batch, drafts = len(survival), sum(asked["lengths"])
    draft = cost_table(asked["draft_curve"], range(batch, batch + 1), asked["limit"])[0]
    verify = cost_table(asked["verify_curve"], range(batch, batch + drafts + 1), asked["limit"])
    return choose(survival, draft, verify)


def test_cost_tables_are_vllms(said):
    for asked, answer in said:
        for curve, table, size in (
            ("draft_curve", "draft_table", REQUESTS),
            ("verify_curve", "verify_table", ROWS),
        ):
            mine = cost_table(asked[curve], range(size + 1), asked["limit"])
            assert mine == pytest.approx(answer[table]), asked


def test_an_engine_without_graphs_is_linear_where_vllm_is_above_its_limit(said):
    for asked, answer in said:
        if asked["limit"] == 1:
            first = asked["verify_curve"][0][0]
            mine = cost_table(asked["verify_curve"], range(first, ROWS + 1))
            assert mine == pytest.approx(answer["verify_table"][first:]), asked


def test_the_budget_is_vllms(said):
    kept_all = kept_none = 0
    for asked, answer in said:
        choice = ours(asked)
        # Its survivals are of single precision: of two budgets as good as each other either may win.
        assert choice.goodput(answer["budget"]) == pytest.approx(choice.goodput(choice.rows), rel=1e-6), asked
        kept_all += answer["budget"] == sum(asked["lengths"])
        kept_none += answer["budget"] == 0
    assert 20 < kept_all < 280
    assert kept_none < 200


def test_the_rows_go_to_the_requests_that_vllm_gives_them_to(said):
    for asked, answer in said:
        choice = ours(asked)
        assert choice.kept(answer["budget"]) == answer["assigned"], asked
        assert choice.kept(sum(asked["lengths"]) // 2) == answer["half"], asked
