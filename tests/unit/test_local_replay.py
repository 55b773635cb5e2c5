"""Fixed depths played without waiting agree with the truth they are played in."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from specpilot_engine.sim.replay import Load, Phase, replay
from specpilot_engine.sim.truth import read_truth

WORLD = {
    "depths": [0, 3],
    "batches": [1, 64],
    "step_time_ms": [[10, 10], [20, 20]],
    "traffic": {"good": {"survival": [0.9, 0.8, 0.7]}, "bad": {"survival": [0.1, 0, 0]}},
    "prefill_ms_per_token": 0,
    "step_noise": 0,
}
TRUTH = read_truth(json.dumps(WORLD))
LOAD = Load((Phase(20, 6, "good"), Phase(20, 12, "bad")), replicas=2, max_tokens=200, prompt_tokens=8)


def test_tokens_are_those_of_the_truth() -> None:
    nothing, deep = replay(TRUTH, LOAD, 0), replay(TRUTH, LOAD, 3)
    # One token a request and step: 6 requests at 100 steps a second, then 12.
    assert nothing.phases == pytest.approx((12_000, 24_000), rel=0.02)
    # 1 + .9 + .8 + .7 tokens in twice the time; a request's first token and its cut last step cost a little.
    assert deep.phases[0] == pytest.approx(6 * 50 * 20 * 3.4, rel=0.03)
    # Requests that run at the shift keep their own kind, so a little is left of it.
    assert deep.phases[1] == pytest.approx(12 * 50 * 20 * 1.1, rel=0.12)


def test_phases_and_seconds_count_the_same_tokens() -> None:
    emitted = replay(TRUTH, LOAD, 3)
    assert sum(emitted.phases) == sum(emitted.seconds)
    assert len(emitted.seconds) == 40


def test_the_same_load_gives_the_same_tokens() -> None:
    assert replay(TRUTH, LOAD, 3) == replay(TRUTH, LOAD, 3)


def test_clients_are_dealt_to_replicas_as_the_load_generator_deals_them() -> None:
    odd = Load((Phase(10, 1, "good"),), replicas=2, max_tokens=200)
    assert replay(TRUTH, odd, 0).phases[0] == pytest.approx(1000, rel=0.02)


def test_the_module_reads_and_prints_json() -> None:
    load = {"replicas": 1, "depths": [0, 3], "phases": [{"seconds": 2.5, "clients": 1, "traffic": "good"}]}
    done = subprocess.run(
        [sys.executable, "-m", "specpilot_engine.sim.replay"],
        input=json.dumps(load),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": "serving", "SPECPILOT_SIM": json.dumps(WORLD)},
    )
    depths = json.loads(done.stdout)["depths"]
    assert depths.keys() == {"0", "3"}
    assert len(depths["0"]["seconds"]) == 3
    broken = subprocess.run(
        [sys.executable, "-m", "specpilot_engine.sim.replay"],
        input="{}",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "serving"},
    )
    assert broken.returncode == 1
    assert "cannot be read" in broken.stderr
