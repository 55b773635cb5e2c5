"""The row budget in a real vLLM server: what it leaves out, and that outputs stay those of stock vLLM."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.engine.server import MAX_SEQS, MAX_TOKENS, Server, prompt, serving

from specpilot_engine import protocol
from specpilot_engine.protocol import Budget, Schedule, Step

# One of them at a time.
pytestmark = [pytest.mark.xdist_group("vllm"), pytest.mark.timeout(900)]

LONG = 160  # tokens of a completion that is compared
SEEDS = range(6)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("budget"), "specpilot_engine.scheduler.factory") as server:
        yield server


def use(server: Server, generation: int, price: float) -> None:
    schedule = Schedule(generation, (Step(MAX_SEQS, MAX_TOKENS),), budget=Budget(price))
    server.put(schedule)
    end = time.monotonic() + 30
    while server.state()["generation"] != generation:
        assert time.monotonic() < end, server.state()
        time.sleep(0.02)


def series(server: Server, name: str) -> float:
    return next(value for key, value in server.series(server.own).items() if key[0] == name)


async def sampled(server: Server, requests: int, max_tokens: int) -> None:
    """At temperature 1 next to none of the tiny model's drafts survive."""
    body = {"model": "m", "max_tokens": max_tokens, "ignore_eos": True, "temperature": 1.0}
    async with httpx.AsyncClient(trust_env=False, timeout=240) as client:
        url = server.url + "/v1/completions"
        posts = (client.post(url, json={**body, "prompt": prompt(seed)}) for seed in range(requests))
        assert [r.status_code for r in await asyncio.gather(*posts)] == [200] * requests


def test_a_greedy_requests_output_is_that_of_stock_vllm_at_the_same_depth(server, tmp_path):
    """At a price of 1 a fifth of the steps are cut just to look, whether it pays or not."""
    use(server, 1, 1.0)
    ours = [server.complete(prompt(seed), LONG) for seed in SEEDS]
    assert series(server, protocol.M_ROWS_TRIMMED) > 50
    assert series(server, protocol.M_ROWS_VERIFIED) > 50
    path = f"serving{os.pathsep}tests/engine"
    with serving(tmp_path, "other_version.factory", path) as stock:
        theirs = [stock.complete(prompt(seed), LONG) for seed in SEEDS]
    assert ours == theirs
    assert min(len(text.split()) for text in ours) > 0.9 * LONG  # a few tokens have no text


async def test_drafts_that_do_not_survive_are_left_out_and_looked_at_again(server):
    use(server, 2, 0.005)
    await sampled(server, 4, 300)
    began = {n: series(server, n) for n in (protocol.M_ROWS_VERIFIED, protocol.M_ROWS_TRIMMED)}
    await sampled(server, 4, 300)
    verified, trimmed = (series(server, n) - before for n, before in began.items())
    assert trimmed > 3 * verified
    assert verified > 0
    assert series(server, protocol.M_PROBES) > 0


def test_without_a_budget_the_server_counts_no_rows(server):
    use(server, 3, 0.0)
    server.complete(prompt(1), 20)
    assert not any("row" in key[0] for key in server.series(server.own))


def test_its_log_tells_of_no_error(server):
    assert "Traceback" not in Path(server.log).read_text()
