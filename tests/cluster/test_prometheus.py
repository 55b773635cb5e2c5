"""Reading a real Prometheus that scrapes a real simulated engine."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import httpx
import pytest
from tests.setup import debian

from specpilot.api.vocabulary import Reason
from specpilot.estimate.counters import Counters
from specpilot.metrics.http import MetricsError, Problem
from specpilot.metrics.prometheus import Endpoint, Prometheus
from specpilot.metrics.scrape import Target
from specpilot.metrics.source import Metrics
from specpilot_engine.protocol import ENV_PORT, ENV_SIM

SPECULATION = """{"method": "mtp", "num_speculative_tokens": 7,
                  "num_speculative_tokens_per_batch_size": [[1, 256, 3]]}"""
PATIENCE = 60.0  # seconds until a process that was started has to be there


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def wait_for(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{url} did not answer in {PATIENCE:g} s")


@pytest.fixture(scope="module")
def engine() -> Iterator[tuple[int, int]]:
    """A simulated engine; its OpenAI port and its engine package's port."""
    http, exports = free_port(), free_port()
    env = {**os.environ, ENV_PORT: str(exports), ENV_SIM: '{"startup_seconds": 0, "grace_seconds": 0}'}
    command = [sys.executable, "-m", "specpilot_engine.sim", "--port", str(http), "--host", "127.0.0.1"]
    config = [
        "--scheduler-cls",
        "specpilot_engine.scheduler.make_scheduler",
        "--speculative-config",
        SPECULATION,
    ]
    process = subprocess.Popen([*command, *config], env=env, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{http}/health")
        wait_for(f"http://127.0.0.1:{exports}/metrics")
        yield http, exports
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def prometheus(engine: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Prometheus that scrapes the engine each second, its exports by two jobs."""
    debian.provide({"prometheus": debian.CLUSTER["prometheus"]})
    binary = shutil.which("prometheus")
    assert binary
    http, exports = engine
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    labels = "{namespace: llm, pod: flash-0, cluster: here}"
    jobs = "".join(
        f"\n- job_name: {job}\n  static_configs: [{{targets: ['127.0.0.1:{target}'], labels: {labels}}}]"
        for job, target in (("vllm", http), ("specpilot", exports), ("again", exports))
    )
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:{jobs}\n"
    )
    process = subprocess.Popen(
        [
            binary,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{url}/-/ready")
        yield url
    finally:
        process.kill()
        process.wait()


def generate(http: int) -> int:
    """Have the engine emit tokens; returns how many."""
    body = {"prompt": [1] * 16, "max_tokens": 64}
    answer = httpx.post(f"http://127.0.0.1:{http}/v1/completions", json=body, timeout=60, trust_env=False)
    tokens: int = answer.json()["usage"]["completion_tokens"]
    return tokens


async def read_until(read: Callable[[], Awaitable[Counters | None]], generated: float) -> Counters:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        counters = await read()
        if counters is not None and counters.generated == generated and counters.cells:
            return counters
        await asyncio.sleep(0.2)
    raise AssertionError(f"Prometheus never showed {generated} generated tokens")


async def test_prometheus_and_a_scrape_agree(engine: tuple[int, int], prometheus: str) -> None:
    http, exports = engine
    direct, through = Metrics(), Metrics([Endpoint("main", prometheus)])
    target = Target("llm", "flash-0", "life", "127.0.0.1", engine_port=exports, http_port=http)

    async def scraped() -> Counters | None:
        return (await direct.read([target])).pods[target.key].counters

    async def queried() -> Counters | None:
        reading = (await through.read([target])).pods[target.key]
        assert reading.reason in (Reason.PROMETHEUS, Reason.METRICS_UNAVAILABLE, Reason.FALLBACK_SCRAPING)
        return reading.counters if reading.reason is Reason.PROMETHEUS else None

    before = await scraped()
    assert before is not None
    tokens = await asyncio.to_thread(generate, http) + (before.generated or 0)
    scrape = await read_until(scraped, tokens)
    query = await read_until(queried, tokens)
    # Two jobs scrape the engine package's port: nothing may be counted twice.
    assert query.cells == scrape.cells
    assert query.drafted == scrape.drafted
    assert query.drafted[0] > 0
    assert (query.all_steps, query.generation, query.live) == (scrape.all_steps, 0, scrape.live)
    assert (query.latency_count, query.first_tokens) == (scrape.latency_count, scrape.first_tokens)
    assert query.drafts == scrape.drafts
    await direct.aclose()
    await through.aclose()


async def test_a_sample_carries_the_time_of_its_scrape(prometheus: str) -> None:
    client = Prometheus(Endpoint("main", prometheus))
    key = ("llm", "flash-0")
    times: list[float] = []
    while len(set(times)) < 3:
        snapshot = await client.read(["llm"])
        counters = snapshot.counters(key, "life", {"cluster": "here"})
        assert counters is not None
        times.append(counters.at)
        await asyncio.sleep(0.1)
    assert snapshot.counters(key, "life", {"cluster": "elsewhere"}) is None
    assert snapshot.counters(("llm", "flash-1"), "life", {}) is None
    assert times == sorted(times)
    query = {"query": "specpilot_engine_steps_total[5m]"}
    answer = httpx.get(f"{prometheus}/api/v1/query", params=query, trust_env=False).json()
    scrapes = {float(at) for series in answer["data"]["result"] for at, _ in series["values"]}
    assert set(times) <= scrapes
    await client.aclose()


async def test_a_namespace_without_series_says_what_to_scrape(prometheus: str) -> None:
    client = Prometheus(Endpoint("main", prometheus))
    with pytest.raises(MetricsError, match="has no series of vLLM or specpilot in nowhere") as e:
        await client.read(["nowhere"])
    assert e.value.reason is Problem.NO_SERIES
    await client.aclose()


async def test_a_wrong_path_on_a_real_prometheus_is_told(prometheus: str) -> None:
    client = Prometheus(Endpoint("main", prometheus + "/graph"))
    with pytest.raises(MetricsError, match="HTTP 404: check its url"):
        await client.read(["llm"])
    await client.aclose()
