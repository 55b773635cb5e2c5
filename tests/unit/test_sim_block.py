"""Block verification in the simulated engine: worth something to sampled requests, nothing to others."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from tests.unit.test_sim_process import Sim, running

from specpilot_engine.acceptance import OUTRIGHT, block_survival, propose, slot, verify
from specpilot_engine.sim.arguments import Speculation, parse_arguments, parse_speculation
from specpilot_engine.sim.engine import Engine, Request
from specpilot_engine.sim.openai import CHAT, COMPLETION, ApiError, read_ask
from specpilot_engine.sim.truth import TruthError, read_truth

BLOCK = {
    "method": "mtp",
    "num_speculative_tokens": 7,
    "rejection_sample_method": "block",
    "draft_sample_method": "probabilistic",
}


@pytest.mark.parametrize(
    ("change", "block"),
    [
        ({}, True),
        ({"rejection_sample_method": "standard"}, False),
        ({"draft_sample_method": "greedy"}, False),
        ({"draft_sample_method": None}, False),
        ({"method": "ngram"}, False),
    ],
)
def test_it_takes_block_and_sampled_drafts(change: dict[str, object], block: bool) -> None:
    config = {name: value for name, value in (BLOCK | change).items() if value is not None}
    assert parse_speculation(config).block == block


def test_requests_at_temperature_0_and_every_other_world_have_the_survival_given() -> None:
    given = read_truth(None)
    block = given.verified_by_block()
    for kind in ("mixed", "chat", "code", "prose"):
        curve = given.survival(kind)
        assert given.survival(kind, 1.0) == block.survival(kind) == block.survival(kind, 0.0) == curve
        assert block.survival(kind, 0.7) == block_survival(curve, OUTRIGHT)


def test_at_the_built_in_agreement_block_is_worth_a_few_percent() -> None:
    given, block = read_truth(None), read_truth(None).verified_by_block()
    gains = {
        kind: (1 + sum(block.survival(kind, 1.0))) / (1 + sum(given.survival(kind))) - 1
        for kind in ("mixed", "chat", "code", "prose")
    }
    assert gains == pytest.approx({"mixed": 0.069, "chat": 0.093, "code": 0.040, "prose": 0.079}, abs=0.001)


def test_a_world_may_say_how_the_models_disagree() -> None:
    nothing = read_truth(json.dumps({"outright_share": 1})).verified_by_block()
    assert nothing.survival("chat", 1.0) == pytest.approx(nothing.survival("chat"))
    with pytest.raises(TruthError, match="outright_share must be a number from 0 to 1"):
        read_truth(json.dumps({"outright_share": 1.5}))


@pytest.mark.parametrize("depth", [3, 7])
def test_slots_survive_as_the_model_says_at_any_depth(depth: int) -> None:
    truth = read_truth(json.dumps({"step_noise": 0})).verified_by_block()
    survival = truth.survival("chat", 1.0)
    engine = Engine(truth, 64, 8192, Speculation(7, ((1, 64, depth),)))
    for i in range(64):
        engine.submit(Request(str(i), 1, 10**6, survival, 0.0, lambda *_: None))
    accepted = [
        a
        for _ in range(400)
        for step in [engine.begin(0.0)]
        if not engine.finish(step, 0.0)
        for a in step.accepted
    ]
    assert len(accepted) > 20_000
    for j in range(depth):
        share = sum(a > j for a in accepted) / len(accepted)
        assert share == pytest.approx(survival[j], abs=4 * math.sqrt(survival[j] / len(accepted)))
    assert max(accepted) == depth


def test_one_uniform_per_request_draws_what_verifying_real_tokens_would() -> None:
    """The engine draws the number accepted from the curve; here it is drawn token by token."""
    curve = read_truth(None).survival("chat")[:3]
    slots = [slot(now / before, OUTRIGHT) for before, now in zip((1.0, *curve), curve, strict=False)]
    target, draft = (lambda x, side=side: slots[min(len(x), 2)][side] for side in (0, 1))
    draw = random.Random(7).random
    counts, drafts = [0, 0, 0], 20_000
    for _ in range(drafts):
        drafted = propose(draft, 3, [draw() for _ in range(3)])
        for i in range(len(verify("block", target, draft, drafted, [draw() for _ in range(4)])) - 1):
            counts[i] += 1
    assert [c / drafts for c in counts] == pytest.approx(block_survival(curve), abs=0.015)


@pytest.mark.parametrize("kind", [COMPLETION, CHAT])
@pytest.mark.parametrize(
    ("given", "temperature"), [({}, 1.0), ({"temperature": None}, 1.0), ({"temperature": 0}, 0.0)]
)
def test_a_requests_temperature_is_vllms(kind: str, given: dict[str, object], temperature: float) -> None:
    body = {"prompt": "hello", "messages": [{"role": "user", "content": "hello"}], **given}
    assert read_ask(body, kind, parse_arguments([])).temperature == temperature


@pytest.mark.parametrize("wrong", [-1, "hot", True, [1]])
def test_a_wrong_temperature_is_refused(wrong: object) -> None:
    with pytest.raises(ApiError, match="temperature must be a number") as refused:
        read_ask({"prompt": "hello", "temperature": wrong}, COMPLETION, parse_arguments([]))
    assert refused.value.status == 400


def test_the_server_tells_the_two_kinds_of_request_apart(tmp_path: Path) -> None:
    config = BLOCK | {"num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": [[1, 16, 3]]}
    fast = {"time_scale": 20, "outright_share": 0}
    steps = []
    with running(tmp_path, "--speculative-config", json.dumps(config), **fast) as sim:
        for temperature in (0, 1):
            before = drafts(sim)
            sim.complete(max_tokens=4000, temperature=temperature)
            steps.append(drafts(sim) - before)
    # 4,000 tokens at 1 + 0.6 + 0.4 + 0.2 a step, and at 1 + 0.6 + 0.5 + 0.33.
    assert steps == pytest.approx([4000 / 2.2, 4000 / 2.433], rel=0.05)


def drafts(sim: Sim) -> float:
    found = sim.series("/metrics")
    return sum(v for (name, *_), v in found.items() if name == "vllm:spec_decode_num_drafts_total")
