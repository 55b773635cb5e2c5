"""A pod that comes when everything is known measures nothing, and serves at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from specpilot_engine import protocol
from specpilot_engine.protocol import ProfileRequest, parse_profiled, profiled_document

ROOT = Path(__file__).parents[2]
Start = Callable[..., str]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in sockets]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a profiler whose engine never answers; the URL of its profile."""
    with ExitStack() as stack:

        def run(then: str = "serve") -> str:
            port, engine, api = free_ports(3)
            request = ProfileRequest("key", (0, 1, 3), (1, 8), (64,), then=then)
            env = {
                **os.environ,
                "PYTHONPATH": "serving",
                protocol.ENV_PORT: str(engine),
                protocol.ENV_OVERRIDE_FILE: str(tmp_path / "override.json"),
                protocol.ENV_PROFILE: request.dump(),
                protocol.ENV_PROFILE_FILE: str(tmp_path / "points"),
                protocol.ENV_PROFILED_FILE: str(tmp_path / "profiled.json"),
                protocol.ENV_READY_FILE: str(tmp_path / "ready"),
                protocol.ENV_PROFILER_PORT: str(port),
                protocol.ENV_ENGINE_URL: f"http://127.0.0.1:{api}",
            }
            command = [sys.executable, "-m", "specpilot_engine.profiler"]
            process = subprocess.Popen(command, env=env, cwd=ROOT)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return f"http://127.0.0.1:{port}{protocol.PROFILE_PATH}"

        yield run


def asked(url: str, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        try:
            document: dict[str, Any] = httpx.get(url, trust_env=False).json()
        except httpx.TransportError:
            continue
        if until(document):
            return document
    raise AssertionError("the profiler did not get there")


def test_where_the_request_is_known_the_engine_is_not_even_waited_for(start: Start, tmp_path: Path) -> None:
    (tmp_path / "profiled.json").write_text(profiled_document("key"))
    document = asked(start(), lambda d: d["finished"])
    assert (document["points"], document["total"]) == ([], 6)
    assert document["error"] == (
        "the profile was known when this pod started: start the pod anew to measure (6 points left out)"
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline, "the pod may serve"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("then", "text"),
    [
        ("serve", None),
        ("serve", profiled_document("another")),
        ("serve", "{"),
        ("exit", profiled_document("key")),  # a Job is only made where something is missing
    ],
)
def test_anything_else_is_measured(start: Start, tmp_path: Path, then: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / "profiled.json").write_text(text)
    url = start(then)
    asked(url, lambda d: d["total"] == 6)
    time.sleep(0.5)
    assert not asked(url, lambda d: d["total"] == 6)["finished"]
    assert not (tmp_path / "ready").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"key": 3}', "{}", "[" * 100_000])
def test_what_names_no_request_names_none(text: str) -> None:
    assert parse_profiled(text) == ""


def test_the_document_names_its_request() -> None:
    assert parse_profiled(profiled_document("0123456789abcdef")) == "0123456789abcdef"
