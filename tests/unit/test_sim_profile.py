"""The real profiler beside the simulated engine finds the world's cost table."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from specpilot_engine import protocol
from specpilot_engine.protocol import ProfileRequest, parse_point
from specpilot_engine.sim.truth import read_truth

ROOT = Path(__file__).parents[2]
# In real time: requests must last longer than a busy machine keeps the profiler waiting. Its noise is what
# the profiler has to see through.
WORLD = json.dumps({"startup_seconds": 0, "step_noise": 0.05})
SPECULATION = {
    "method": "mtp",
    "num_speculative_tokens": 7,
    "num_speculative_tokens_per_batch_size": [[1, 61, 1], [62, 62, 7], [63, 63, 3], [64, 64, 0]],
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def profiled(folder: Path, speculation: dict, request: ProfileRequest) -> dict:
    """What a profiler beside an engine says in the end."""
    api, exports, profiler = free_port(), free_port(), free_port()
    env = {
        **os.environ,
        "PYTHONPATH": "serving",
        protocol.ENV_SIM: WORLD,
        protocol.ENV_PORT: str(exports),
        protocol.ENV_OVERRIDE_FILE: str(folder / "override.json"),
        protocol.ENV_PROFILE: request.dump(),
        protocol.ENV_PROFILE_FILE: str(folder / "points"),
        protocol.ENV_PROFILER_PORT: str(profiler),
        protocol.ENV_ENGINE_URL: f"http://127.0.0.1:{api}",
    }
    engine = ["specpilot_engine.sim", "--host", "127.0.0.1", "--port", str(api), "--max-num-seqs", "64"]
    engine += ["--scheduler-cls", "specpilot_engine.scheduler.factory"]
    engine += ["--speculative-config", json.dumps(speculation)]
    with ExitStack() as stack:
        for module in (engine, ["specpilot_engine.profiler"]):
            process = subprocess.Popen([sys.executable, "-m", *module], env=env, cwd=ROOT)
            stack.callback(process.wait)
            stack.callback(process.kill)
        return finished(f"http://127.0.0.1:{profiler}{protocol.PROFILE_PATH}")


def test_profile_of_the_simulated_engine_is_its_cost_table(tmp_path: Path):
    request = ProfileRequest("key", (0, 1, 3, 7), (1, 8, 64), (2048,), repeats=24, budget=240)
    document = profiled(tmp_path, SPECULATION, request)
    assert document["error"] == ""
    points = [parse_point(p) for p in document["points"]]
    assert {(p.tokens, p.batch) for p in points} == {(k, b) for k in (0, 1, 3, 7) for b in (1, 8, 64)}
    truth = read_truth(WORLD)
    for p in points:
        assert p.seconds == pytest.approx(truth.step_seconds(p.tokens, p.batch, p.context), rel=0.08)


def test_steps_of_which_vllm_sizes_what_is_verified_are_no_points(tmp_path: Path):
    rows = {"enable_adaptive_verification": True, "num_speculative_tokens_per_batch_size": [[1, 64, 7]]}
    document = profiled(tmp_path, SPECULATION | rows, ProfileRequest("key", (0, 7), (1,), (64,), budget=240))
    assert document["points"] == []
    assert document["error"].startswith(
        "the engine cannot change its depth while it runs: vLLM sizes what is verified of a draft itself"
    )


def finished(url: str) -> dict:
    deadline = time.monotonic() + 250
    while time.monotonic() < deadline:
        time.sleep(0.1)
        try:
            document = httpx.get(url, trust_env=False).json()
        except httpx.TransportError:
            continue
        if document["finished"]:
            return document
    raise AssertionError("the profiler did not finish")
