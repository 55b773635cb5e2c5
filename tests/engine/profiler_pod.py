"""A simulated engine whose true step times are known, and profilers as processes beside it."""

import contextlib
import json
import os
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
PATIENCE = 180.0  # seconds; a machine that is not busy needs a tenth of it
GRID = ProfileRequest("fingerprint", (0, 3), (1, 8), (512,), repeats=8, warmup=2, budget=120.0)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(condition, what: str, seconds: float = PATIENCE):
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


JOB = ProfileRequest("k", (0, 3), (1,), (512,), 4, 1, 60.0, "exit")


class Pod:
    """A simulated engine, and profilers started beside it."""

    def __init__(self, folder: Path) -> None:
        self.points, self.override = folder / "points.jsonl", folder / "override.json"
        self.may_serve = folder / "may-serve"
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
                protocol.ENV_READY_FILE: str(self.may_serve),
                protocol.ENV_ENGINE_URL: f"http://127.0.0.1:{self.engine_port}",
            }
            | env,
        )

    def profile(self, query: str = "") -> dict:
        status, text = get(f"http://127.0.0.1:{self.profiler_port}{protocol.PROFILE_PATH}{query}")
        return json.loads(text) if status == 200 else {"points": [], "finished": False, "error": ""}

    def measurements(self) -> int:
        """Points that were ever written down."""
        return self.points.read_text().count('"point"')

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
