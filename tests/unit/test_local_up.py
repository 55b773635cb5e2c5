"""`specpilot up` as a process: it serves, profiles, follows the traffic, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.setup.processes import alive

from specpilot.local.load import Load, hold
from specpilot_engine.protocol import Schedule, ScheduleError, parse_schedule

PATIENCE = 120.0  # seconds; an idle machine needs a tenth of it
FILE = """
apiVersion: specpilot.io/v1alpha1
kind: SpeculativeDeployment
metadata: {name: flash}
spec:
  model: {name: demo}
  engine:
    image: vllm/vllm-openai:v0.33.0
    args: [--max-num-seqs, "16", --max-model-len, "4096"]
    env: [{name: SPECPILOT_SIM, value: '{"time_scale": 3, "startup_seconds": 0, "grace_seconds": 1}'}]
  replicas: 2
  speculation: {method: MTP, maxTokens: 7}
  tuning: {interval: 1s, dwell: 1s, explorationPrice: 0.02}
  profiling: {grid: {tokens: [0, 1, 3, 7], batchSizes: [1, 8], contextLengths: [256]}}
"""


class Run:
    """A started `specpilot up`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, state: Path) -> None:
        self.process, self._log, self.state = process, log, state

    @property
    def output(self) -> str:
        return self._log.read_text()

    @property
    def urls(self) -> list[str]:
        return re.findall(r"serves on (http://\S+)", self.output)

    @property
    def schedule(self) -> Schedule | None:
        try:
            return parse_schedule((self.state / "flash-schedule" / "schedule.json").read_text())
        except (OSError, ScheduleError):
            return None

    def depth(self, batch: int) -> int | None:
        return self.schedule.tokens_at(batch) if self.schedule else None

    async def until(self, check: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not check():
            assert self.process.poll() is None, f"it ended: {self.output}"
            assert time.monotonic() < deadline, f"{what}; it said: {self.output}"
            await asyncio.sleep(0.1)


@contextmanager
def started(folder: Path, *more: str, text: str = FILE) -> Iterator[Run]:
    (folder / "flash.yaml").write_text(text)
    command = [sys.executable, "-m", "specpilot.cli", "up", str(folder / "flash.yaml"), "--engine", "sim"]
    state = folder / "state"
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--port", "0", "--state", str(state), *more],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": "operator:serving"},
        )
    try:
        yield Run(process, folder / "log", state)
    finally:
        process.kill()
        process.wait()


def family(pid: int) -> set[int]:
    """All descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        new = children.get(todo.pop(), [])
        found |= set(new)
        todo += new
    return found


async def test_it_serves_profiles_follows_a_traffic_shift_and_ends_cleanly(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        await run.until(lambda: len(run.urls) == 2, "two replicas should serve")
        await run.until(lambda: "8 of 8 step times are known" in run.output, "the grid should be measured")
        profile = json.loads(next(run.state.glob("flash-*[0-9a-f].json")).read_text())
        assert len(profile["spec"]["points"]) == 8
        load, stop = Load(run.urls, 4, "code", max_tokens=128), asyncio.Event()
        holding = asyncio.create_task(hold(load, stop))
        try:
            # With two requests a replica the truth is 7 for code and 3 for prose, each by a fifth.
            await run.until(lambda: run.depth(2) == 7, "code should be drafted 7 deep")
            first = run.schedule
            load.traffic = "prose"
            await run.until(lambda: run.depth(2) in (1, 3), "prose should be drafted less deep")
            assert first is not None
            assert run.schedule is not None
            assert run.schedule.generation > first.generation
            # What is printed is acknowledged: both engines say that they run it.
            await run.until(lambda: "TrafficShift" in run.output or "BetterSchedule" in run.output, "reasons")
        finally:
            stop.set()
            await holding
        assert load.requests > 0
        everyone = family(run.process.pid)
        assert len(everyone) >= 4, "two engines, each under its guard"
        run.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(run.process.wait, PATIENCE) == 0
        assert not [pid for pid in everyone if alive(pid)], "a process was left behind"
        file = tmp_path / "flash.yaml"
        assert run.output.splitlines()[-1] == (
            f"What it learnt is in {run.state}: specpilot explain {file} --state {run.state} shows it, and the next run"
            " goes on from it."
        )
        assert (run.state / "flash-tuner.json").exists()


async def test_the_next_run_measures_nothing_again_and_goes_on_from_the_schedule(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        await run.until(lambda: "8 of 8 step times are known" in run.output, "the grid should be measured")
        run.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(run.process.wait, PATIENCE) == 0
        before = run.schedule
    with started(tmp_path) as again:
        await again.until(lambda: len(again.urls) == 4, "two replicas should serve again")
        assert "the profile of an earlier run is used" in again.output
        assert again.output.count("step times are known") == 1
        assert again.schedule == before


async def test_nothing_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        await run.until(lambda: len(family(run.process.pid)) >= 8, "engines and profilers should run")
        everyone = family(run.process.pid)
        run.process.kill()
        run.process.wait()
        deadline = time.monotonic() + PATIENCE
        while left := [pid for pid in everyone if alive(pid)]:
            assert time.monotonic() < deadline, f"{left} outlived the run"
            await asyncio.sleep(0.1)


async def test_it_ends_by_itself_after_the_time_it_was_given(tmp_path: Path) -> None:
    with started(tmp_path, "--for", "1s") as run:
        assert await asyncio.to_thread(run.process.wait, PATIENCE) == 0
    assert "specpilot explain" not in run.output  # nothing was learnt


async def test_made_up_requests_that_all_fail_are_told_in_the_engines_words(tmp_path: Path) -> None:
    """The window of 256 tokens has no room for a prompt and 256 tokens of answer."""
    with started(tmp_path, "--clients", "4", text=FILE.replace('"4096"', '"256"')) as run:
        await run.until(lambda: "no made-up request is answered" in run.output, "refusals should be told")
        told = next(line for line in run.output.splitlines() if "no made-up request" in line)
        assert re.search(r"\(http://127.0.0.1:\d+: 400 .*maximum context length.*\): correct what", told), (
            told
        )


async def test_an_engine_that_cannot_start_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    text = FILE.replace('"time_scale": 3', '"fail": {"start": true}')
    (tmp_path / "bad.yaml").write_text(text)
    command = [sys.executable, "-m", "specpilot.cli", "up", str(tmp_path / "bad.yaml"), "--engine", "sim"]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "--port", "0", "--state", str(tmp_path / "other")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": "operator:serving"},
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert re.match(r"specpilot: flash-[01] ended 3 times before it served, last with status 1: ", last)
    assert "the engine fails to start" in last


@pytest.mark.parametrize("env", ['{name: "A=B", value: x}', '{name: A, value: "x\\0y"}'])
def test_an_environment_that_no_process_can_have_ends_the_run(tmp_path: Path, env: str) -> None:
    (tmp_path / "bad.yaml").write_text(FILE.replace("env: [", f"env: [{env}, "))
    command = [sys.executable, "-m", "specpilot.cli", "up", str(tmp_path / "bad.yaml"), "--engine", "sim"]
    done = subprocess.run(
        [*command, "--port", "0", "--state", str(tmp_path / "other")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": "operator:serving"},
        timeout=PATIENCE,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "cannot be started" in done.stderr
