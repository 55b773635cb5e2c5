"""Servers that answer without end, and one whose certificate does not verify: a tick waits for none of them."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from specpilot.metrics import scrape
from specpilot.metrics.http import MetricsError, Problem
from specpilot.metrics.prometheus import Endpoint, Prometheus
from specpilot.metrics.scrape import Pods, Target

Serve = Callable[..., Awaitable[int]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
# Signed by itself, for prometheus.example.
CERTIFICATE = """
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQglEPraw9SgXb4WlYJ
tOfAoDigprt77qhVmG4A7/6RysWhRANCAASEiaqzqvKhRNmhF6j89BJqkHu1TW0K
l0yytj1q+Mp6FSnSyM5hLGKjlM0T2xUnwf58faxjdBawe+0d7ezgdtXl
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBsDCCAVagAwIBAgIUKTX0Q7ZqjkIA/p4Nh40Uflk2erswCgYIKoZIzj0EAwIw
HTEbMBkGA1UEAwwScHJvbWV0aGV1cy5leGFtcGxlMCAXDTI2MTEzMDExMDEzMVoY
DzIxMjYxMTA2MTEwMTMxWjAdMRswGQYDVQQDDBJwcm9tZXRoZXVzLmV4YW1wbGUw
WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASEiaqzqvKhRNmhF6j89BJqkHu1TW0K
l0yytj1q+Mp6FSnSyM5hLGKjlM0T2xUnwf58faxjdBawe+0d7ezgdtXlo3IwcDAd
BgNVHQ4EFgQUOG9FyEtsf7ewu65QtUoytADp8ikwHwYDVR0jBBgwFoAUOG9FyEts
f7ewu65QtUoytADp8ikwDwYDVR0TAQH/BAUwAwEB/zAdBgNVHREEFjAUghJwcm9t
ZXRoZXVzLmV4YW1wbGUwCgYIKoZIzj0EAwIDSAAwRQIgf56vxsuXpIZ0fnBK1txW
eBsHqTogZEdKk7MolXmHqssCIQD8XZFeyPiP/5PGD2lS1NC4+6aRhMFxmdmtfd+S
Oy9yEA==
-----END CERTIFICATE-----
"""


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server that sends a header and then `part` again and again, with `rest` seconds between."""
    servers = []

    async def start(part: bytes, rest: float, tls: ssl.SSLContext | None = None) -> int:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                writer.write(HEAD)
                while True:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(rest)

        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
        servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    yield start
    for server in servers:
        server.close()


async def test_an_answer_that_never_ends_is_one_that_did_not_come_in_time(serve: Serve) -> None:
    """Each byte comes long before the client's patience is over."""
    port = await serve(b" ", 0.05)
    started = time.monotonic()
    with pytest.raises(MetricsError, match="Prometheus main did not answer in time") as e:
        await Prometheus(Endpoint("main", f"http://127.0.0.1:{port}", timeout=0.5)).read(["llm"])
    assert e.value.reason is Problem.TIMEOUT
    pods = Pods(timeout=0.5)
    target = Target(
        "llm", "flash-0", "life", "127.0.0.1", engine_port=port, http_port=port, profiler_port=port
    )
    for ask in (pods.counters, pods.state, lambda of: pods.profile(of, 0)):
        with pytest.raises(MetricsError, match=r"pod llm/flash-0 port .* did not answer in time") as e:
            await ask(target)
        assert e.value.reason is Problem.TIMEOUT
    assert time.monotonic() - started < 30  # an endless wait has ended
    await pods.aclose()


async def test_an_answer_without_bounds_is_not_taken_in(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "LARGEST", 1 << 20)
    port = await serve(b"#" * 65536, 0.0)
    pods = Pods(timeout=30)
    with pytest.raises(MetricsError, match="answered with more than 1 MiB") as e:
        await pods.counters(Target("llm", "flash-0", "life", "127.0.0.1", engine_port=port, http_port=port))
    assert e.value.reason is Problem.MALFORMED
    await pods.aclose()


async def test_a_certificate_that_does_not_verify_is_told_with_what_to_set(
    serve: Serve, tmp_path: Path
) -> None:
    pem = tmp_path / "server.pem"
    pem.write_text(CERTIFICATE)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pem)
    url = f"https://127.0.0.1:{await serve(b'', 0.05, tls)}"
    for ca, why in ((None, "self-signed certificate"), (str(pem), "IP address mismatch")):
        with pytest.raises(MetricsError, match=f"does not verify .{why}.*: set caFile to the CA") as e:
            await Prometheus(Endpoint("main", url, ca_file=ca, timeout=5)).read(["llm"])
        assert e.value.reason is Problem.UNREACHABLE
