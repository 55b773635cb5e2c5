"""Our standard and block verification against vLLM's own sampler, given the same drafts and the same luck."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.warm import Warm
from tests.setup import vllm

from specpilot_engine.acceptance import METHODS, verify

pytestmark = pytest.mark.xdist_group("vllm-code")

CASES, SLOTS, VOCABULARY = 80, 4, 5


def case(seed: int) -> dict[str, Any]:
    """Conditionals that have something to do with each other, and a draft sampled from the drafter's."""
    r = random.Random(seed)
    shape = r.choice((0.3, 1.0, 3.0))  # from peaked to flat
    target = [spread(r, [shape] * VOCABULARY) for _ in range(SLOTS + 1)]
    near = r.choice((2.0, 8.0, 40.0))  # how much they agree
    draft = [spread(r, [0.05 + near * p for p in row]) for row in target[:-1]]
    drafted = [r.choices(range(VOCABULARY), row)[0] for row in draft]
    return {"target": target, "draft": draft, "drafted": drafted}


def spread(r: random.Random, weights: list[float]) -> list[float]:
    drawn = [r.gammavariate(w, 1) + 1e-4 for w in weights]
    return [x / sum(drawn) for x in drawn]


@pytest.fixture(scope="module")
def said(code: Callable[[str], Warm]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    cases = [case(seed) for seed in range(CASES)]
    answers = code(vllm.NEWEST).run("vllm_acceptance_probe.py", given=json.dumps(cases))
    return cases, json.loads(answers.splitlines()[-1])


@pytest.mark.parametrize("method", METHODS)
def test_the_same_drafts_are_accepted(said: tuple[list[dict[str, Any]], dict[str, Any]], method: str) -> None:
    cases, answers = said
    lengths = []
    for one, emitted, uniforms in zip(cases, *answers[method].values(), strict=True):
        mine = verify(
            method,
            lambda x, one=one: one["target"][len(x)],
            lambda x, one=one: one["draft"][len(x)],
            tuple(one["drafted"]),
            (*uniforms, 0.5),
        )
        # The token after the accepted ones is drawn by other means: only what may follow is the same.
        assert mine[:-1] == tuple(emitted[:-1]), one
        lengths.append(len(mine) - 1)
    assert {0, 1, 2, 3, 4} == set(lengths)


def test_block_accepts_more_in_all(said: tuple[list[dict[str, Any]], dict[str, Any]]) -> None:
    standard, block = (sum(map(len, said[1][method]["emitted"])) for method in METHODS)
    assert block > standard


def test_what_follows_a_rejection_is_never_what_was_rejected_for_certain(
    said: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    """Under standard the residual gives a rejected token nothing: the target had less of it than the draft."""
    cases, answers = said
    for one, emitted in zip(cases, answers["standard"]["emitted"], strict=True):
        if len(emitted) <= SLOTS:
            slot = len(emitted) - 1
            assert one["target"][slot][emitted[-1]] > one["draft"][slot][emitted[-1]]
