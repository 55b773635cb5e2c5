"""The load generator against simulated engines."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from tests.setup.answering import answering

from specpilot.local.load import Load, hold
from specpilot_engine.protocol import ENV_SIM

WORLD = {
    "depths": [0],
    "batches": [1, 64],
    "step_time_ms": [[2, 4]],
    "traffic": {"chat": {"survival": []}, "code": {"survival": []}},
    "startup_seconds": 0,
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture
def urls() -> Iterator[list[str]]:
    """Two replicas."""
    env = {**os.environ, "PYTHONPATH": "serving", ENV_SIM: json.dumps(WORLD)}
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        for port in ports:
            command = [
                sys.executable,
                "-m",
                "specpilot_engine.sim",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ]
            process = stack.enter_context(subprocess.Popen(command, env=env, cwd=Path(__file__).parents[2]))
            stack.callback(process.kill)
        yield [f"http://127.0.0.1:{port}" for port in ports]


async def becomes(urls: list[str], values: list[float]) -> None:
    """Wait until so many requests run at each server."""

    async def running(http: httpx.AsyncClient, url: str) -> float:
        try:
            text = (await http.get(f"{url}/metrics")).raise_for_status().text
        except httpx.HTTPError:
            return float("nan")  # still starting
        families = text_string_to_metric_families(text)
        return next(s.value for f in families for s in f.samples if s.name == "vllm:num_requests_running")

    async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(60):
        while [await running(http, url) for url in urls] != values:
            await asyncio.sleep(0.02)


async def test_so_many_requests_run_as_are_asked_for_spread_evenly(urls):
    await becomes(urls, [0, 0])
    load, stop = Load(urls, clients=7, max_tokens=10_000, traffic="code"), asyncio.Event()
    task = asyncio.create_task(hold(load, stop))
    await becomes(urls, [4, 3])
    load.clients = 20
    await becomes(urls, [10, 10])
    load.clients = 1
    await becomes(urls, [1, 0])
    stop.set()
    await task
    await becomes(urls, [0, 0])


async def test_tokens_are_counted(urls):
    await becomes(urls, [0, 0])
    load, stop = Load(urls, clients=4, max_tokens=8), asyncio.Event()
    task = asyncio.create_task(hold(load, stop))
    async with asyncio.timeout(60):
        while load.requests < 20:
            await asyncio.sleep(0.02)
    stop.set()
    await task
    assert load.errors == 0
    # All but each client's first, which is under way already, have eight tokens.
    assert (load.requests - 4) * 8 < load.tokens <= load.requests * 8


async def test_clients_begin_at_all_stages_of_an_answer_and_go_on_with_whole_ones():
    asked: list[tuple[int, int]] = []

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        asked.append((len(body["prompt"]), body["max_tokens"]))
        if len(asked) >= 120:
            stop.set()
        await asyncio.sleep(0.05)
        return web.json_response({"usage": {"completion_tokens": body["max_tokens"]}})

    app, stop = web.Application(), asyncio.Event()
    app.router.add_post("/v1/completions", complete)
    async with answering(app) as url, asyncio.timeout(60):
        await hold(Load([url], clients=40, prompt_tokens=16, max_tokens=100, seed=1), stop)
    first, later = asked[:40], asked[40:]
    assert {prompt + answer for prompt, answer in first} == {116}
    stages = sorted(answer for _, answer in first)
    assert max(b - a for a, b in zip([0, *stages], [*stages, 100], strict=True)) <= 5
    assert set(later) == {(16, 100)}


async def test_a_server_that_is_gone_is_an_error_counted_and_the_others_take_over(urls):
    gone = f"http://127.0.0.1:{free_port()}"
    await becomes(urls, [0, 0])
    load, stop = Load([gone, urls[0]], clients=6, max_tokens=10_000), asyncio.Event()
    task = asyncio.create_task(hold(load, stop))
    await becomes(urls, [6, 0])
    stop.set()
    await task
    assert load.errors >= 3
    assert gone in load.last_error
