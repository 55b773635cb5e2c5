"""A real vLLM server on the CPU with the tiny models, as the tests of this tier speak to it."""

import asyncio
import json
import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tests.setup import models, vllm

from specpilot_engine import protocol
from specpilot_engine.protocol import Schedule

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MAX_TOKENS, MAX_SEQS, MAX_LEN = 5, 16, 2048
LABELS = ("engine=0", "model_name=m")
GENERATED = ("vllm:generation_tokens_total", *LABELS)
START_SECONDS = 240.0
PATIENCE = 120.0  # seconds
SMALL = models.Shape(hidden=512, layers=8)
OWN_CODE = f"serving{os.pathsep}tests/engine"  # the path of a scheduler that is written for these tests
# For tests that compute little, on a machine that does other things as well.
LIGHT = {
    # Two threads wait for each other, spinning, when one has lost its core.
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # The model runs in the engine core's process, as on a GPU: one process fewer to import vLLM.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}

Series = dict[tuple[str, ...], float]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """`url` is the OpenAI API, `own` the engine package's port."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], port: int, own_port: int) -> None:
        self.schedule, self.override = folder / "schedule.json", folder / "override.json"
        self.log = folder / "log"
        self.process, self.port, self.own_port = process, port, own_port
        self.url, self.own = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{own_port}"
        self.http = httpx.Client(trust_env=False, timeout=120)

    def put(self, schedule: Schedule) -> None:
        """As the kubelet does: the file is there whole or not at all."""
        new = self.schedule.with_suffix(".new")
        new.write_text(schedule.dump())
        new.replace(self.schedule)

    def state(self) -> dict:
        return self.http.get(self.own + protocol.STATE_PATH).json()

    def acknowledged(self, schedule: Schedule) -> None:
        """Wait until the engine says that it runs `schedule`."""
        end = time.monotonic() + PATIENCE
        while self.state()["hash"] != schedule.hash:
            assert time.monotonic() < end, f"not acknowledged: {self.state()}"
            time.sleep(0.02)

    def steps(self, since: int = 0) -> list[list[float]]:
        return self.http.get(f"{self.own}{protocol.STEPS_PATH}?since={since}").json()["steps"]

    def series(self, url: str) -> Series:
        families = text_string_to_metric_families(self.http.get(url + "/metrics").text)
        return {
            (s.name, *(f"{k}={v}" for k, v in sorted(s.labels.items()))): s.value
            for f in families
            for s in f.samples
        }

    def counted(self, tokens: float | None = None) -> Series:
        """vLLM's own series when it has counted so many tokens, by default all: it does so when it gets to it."""
        seen, end = -1.0, time.monotonic() + PATIENCE
        while True:
            series = self.series(self.url)
            found = series[GENERATED]
            still = found == seen and series["vllm:num_requests_running", *LABELS] == 0
            if still if tokens is None else found == tokens:
                return series
            assert time.monotonic() < end, f"{found:g} tokens counted, not {tokens}"
            seen = found
            time.sleep(0.5)

    def complete(self, prompt: list[int], max_tokens: int) -> str:
        body = {"model": "m", "prompt": prompt, "max_tokens": max_tokens}
        body |= {"ignore_eos": True, "temperature": 0}
        reply = self.http.post(self.url + "/v1/completions", json=body).raise_for_status()
        return reply.json()["choices"][0]["text"]

    async def crowd(self, requests: int, max_tokens: int, temperature: float = 0.0) -> None:
        """Run `requests` at once to their ends; at temperature 1 next to no drafts of the tiny models survive."""
        body = {"model": "m", "max_tokens": max_tokens, "ignore_eos": True, "temperature": temperature}
        async with httpx.AsyncClient(trust_env=False, timeout=240) as client:
            prompts = [prompt(seed) for seed in range(requests)]
            url = self.url + "/v1/completions"
            replies = await asyncio.gather(*(client.post(url, json={**body, "prompt": p}) for p in prompts))
        assert [r.status_code for r in replies] == [200] * requests


def prompt(seed: int, length: int = 16) -> list[int]:
    return random.Random(seed).choices(range(16, 2000), k=length)


@contextmanager
def serving(
    folder: Path,
    scheduler: str,
    path: str = "serving",
    shape: models.Shape = SMALL,
    sequences: int = MAX_SEQS,
    light: bool = False,
) -> Iterator[Server]:
    """vLLM with `--scheduler-cls scheduler` ("": vLLM's own), its depth schedule 5 at every batch.

    At most `sequences` requests run at once. `light`: see LIGHT and light_server.py.
    """
    installed, tiny = vllm.provide(), models.provide(shape)
    port, own = free_port(), free_port()
    speculative = {
        "method": "draft_model",
        "model": str(tiny.draft),
        "num_speculative_tokens": MAX_TOKENS,
        "num_speculative_tokens_per_batch_size": [[1, sequences, MAX_TOKENS]],
    }
    program = [str(HERE / "light_server.py")] if light else ["-m", "vllm.entrypoints.openai.api_server"]
    command = [str(installed.python), *program]
    # In 16 bits the best two of a random model's tokens are often level, and then the rows of a step decide.
    command += ["--dtype", "float32" if light else "bfloat16"]
    command += ["--model", str(tiny.target), "--served-model-name", "m"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--no-enable-prefix-caching"]
    command += ["--max-model-len", str(MAX_LEN), "--max-num-seqs", str(sequences)]
    command += ["--speculative-config", json.dumps(speculative)]
    if scheduler:
        command += ["--scheduler-cls", scheduler]
    env = {**os.environ, **vllm.ENVIRONMENT, **(LIGHT if light else {}), "PYTHONPATH": path}
    env |= {
        protocol.ENV_PORT: str(own),
        protocol.ENV_SCHEDULE_FILE: str(folder / "schedule.json"),
        protocol.ENV_OVERRIDE_FILE: str(folder / "override.json"),
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
    server = Server(folder, process, port, own)
    try:
        _wait(server)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        server.http.close()


def _wait(server: Server) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        assert server.process.poll() is None, "vLLM ended:\n" + server.log.read_text()[-5000:]
        assert time.monotonic() < end, "vLLM did not start:\n" + server.log.read_text()[-5000:]
        try:
            if server.http.get(server.url + "/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
