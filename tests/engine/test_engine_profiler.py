"""The profiler as a process beside a simulated engine whose true step times are known."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from specpilot_engine import protocol
from specpilot_engine.protocol import ProfileRequest

ROOT = Path(__file__).parents[2]
WORLD = {
    "depths": [0, 3],
    "batches": [1, 8],
    "step_time_ms": [[4, 6], [8, 12]],
    "traffic": {"chat": {"survival": [0.6, 0.4, 0.2]}},
    "startup_seconds": 0,
    "step_noise": 0,
}
TRUTH = {(0, 1): 4, (3, 1): 8, (0, 8): 6, (3, 8): 12}  # milliseconds
SPECULATION = {
    "method": "mtp",
    "num_speculative_tokens": 3,
    "num_speculative_tokens_per_batch_size": [[1, 8, 3]],
}
GRID = ProfileRequest("fingerprint", (0, 3), (1, 8), (512,), repeats=8, warmup=2, budget=120.0)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(condition, what: str, seconds: float = 60.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)
    return value


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except OSError:
        return 0, ""


class Pod:
    """A simulated engine, and profilers started beside it."""

    def __init__(self, folder: Path) -> None:
        self.points, self.override = folder / "points.jsonl", folder / "override.json"
        self.engine_port, self.exports_port, self.profiler_port = free_port(), free_port(), free_port()
        self.processes: list[subprocess.Popen[bytes]] = []

    def spawn(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        common = {
            "PYTHONPATH": "serving",
            protocol.ENV_PORT: str(self.exports_port),
            protocol.ENV_OVERRIDE_FILE: str(self.override),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=ROOT, env={**os.environ, **common, **env}
        )
        self.processes.append(process)
        return process

    def engine(self, speculation: dict | None = None, **world) -> subprocess.Popen[bytes]:
        arguments = ["--model", "org/model", "--host", "127.0.0.1", "--port", str(self.engine_port)]
        arguments += ["--max-num-seqs", "8", "--max-model-len", "2048"]
        arguments += ["--scheduler-cls", "specpilot_engine.scheduler.factory"]
        arguments += ["--speculative-config", json.dumps(speculation or SPECULATION)]
        process = self.spawn(
            "specpilot_engine.sim", *arguments, **{protocol.ENV_SIM: json.dumps(WORLD | world)}
        )
        until(lambda: get(f"http://127.0.0.1:{self.engine_port}/health")[0] == 200, "the engine")
        return process

    def profiler(self, request: ProfileRequest = GRID, **env: str) -> subprocess.Popen[bytes]:
        return self.spawn(
            "specpilot_engine.profiler",
            **{
                protocol.ENV_PROFILE: request.dump(),
                protocol.ENV_PROFILE_FILE: str(self.points),
                protocol.ENV_PROFILER_PORT: str(self.profiler_port),
                protocol.ENV_ENGINE_URL: f"http://127.0.0.1:{self.engine_port}",
            }
            | env,
        )

    def profile(self, query: str = "") -> dict:
        status, text = get(f"http://127.0.0.1:{self.profiler_port}{protocol.PROFILE_PATH}{query}")
        return json.loads(text) if status == 200 else {"points": [], "finished": False, "error": ""}

    def ready(self) -> int:
        return get(f"http://127.0.0.1:{self.profiler_port}{protocol.READY_PATH}")[0]

    def finished(self) -> dict:
        return until(lambda: (p := self.profile())["finished"] and p, "the profile")

    def measured(self, profile: dict) -> dict[tuple[int, int], float]:
        return {(p["tokens"], p["batchSize"]): 1e3 * p["seconds"] for p in profile["points"]}


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(tmp_path)
    yield pod
    for process in pod.processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def test_measures_the_true_step_time_of_every_point_and_is_ready_only_then(pod):
    pod.engine()
    pod.profiler()
    until(lambda: pod.ready() == 503, "the profiler's port")
    profile = pod.finished()
    assert pod.ready() == 200
    assert (profile["key"], profile["total"], profile["error"]) == ("fingerprint", 4, "")
    assert pod.measured(profile) == pytest.approx(TRUTH)
    assert {(p["steps"], p["contextLength"]) for p in profile["points"]} == {(8, 512)}
    until(lambda: not pod.override.exists(), "the override to be removed")


def test_goes_on_after_being_killed_and_measures_no_point_twice(pod):
    pod.engine()
    first = pod.profiler()
    until(lambda: len(pod.profile()["points"]) >= 1, "a first point")
    first.kill()
    first.wait()
    kept = pod.points.read_text().count("\n")
    assert kept < 4
    pod.profiler()
    assert pod.measured(pod.finished()) == pytest.approx(TRUTH)
    assert pod.points.read_text().count("\n") == 4


def test_a_finished_profile_needs_no_engine(pod):
    pod.engine()
    first = pod.profiler()
    pod.finished()
    for process in pod.processes:
        process.kill()
        process.wait()
    assert first.poll() is not None
    pod.profiler()
    assert pod.measured(pod.finished()) == pytest.approx(TRUTH)


def test_a_job_ends_with_success_once_every_point_was_read(pod):
    pod.engine()
    process = pod.profiler(ProfileRequest("k", (0, 3), (1,), (512,), 4, 1, 60.0, "exit"))
    pod.finished()
    pod.profile("?seen=1")
    time.sleep(1)
    assert process.poll() is None
    assert pod.profile("?seen=2")["finished"]
    assert process.wait(20) == 0


def test_what_the_engine_cannot_hold_is_left_out_with_the_reason(pod):
    pod.engine()
    pod.profiler(ProfileRequest("k", (0, 5, 3), (1, 16, 32), (512, 4096), 4, 1, 60.0))
    profile = pod.finished()
    assert set(pod.measured(profile)) == {(0, 1), (3, 1)}
    assert profile["total"] == 18
    for reason in (
        "depth 5 is above the 3 tokens the engine was started with (1 point left out)",
        "the engine runs no more than 8 requests at once (12 points left out)",
        "context 4096 is above the engine's 2048 tokens (3 points left out)",
    ):
        assert reason in profile["error"]


def test_an_engine_that_cannot_change_its_depth_is_said_at_once(pod):
    pod.engine(fail={"live": "vLLM's Scheduler has no schedule()"})
    pod.profiler()
    profile = pod.finished()
    assert profile["points"] == []
    assert "cannot change its depth while it runs: vLLM's Scheduler has no schedule()" in profile["error"]
    assert pod.ready() == 200


def test_the_budget_ends_it_with_what_it_has(pod):
    pod.engine(step_time_ms=[[40, 60], [80, 120]])
    pod.profiler(ProfileRequest("k", (0, 3), (1, 8), (512,), 100, 2, 6.0))
    profile = pod.finished()
    assert 1 <= len(profile["points"]) < 4
    assert "the budget of 6 seconds is spent" in profile["error"]
    pod.processes[-1].terminate()
    assert pod.processes[-1].wait(20) == 0
    pod.profiler(ProfileRequest("k", (0, 3), (1, 8), (512,), 100, 2, 6.0))
    again = pod.finished()
    assert again["points"] == profile["points"]


def test_an_engine_that_goes_away_twice_under_a_batch_loses_that_batch_only(pod):
    pod.profiler(ProfileRequest("k", (0,), (1, 8), (512,), 1200, 2, 120.0))
    until(lambda: pod.ready() == 503, "the profiler's port")
    for _ in range(2):
        pod.engine(fail={"crash_after": 4}).wait()
    pod.engine()
    profile = pod.finished()
    assert pod.measured(profile) == pytest.approx({(0, 8): 6})
    assert profile["error"] == "the engine went away 2 times at 1 requests, context 512 (1 point left out)"


def test_ended_by_the_kubelet_it_takes_its_override_away(pod):
    pod.engine()
    process = pod.profiler(ProfileRequest("k", (0,), (1,), (512,), 10_000, 0, 120.0))
    until(pod.override.exists, "the override")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert not pod.override.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (protocol.ENV_PROFILE, "{}"),
        (protocol.ENV_PROFILE, "not JSON"),
        (protocol.ENV_PROFILE_FILE, ""),
        (protocol.ENV_PROFILER_PORT, "x"),
    ],
)
def test_wrong_settings_end_it_with_a_status(pod, name, value):
    assert pod.profiler(**{name: value}).wait(30) == 2


def test_a_taken_port_ends_it_with_a_status(pod):
    with socket.socket() as s:
        s.bind(("", pod.profiler_port))
        s.listen()
        assert pod.profiler().wait(30) == 2
