"""Children end with whoever started them, whatever ended that one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.setup.processes import alive

from specpilot.local.process import Process, free_ports, port_taken

# A child with a grandchild of its own, as an engine has workers; writes both pids.
FAMILY = """
import os, subprocess, sys, time
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1] + ".tmp", "w").write(f"{os.getpid()} {grandchild.pid}")
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
time.sleep(600)
"""


def eventually(check: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


async def test_a_command_runs_with_its_environment_and_its_log(tmp_path: Path) -> None:
    process = Process("engine", tmp_path / "logs" / "engine.log")
    assert process.status is None
    command = [sys.executable, "-c", "import os; print('hello'); print(os.environ['X']); print()"]
    await process.start(command, {**os.environ, "X": "last words"})
    assert await process.wait() == 0
    assert process.last_words() == "last words"


async def test_the_status_of_a_command_that_fails_is_its_own(tmp_path: Path) -> None:
    process = Process("engine", tmp_path / "log")
    await process.start([sys.executable, "-c", "raise SystemExit(3)"], os.environ)
    assert await process.wait() == 3


async def test_a_command_that_cannot_run_says_so_in_its_log(tmp_path: Path) -> None:
    process = Process("engine", tmp_path / "log")
    await process.start(["/no/such/program"], os.environ)
    assert await process.wait() == 127
    assert process.last_words() == "cannot run /no/such/program: No such file or directory"


async def test_stopping_lets_a_command_finish_its_work(tmp_path: Path) -> None:
    script = """
import signal, sys, time
def end(*_): print("finished"); sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("started", flush=True)
while True: time.sleep(1)
"""
    process = Process("engine", tmp_path / "log")
    await process.start([sys.executable, "-c", script], os.environ)
    while process.last_words() != "started":
        await asyncio.sleep(0.05)
    await process.stop()
    assert process.status == 0
    assert process.last_words() == "finished"
    await process.stop()


async def test_a_command_that_will_not_end_is_made_to(tmp_path: Path) -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(600)"
    process = Process("engine", tmp_path / "log")
    await process.start([sys.executable, "-c", script], os.environ, grace=0.3)
    while process.last_words() != "x":
        await asyncio.sleep(0.05)
    await process.stop()
    assert process.status == 128 + signal.SIGKILL


async def test_stopping_ends_grandchildren_too(tmp_path: Path) -> None:
    process = Process("engine", tmp_path / "log")
    await process.start([sys.executable, "-c", FAMILY, str(tmp_path / "pids")], os.environ)
    while not (tmp_path / "pids").exists():
        await asyncio.sleep(0.05)
    pids = [int(p) for p in (tmp_path / "pids").read_text().split()]
    await process.stop()
    eventually(lambda: not any(map(alive, pids)), f"one of {pids} is left")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_starter_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    starter = f"""
import asyncio, os, sys
from pathlib import Path
from specpilot.local.process import Process
async def main():
    process = Process("engine", Path({str(tmp_path / "log")!r}))
    await process.start([sys.executable, "-c", {FAMILY!r}, {str(tmp_path / "pids")!r}], os.environ)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", starter], env={**os.environ, "PYTHONPATH": "operator:serving"}
    )
    eventually((tmp_path / "pids").exists, "the child never started")
    pids = [int(p) for p in (tmp_path / "pids").read_text().split()]
    assert all(map(alive, pids))
    parent.send_signal(number)
    parent.wait()
    eventually(lambda: not any(map(alive, pids)), f"one of {pids} outlived its starter")


def test_free_ports_differ_and_a_taken_one_is_seen() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        assert port_taken(s.getsockname()[1], "127.0.0.1")
    assert not port_taken(free_ports(1)[0], "127.0.0.1")
