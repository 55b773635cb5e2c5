"""Every way in which a Prometheus can fail, over real HTTP on this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web
from tests.setup.answering import answering

from specpilot.metrics.http import MetricsError, Problem
from specpilot.metrics.prometheus import Endpoint, Prometheus
from specpilot.metrics.scrape import Target
from specpilot.metrics.source import Metrics, availability

Broken = Callable[[int, str], Awaitable[str]]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


SERIES = '{"metric": {"__name__": "vllm:prompt_tokens_total", "namespace": "llm", "pod": "flash-0"}'
ANSWERS: dict[str, tuple[int, str, Problem, str]] = {
    "an error page": (502, "<html>Bad Gateway</html>", Problem.FAILED, "HTTP 502"),
    "an error page that says 200": (200, "<html>Sign in</html>", Problem.MALFORMED, "not its JSON"),
    "nothing": (200, "", Problem.MALFORMED, "not its JSON"),
    "an empty result": (
        200,
        '{"status": "success", "data": {"result": []}}',
        Problem.NO_SERIES,
        "let it scrape the pods",
    ),
    "another JSON": (200, '{"results": []}', Problem.MALFORMED, "not its JSON"),
    "a result of another kind": (
        200,
        '{"status": "success", "data": {"result": [1, "2"]}}',
        Problem.MALFORMED,
        "not its JSON",
    ),
    "labels that are no text": (
        200,
        f'{{"status": "success", "data": {{"result": [{SERIES[:-1]}, "k": 3}}, "values": [[1, "2"]]}}]}}}}',
        Problem.MALFORMED,
        "not its JSON",
    ),
    "a number beyond all bounds": (
        200,
        f'{{"status": "success", "data": {{"result": [{SERIES}, "values": [[1{"0" * 400}, "2"]]}}]}}}}',
        Problem.MALFORMED,
        "not its JSON",
    ),
    "JSON nested without end": (200, "[" * 100_000, Problem.MALFORMED, "not its JSON"),
    "a query that failed": (
        422,
        '{"status": "error", "errorType": "execution", "error": "too many samples"}',
        Problem.FAILED,
        "too many samples",
    ),
    "a refused token": (403, "forbidden", Problem.REFUSED, "check tokenFile"),
    "a login page": (302, "", Problem.REFUSED, "HTTP 302"),
}


@pytest.fixture
async def broken() -> AsyncIterator[Broken]:
    """Starts a server that answers every query alike; status 0: it never answers."""
    servers = AsyncExitStack()

    async def start(status: int, body: str) -> str:
        async def answer(_: web.Request) -> web.Response:
            if status == 0:
                await asyncio.sleep(30)
            return web.Response(text=body, status=status, headers={"Location": "/login"})

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        return await servers.enter_async_context(answering(app))

    async with servers:
        yield start


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_that_is_no_measurement_is_an_error(name: str, broken: Broken) -> None:
    status, body, problem, words = ANSWERS[name]
    client = Prometheus(Endpoint("main", await broken(status, body)))
    with pytest.raises(MetricsError, match=words) as e:
        await client.read(["llm"])
    assert e.value.reason is problem
    assert e.value.message.startswith("Prometheus main")
    await client.aclose()


async def test_a_prometheus_that_hangs_or_is_gone_is_an_error_in_time(
    broken: Broken,
) -> None:
    client = Prometheus(Endpoint("main", await broken(0, ""), timeout=0.3))
    with pytest.raises(MetricsError, match="did not answer in time") as e:
        await client.read(["llm"])
    assert e.value.reason is Problem.TIMEOUT
    await client.aclose()
    gone = Prometheus(Endpoint("main", f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(MetricsError, match="cannot be reached") as e:
        await gone.read(["llm"])
    assert e.value.reason is Problem.UNREACHABLE


async def test_nan_is_no_measurement(broken: Broken) -> None:
    url = await broken(
        200, f'{{"status": "success", "data": {{"result": [{SERIES}, "values": [[100.5, "NaN"]]}}]}}}}'
    )
    target = Target("llm", "flash-0", "life", "127.0.0.1", "Prometheus", "main")
    metrics = Metrics([Endpoint("main", url)])
    reading = (await metrics.read([target])).pods[target.key]
    assert reading.counters is None
    assert "has no fresh series" in reading.message
    await metrics.aclose()


@pytest.mark.parametrize("seconds", [0.25, 2.5, 20.0])
async def test_a_query_is_given_its_time_as_prometheus_reads_it(seconds: float) -> None:
    """A number of seconds, or units without fractions: "2.5s" is neither."""
    seen = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((await request.post())["timeout"])
        return web.Response(text="{}", status=403)

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    async with answering(app) as server:
        client = Prometheus(Endpoint("main", server, timeout=seconds))
        with pytest.raises(MetricsError):
            await client.read(["llm"])
        await client.aclose()
    assert [float(text) for text in seen] == [seconds]


async def test_token_and_headers_are_sent_and_read_anew_for_each_read(tmp_path: Path) -> None:
    seen = []

    async def answer(request: web.Request) -> web.Response:
        names = ("Authorization", "X-Scope-OrgID", "X-Api-Key")
        seen.append(tuple(request.headers.get(name) for name in names))
        return web.Response(text="{}", status=403)

    app = web.Application()
    app.router.add_post("/prefix/api/v1/query", answer)
    async with answering(app) as server:
        url = f"{server}/prefix/"
        token, key = tmp_path / "token", tmp_path / "key"
        key.write_text("k1\n")
        files = {"X-Api-Key": str(key)}
        client = Prometheus(
            Endpoint("main", url, str(token), headers={"X-Scope-OrgID": "team"}, header_files=files)
        )
        with pytest.raises(MetricsError, match="token cannot be read") as e:
            await client.read(["llm"])
        assert e.value.reason is Problem.CONFIGURATION
        for text in ("one\n", "two\n"):
            token.write_text(text)
            key.write_text(f"key {text}")
            with pytest.raises(MetricsError, match="refused the operator"):
                await client.read(["llm"])
        assert seen == [("Bearer one", "team", "key one"), ("Bearer two", "team", "key two")]
        key.unlink()
        with pytest.raises(MetricsError, match=r"headerFiles \S+/key cannot be read .*: mount it"):
            await client.read(["llm"])
        await client.aclose()


@pytest.mark.parametrize(
    "held", ["hunter2\nX-Admin: yes", "hunter2\x00", "hünter2", "", "hunter2\r"], ids=repr
)
@pytest.mark.parametrize("kind", ["tokenFile", "headerFiles"])
async def test_a_secret_that_is_no_header_is_refused_and_never_told(
    held: str, kind: str, tmp_path: Path, broken: Broken
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(held.encode())
    url = await broken(200, "{}")
    endpoint = (
        Endpoint("main", url, str(file))
        if kind == "tokenFile"
        else Endpoint("main", url, header_files={"X-Key": str(file)})
    )
    client = Prometheus(endpoint)
    with pytest.raises(MetricsError) as e:
        await client.read(["llm"])
    if held.strip().isascii() and held.strip().isalnum():  # a line's end is no part of it
        assert e.value.reason is Problem.MALFORMED
    else:
        assert e.value.reason is Problem.CONFIGURATION
        assert f"{kind} {file} does not hold one line of printable ASCII" in e.value.message
    assert "nter2" not in f"{e.value.message} {e.value.__cause__} {endpoint!r}"
    await client.aclose()


def test_header_values_are_in_no_text_of_an_endpoint() -> None:
    assert "hunter2" not in repr(Endpoint("main", "http://x", headers={"X-Key": "hunter2"}))


async def test_a_lost_prometheus_makes_source_prometheus_unavailable_after_two_reads() -> None:
    metrics = Metrics([Endpoint("main", f"http://127.0.0.1:{free_port()}")])
    target = Target("llm", "flash-0", "life", "127.0.0.1", "Prometheus", "main")
    verdicts = []
    for _ in range(2):
        reading = await metrics.read([target])
        assert reading.pods[target.key].counters is None
        assert reading.endpoints["main"] is not None
        verdicts.append(availability(reading.pods.values()))
    assert [v and v.available for v in verdicts] == [True, False]
    await metrics.aclose()
