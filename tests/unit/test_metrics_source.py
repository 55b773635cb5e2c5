"""Which source a pod is read from, over real HTTP on this machine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from tests.setup.answering import answering

from specpilot.api.vocabulary import Reason
from specpilot.estimate.counters import Counters
from specpilot.estimate.discards import Discard
from specpilot.estimate.windows import between
from specpilot.metrics import scrape
from specpilot.metrics.http import MetricsError, Problem
from specpilot.metrics.prometheus import Endpoint
from specpilot.metrics.scrape import Target
from specpilot.metrics.source import Metrics, PodReading, availability
from specpilot_engine.protocol import ProfilePoint, Schedule, Step, profile_document, state_document

SCHEDULE = Schedule(7, (Step(16, 3), Step(64, 1)))


@dataclass
class Servers:
    """A pod and a Prometheus whose answers a test sets."""

    target: Target
    endpoint: Endpoint
    tokens: float = 100.0
    vector: list[dict[str, Any]] = field(default_factory=list)
    prometheus_status: int = 200
    pod_status: int = 200
    state: str = ""
    seen: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)

    def in_prometheus(self, value: float, age: float = 5.0, **labels: str) -> float:
        """Let Prometheus have one sample; returns when it was scraped."""
        metric = {"__name__": "vllm:generation_tokens_total", "namespace": "llm", "pod": "flash-0", **labels}
        at = time.time() - age
        self.vector = [{"metric": metric, "values": [[at, str(value)]]}]
        return at


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=f"vllm:generation_tokens_total {it.tokens}\n", status=it.pod_status)

    async def state(_: web.Request) -> web.Response:
        return web.Response(text=it.state, content_type="application/json", status=it.pod_status)

    async def profile(request: web.Request) -> web.Response:
        it.seen.append(request.query["seen"])
        point = ProfilePoint(3, 8, 512, 0.02, 0.01, 16)
        return web.json_response(profile_document("key", [point], 20, False))

    async def query(request: web.Request) -> web.Response:
        it.queries.append(str((await request.post())["query"]))
        data = {"status": "success", "data": {"resultType": "matrix", "result": it.vector}}
        return web.json_response(data, status=it.prometheus_status)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/v1/state", state)
    app.router.add_get("/v1/profile", profile)
    app.router.add_post("/api/v1/query", query)
    async with answering(app) as url:
        port = int(url.rpartition(":")[2])
        target = Target("llm", "flash-0", "uid", "127.0.0.1", "Auto", None, {}, port, 1, port)
        it = Servers(target, Endpoint("main", url))
        it.state = json.dumps(state_document(True, "", SCHEDULE, "", {"vllm": "0.33.0"}))
        yield it


async def one(metrics: Metrics, target: Target) -> PodReading:
    return (await metrics.read([target])).pods[target.key]


async def test_without_an_endpoint_auto_scrapes_the_pod(servers: Servers) -> None:
    metrics = Metrics()
    before = time.time()
    reading = await one(metrics, servers.target)
    assert reading.reason is Reason.SCRAPING
    assert reading.counters is not None
    assert reading.counters.generated == 100
    assert before <= reading.counters.at <= time.time()
    await metrics.aclose()


async def test_auto_reads_the_first_endpoint_and_the_sample_keeps_its_own_time(servers: Servers) -> None:
    metrics = Metrics([servers.endpoint])
    at = servers.in_prometheus(42, age=7)
    reading = await one(metrics, servers.target)
    assert reading.reason is Reason.PROMETHEUS
    assert reading.counters is not None
    assert reading.counters.generated == 42
    assert reading.counters.at == at
    await metrics.aclose()


async def test_one_query_serves_all_pods(servers: Servers) -> None:
    metrics = Metrics([servers.endpoint])
    servers.in_prometheus(42)
    await metrics.read([replace(servers.target, pod=f"flash-{i}", namespace=f"n{i % 2}") for i in range(20)])
    assert len(servers.queries) == 1
    assert 'namespace=~"n0|n1"' in servers.queries[0]
    await metrics.aclose()


async def test_auto_falls_back_after_two_misses_says_so_and_recovers(servers: Servers) -> None:
    metrics = Metrics([servers.endpoint])
    servers.prometheus_status = 500
    first = await one(metrics, servers.target)
    assert (first.counters, first.missed) == (None, 1)
    assert availability([first]) is not None, "one missed read is noise"
    second = await one(metrics, servers.target)
    assert second.reason is Reason.FALLBACK_SCRAPING
    assert second.counters is not None
    assert second.missed == 0
    assert "scraping the pods, because Prometheus main answered with HTTP 500" in second.message
    servers.prometheus_status = 200
    servers.in_prometheus(101, age=0)
    assert (await one(metrics, servers.target)).reason is Reason.PROMETHEUS
    await metrics.aclose()


async def test_counters_never_go_back_in_time_when_the_source_changes(servers: Servers) -> None:
    metrics = Metrics([servers.endpoint])
    for _ in range(2):
        scraped = await one(metrics, servers.target)
    assert scraped.counters is not None
    assert scraped.counters.generated == 100
    servers.in_prometheus(60, age=30)  # scraped by Prometheus before we scraped
    recovered = await one(metrics, servers.target)
    assert recovered.reason is Reason.PROMETHEUS
    assert recovered.counters == scraped.counters
    restarted = await one(metrics, replace(servers.target, life="another"))
    assert restarted.counters is not None
    assert restarted.counters.generated == 60, "another life counts anew"
    await metrics.aclose()


class Clock:
    """Time of which a test decides how far it goes on, and by how much the clock is set besides."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.set = time.monotonic(), time.time() - time.monotonic()
        clock: Any = SimpleNamespace(time=lambda: self.now + self.set, monotonic=lambda: self.now)
        monkeypatch.setattr(scrape, "time", clock)


