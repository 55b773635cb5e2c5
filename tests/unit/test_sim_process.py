"""The simulated server as a process, spoken to as the operator and its users do."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from specpilot_engine import protocol
from specpilot_engine.protocol import Exploration, Schedule, Step, Trial

WORLD = {
    "depths": [0, 3],
    "batches": [1, 16],
    "step_time_ms": [[4, 6], [8, 12]],
    "traffic": {"chat": {"survival": [0.6, 0.4, 0.2]}, "sure": {"survival": [1, 1, 1]}},
    "startup_seconds": 0,
}
SPECULATION = {
    "method": "mtp",
    "num_speculative_tokens": 3,
    "num_speculative_tokens_per_batch_size": [[1, 16, 3]],
    "rejection_sample_method": "block",
}


@dataclass
class Sim:
    process: subprocess.Popen[bytes]
    api: httpx.Client
    exports: str
    schedule: Path

    def put(self, schedule: Schedule) -> None:
        new = self.schedule.with_suffix(".new")
        new.write_text(schedule.dump())
        new.replace(self.schedule)

    def state(self) -> dict:
        return httpx.get(self.exports + protocol.STATE_PATH, trust_env=False).json()

    def series(self, url: str) -> dict[tuple, float]:
        text = self.api.get(url).raise_for_status().text
        families = text_string_to_metric_families(text)
        return {(s.name, *sorted(s.labels.items())): s.value for f in families for s in f.samples}

    def complete(self, **body) -> dict:
        body = {"prompt": [1, 2, 3], "ignore_eos": True, **body}
        return self.api.post("/v1/completions", json=body).raise_for_status().json()


def wait_for(condition, what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@contextmanager
def running(tmp_path: Path, *arguments: str, ready: bool = True, **world) -> Iterator[Sim]:
    port, exports = free_ports(2)
    schedule = tmp_path / protocol.SCHEDULE_KEY
    line = ["--model", "org/model", "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port)]
    line += ["--max-num-seqs", "16", "--max-model-len", "4096", "--tensor-parallel-size", "8"]
    line += ["--scheduler-cls", "specpilot_engine.scheduler.factory"]
    env = {
        **os.environ,
        "PYTHONPATH": "serving",
        protocol.ENV_SIM: json.dumps(WORLD | world),
        protocol.ENV_PORT: str(exports),
        protocol.ENV_SCHEDULE_FILE: str(schedule),
    }
    command = [sys.executable, "-m", "specpilot_engine.sim", *line, *arguments]
    process = subprocess.Popen(command, env=env, cwd=Path(__file__).parents[2])
    api = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60)
    sim = Sim(process, api, f"http://127.0.0.1:{exports}", schedule)

    def answers(status: int) -> bool:
        assert process.poll() is None, "the simulated engine ended"
        try:
            return api.get("/health").status_code == status
        except httpx.TransportError:
            return False

    try:
        wait_for(lambda: answers(200 if ready else 503), "the simulated engine")
        yield sim
    finally:
        process.kill()
        process.wait()
        api.close()


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Sim]:
    with running(tmp_path, "--speculative-config", json.dumps(SPECULATION)) as sim:
        yield sim


def test_speaks_openai(sim: Sim):
    models = sim.api.get("/v1/models").json()["data"]
    assert [(m["id"], m["root"], m["max_model_len"]) for m in models] == [("m", "org/model", 4096)]
    whole = sim.complete(model="m", max_tokens=20)
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}
    assert whole["choices"][0]["finish_reason"] == "length"
    assert len(whole["choices"][0]["text"].split()) == 20
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    answer = sim.api.post("/v1/chat/completions", json=chat).json()
    assert len(answer["choices"][0]["message"]["content"].split()) == 5
    assert sim.api.get("/version").json()["version"].startswith("0.32.0")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_streams_add_up_to_max_tokens(sim: Sim, path: str):
    body = {"prompt": "hello", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 50}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    with sim.api.stream("POST", path, json=body) as response:
        lines = [line[6:] for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    *chunks, usage = [json.loads(line) for line in lines[:-1]]
    choices = [c["choices"][0] for c in chunks]
    text = "".join(c["text"] if "text" in c else c["delta"]["content"] for c in choices)
    assert len(text.split()) == usage["usage"]["completion_tokens"] == 50
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["length"]
    assert len(chunks) < 50  # accepted drafts come with their step


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"model": "other", "prompt": "a"}, 404, "The model `other` does not exist."),
        ({"prompt": ["a", "b"]}, 400, "prompt must be a string"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens must be"),
        ({"prompt": "a", "max_tokens": 4096}, 400, "maximum context length is 4096"),
        ({"prompt": "a", "n": 2}, 400, "one choice"),
    ],
)
def test_bad_requests_are_answered_in_openais_form(sim: Sim, body, status, message):
    response = sim.api.post("/v1/completions", json=body)
    assert response.status_code == status
    assert message in response.json()["error"]["message"]


def test_a_new_schedule_takes_effect_and_is_acknowledged(sim: Sim):
    state = sim.state()
    assert (state["live"], state["generation"]) == (True, 0)
    assert state["schedule"] == [{"upTo": 16, "tokens": 3}]
    new = Schedule(5, (Step(16, 1),))
    sim.put(new)
    wait_for(lambda: sim.state()["generation"] == 5, "the acknowledgement")
    assert (sim.state()["hash"], sim.state()["fileError"]) == (new.hash, "")
    seen = httpx.get(sim.exports + protocol.STEPS_PATH, trust_env=False).json()["steps"]
    sim.complete(max_tokens=101, user="sure")  # one by the prefill, two by each of 50 steps
    steps = httpx.get(sim.exports + protocol.STEPS_PATH, trust_env=False).json()["steps"][len(seen) :]
    assert len(steps) >= 40
    assert {(tokens, batch) for _, tokens, batch, *_ in steps} == {(1, 1)}
    ours = sim.series(sim.exports + protocol.METRICS_PATH)
    assert ours[protocol.M_GENERATION,] == 5
    assert ours[protocol.M_STEPS, ("batch", "1"), ("k", "1")] == len(steps)
    emitted = ours[protocol.M_EMITTED, ("batch", "1"), ("k", "1")]
    assert emitted / len(steps) == 2  # "sure" drafts always survive


def test_exported_step_time_is_the_worlds(sim: Sim):
    sim.complete(max_tokens=1000)
    steps = httpx.get(sim.exports + protocol.STEPS_PATH, trust_env=False).json()["steps"]
    assert median(seconds for *_, seconds in steps) == pytest.approx(8e-3, rel=0.03)


def test_a_broken_schedule_changes_nothing_and_is_named(sim: Sim):
    sim.put(Schedule(5, (Step(16, 1),)))
    wait_for(lambda: sim.state()["generation"] == 5, "the acknowledgement")
    sim.schedule.write_text('{"version": 1')
    wait_for(lambda: "not JSON" in sim.state()["fileError"], "the error")
    assert sim.state()["generation"] == 5


def test_exploring_shows_deeper_positions(sim: Sim):
    exploration = Exploration(price=0.05, tokens=3, cost=0.5, max_batch=16)
    sim.put(Schedule(2, (Step(16, 1),), exploration))
    wait_for(lambda: sim.state()["generation"] == 2, "the acknowledgement")
    sim.complete(max_tokens=1000)
    ours = sim.series(sim.exports + protocol.METRICS_PATH)
    drafted = [ours[protocol.M_DRAFTED, ("position", str(p))] for p in range(3)]
    assert drafted[1] == drafted[2] == ours[protocol.M_EXPLORED_STEPS,]
    assert 0 < drafted[2] <= 0.1 * ours[protocol.M_ALL_STEPS,] + 4


def test_vllms_series_say_what_happened(sim: Sim):
    sim.complete(max_tokens=400)
    series = sim.series("/metrics")
    labels = ("engine", "0"), ("model_name", "m")
    assert series["vllm:generation_tokens_total", *labels] == 400
    assert series["vllm:prompt_tokens_total", *labels] == 3
    drafts = series["vllm:spec_decode_num_drafts_total", *labels]
    assert series["vllm:inter_token_latency_seconds_count", *labels] == drafts
    assert series["vllm:spec_decode_num_draft_tokens_total", *labels] == 3 * drafts
    accepted = series["vllm:spec_decode_num_accepted_tokens_total", *labels]
    assert 400 <= 1 + drafts + accepted <= 403
    info = next(key for key in series if key[0] == "specpilot_sim_info")
    assert ("rejection_sample_method", "block") in info


async def test_requests_beyond_the_limit_wait_and_abandoned_ones_leave(sim: Sim):
    def gauge(name: str) -> float:
        return sim.series("/metrics")[name, ("engine", "0"), ("model_name", "m")]

    async with httpx.AsyncClient(base_url=sim.api.base_url, trust_env=False, timeout=60) as http:
        body = {"prompt": "a", "max_tokens": 4000}
        tasks = [asyncio.create_task(http.post("/v1/completions", json=body)) for _ in range(20)]
        while await asyncio.to_thread(gauge, "vllm:num_requests_waiting") != 4:
            await asyncio.sleep(0.02)
        assert await asyncio.to_thread(gauge, "vllm:num_requests_running") == 16
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(wait_for, lambda: gauge("vllm:num_requests_running") == 0, "an empty batch")
    assert gauge("vllm:num_requests_waiting") == 0


def test_sigterm_lets_running_requests_finish(sim: Sim):
    body = {"prompt": "a", "max_tokens": 300, "stream": True}
    with sim.api.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        sim.process.send_signal(signal.SIGTERM)
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert sim.process.wait(120) == 0


def test_without_a_schedule_live_tuning_is_off_and_says_why(tmp_path: Path):
    config = {"method": "mtp", "num_speculative_tokens": 2}
    with running(tmp_path, "--speculative-config", json.dumps(config)) as sim:
        state = sim.state()
        assert state["live"] is False
        assert "without a depth schedule" in state["reason"]
        sim.complete(max_tokens=50)
        assert (
            sim.series(sim.exports + protocol.METRICS_PATH)[protocol.M_STEPS, ("batch", "1"), ("k", "2")] > 5
        )


def test_live_tuning_can_be_made_to_fail(tmp_path: Path):
    config = ["--speculative-config", json.dumps(SPECULATION)]
    with running(tmp_path, *config, fail={"live": "this vLLM is too new"}) as sim:
        assert (sim.state()["live"], sim.state()["reason"]) == (False, "this vLLM is too new")
        sim.put(Schedule(5, (Step(16, 1),)))
        sim.complete(max_tokens=50)
        assert sim.state()["generation"] == 0


def test_it_can_stay_unready_and_then_crash(tmp_path: Path):
    with running(tmp_path, ready=False, fail={"never_ready": True, "crash_after": 5}) as sim:
        assert sim.api.post("/v1/completions", json={"prompt": "a"}).status_code == 503
        assert sim.process.wait(120) == 1


@pytest.mark.parametrize(("new", "old", "wins"), [(0, 3, False), (3, 0, True)])
def test_a_trial_ends_with_the_better_schedule(tmp_path: Path, new: int, old: int, wins: bool):
    """Drafts that always survive make depth 3 worth four tokens for twice the time of one."""
    with running(tmp_path, "--speculative-config", json.dumps(SPECULATION), step_noise=0.1) as sim:
        trial = Trial((Step(16, old),), slice=8, pairs=60)
        sim.put(Schedule(3, (Step(16, new),), trial=trial))
        wait_for(lambda: sim.state()["generation"] == 3, "the acknowledgement")
        sim.complete(max_tokens=1500, user="sure")
        result = sim.state()["trial"]
        assert (result["running"], result["newRuns"]) == (False, wins)
        low, high = result["interval"]
        assert (low > 0, high < 0) == (wins, not wins)
        ours = sim.series(sim.exports + protocol.METRICS_PATH)
        assert ours[protocol.M_TRIAL_GENERATION,] == 3
        assert ours[protocol.M_TRIAL_PAIRS,] == result["pairs"] <= 12
        assert ours[protocol.M_TRIAL_GAIN,] / result["pairs"] == pytest.approx(result["logGain"])
        sim.put(Schedule(4, (Step(16, 3),)))
        wait_for(lambda: sim.state()["generation"] == 4, "the acknowledgement")
        assert sim.state()["trial"] is None
        assert sim.series(sim.exports + protocol.METRICS_PATH)[protocol.M_TRIAL_PAIRS,] == 0