async def test_scrapes_follow_a_clock_that_is_set_forward_and_no_window_spans_that(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, metrics, read = Clock(monkeypatch), Metrics(), list[Counters]()
    for later, forward in ((0, 0), (30, 0), (30, 600), (30, 0)):
        clock.now, clock.set, servers.tokens = clock.now + later, clock.set + forward, servers.tokens + 10
        counters = (await one(metrics, servers.target)).counters
        assert counters is not None
        assert abs(counters.at - clock.now - clock.set) < 0.01
        read.append(counters)
    found = [between(a, b) for a, b in pairwise(read)]
    assert [getattr(f, "reason", None) for f in found] == [Discard.IDLE, Discard.CLOCK_SET, Discard.IDLE]
    await metrics.aclose()


async def test_a_clock_that_is_set_back_leaves_scrapes_in_their_order(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, metrics, read = Clock(monkeypatch), Metrics(), list[Counters]()
    for back in (0, 600):
        clock.now, clock.set = clock.now + 30, clock.set - back
        counters = (await one(metrics, servers.target)).counters
        assert counters is not None
        read.append(counters)
    assert read[1].at - read[0].at == pytest.approx(30)
    assert read[1].life == read[0].life
    await metrics.aclose()


async def test_after_the_clock_was_set_forward_a_scrape_that_stands_in_for_prometheus_is_the_newer(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    clock.set -= 600
    metrics = Metrics([servers.endpoint])
    servers.in_prometheus(60)
    assert (await one(metrics, servers.target)).reason is Reason.PROMETHEUS
    clock.set += 600
    servers.prometheus_status = 500
    for _ in range(2):
        fallback = await one(metrics, servers.target)
    assert fallback.reason is Reason.FALLBACK_SCRAPING
    assert fallback.counters is not None
    assert fallback.counters.generated == servers.tokens
    await metrics.aclose()


async def test_source_prometheus_never_scrapes_and_turns_unavailable_after_two_misses(
    servers: Servers,
) -> None:
    metrics = Metrics([servers.endpoint])
    target = replace(servers.target, source="Prometheus", endpoint="main")
    verdicts = []
    for _ in range(3):
        reading = await one(metrics, target)
        assert reading.counters is None
        verdict = availability([reading])
        assert verdict is not None
        verdicts.append(verdict.available)
    assert verdicts == [True, False, False]
    assert "has no series of vLLM or specpilot in llm" in reading.message
    await metrics.aclose()


async def test_an_endpoint_that_nobody_configured_is_named(servers: Servers) -> None:
    metrics = Metrics([servers.endpoint])
    target = replace(servers.target, source="Prometheus", endpoint="other")
    reading = await one(metrics, target)
    assert reading.reason is Reason.UNKNOWN_ENDPOINT
    assert "spec.metrics.prometheus names other" in reading.message
    await metrics.aclose()


async def test_labels_choose_among_series_of_one_pod_name(servers: Servers) -> None:
    metrics = Metrics([servers.endpoint])
    servers.in_prometheus(1, cluster="a")
    a = servers.vector
    servers.in_prometheus(2, cluster="b")
    servers.vector += a
    reading = await one(metrics, replace(servers.target, labels={"cluster": "a"}))
    assert reading.counters is not None
    assert reading.counters.generated == 1
    nowhere = await one(metrics, replace(servers.target, labels={"cluster": "c"}))
    assert nowhere.counters is None
    assert 'cluster="c"' in nowhere.message
    await metrics.aclose()


async def test_a_pod_that_two_scrape_jobs_have_is_counted_once(servers: Servers) -> None:
    metrics = Metrics([servers.endpoint])
    servers.in_prometheus(10, age=20, job="a", instance="x:8000")
    older = servers.vector
    servers.in_prometheus(12, age=5, job="b", instance="x:8000")
    servers.vector += older
    reading = await one(metrics, servers.target)
    assert reading.counters is not None
    assert reading.counters.generated == 12
    await metrics.aclose()


async def test_a_pod_that_answers_nothing_is_missed_with_a_sentence(servers: Servers) -> None:
    metrics = Metrics()
    reading = await one(metrics, replace(servers.target, engine_port=1, http_port=2))
    assert reading.counters is None
    assert reading.reason is Reason.METRICS_UNAVAILABLE
    assert reading.message.startswith("pod llm/flash-0 port 1 cannot be reached")
    assert "check that the pod runs" in reading.message
    await metrics.aclose()


async def test_state_is_the_schedule_that_the_engine_runs(servers: Servers) -> None:
    metrics = Metrics()
    gone = replace(servers.target, pod="flash-1", engine_port=1)
    answers = await metrics.states([servers.target, gone])
    state = answers[servers.target.key]
    assert not isinstance(state, MetricsError)
    assert (state.live, state.generation, state.hash) == (True, 7, SCHEDULE.hash)
    assert state.schedule == SCHEDULE.steps
    assert isinstance(answers[gone.key], MetricsError)
    await metrics.aclose()


@pytest.mark.parametrize("text", ["<html>login</html>", "[]", "{}", '{"live": true, "generation": "x"}'])
async def test_a_state_of_another_shape_is_malformed(servers: Servers, text: str) -> None:
    metrics = Metrics()
    servers.state = text
    answer = (await metrics.states([servers.target]))[servers.target.key]
    assert isinstance(answer, MetricsError)
    assert answer.reason is Problem.MALFORMED
    await metrics.aclose()


async def test_profile_points_are_read_and_what_is_stored_is_said(servers: Servers) -> None:
    metrics = Metrics()
    answer = await metrics.profile(servers.target, 3)
    assert answer.points == (ProfilePoint(3, 8, 512, 0.02, 0.01, 16),)
    assert (answer.key, answer.total, answer.finished) == ("key", 20, False)
    assert servers.seen == ["3"]
    await metrics.aclose()


async def test_availability_speaks_of_the_pods_that_are_lost() -> None:
    well = PodReading(None, Reason.PROMETHEUS, "read from Prometheus main")
    lost = PodReading(None, Reason.METRICS_UNAVAILABLE, "pod llm/b port 9101 cannot be reached", 5)
    verdict = availability([well, lost])
    assert verdict is not None
    assert (verdict.available, verdict.reason) == (True, Reason.PROMETHEUS)
    assert verdict.message == "1 of 2 pods can be read; pod llm/b port 9101 cannot be reached"
    assert availability([]) is None


async def test_reads_of_many_pods_run_at_once(servers: Servers) -> None:
    metrics = Metrics()
    targets = [replace(servers.target, pod=f"flash-{i}") for i in range(200)]
    reading = await asyncio.wait_for(metrics.read(targets), 60)
    assert {r.reason for r in reading.pods.values()} == {Reason.SCRAPING}
    await metrics.aclose()
