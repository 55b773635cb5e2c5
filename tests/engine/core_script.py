"""Drives vLLM's own engine core, with the engine package's scheduler, over a device that computes nothing.

Runs in the vLLM environment: `core_script.py TARGET DRAFT ASYNC`; the last line it prints is a JSON object
by scenario. With ASYNC 1 the scheduler is vLLM's asynchronous one, as on a GPU.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import Any

import vllm
from device import Clock, Device, step_seconds
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore

from specpilot_engine import probe, protocol, scheduler
from specpilot_engine.protocol import Exploration, Schedule, Step

K = 5
ROWS = [[1, 4, 5], [5, 16, 3]]


class Engine:
    """An engine core whose steps the test takes one by one."""

    def __init__(
        self, target: str, draft: str, pipelined: bool, rows: Any = ROWS, method: str = "draft"
    ) -> None:
        speculative: dict[str, Any] = {"num_speculative_tokens": K, "method": "draft_model", "model": draft}
        if method == "ngram":
            speculative = {"num_speculative_tokens": K, "method": "ngram", "prompt_lookup_max": 3}
        if rows:
            speculative["num_speculative_tokens_per_batch_size"] = rows
        config = EngineArgs(
            model=target,
            enforce_eager=True,
            dtype="bfloat16",
            max_model_len=2048,
            max_num_seqs=16,
            enable_prefix_caching=False,
            scheduler_cls="specpilot_engine.scheduler.factory",
            speculative_config=speculative if method else None,
        ).create_engine_config()
        # The CPU platform has just switched it off; a GPU would not.
        config.scheduler_config.async_scheduling = pipelined
        self.core = EngineCore(config, Device, log_stats=True)
        self.scheduler = self.core.scheduler
        self.device = Device.latest
        self.accepted, self.drafted, self.emitted = Counter(), Counter(), 0
        self.device.finds_fewer = method == "ngram"
        self._added = 0

    def add(self, requests: int, max_tokens: int) -> None:
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0.0)
        for _ in range(requests):
            self._added += 1
            request = EngineCoreRequest(
                f"r{self._added}", list(range(10, 30)), None, params.clone(), None, 0.0, None, None, None
            )
            self.core.add_request(*self.core.preprocess_add_request(request))

    def steps(self, count: int) -> None:
        for _ in range(count):
            outputs, executed = self.core.step_fn()
            self.core.post_step(executed)
            for client in (outputs or {}).values():
                self.emitted += sum(len(o.new_token_ids) for o in client.outputs)
                stats = client.scheduler_stats and client.scheduler_stats.spec_decoding_stats
                if stats:
                    self.accepted.update(dict(enumerate(stats.num_accepted_tokens_per_pos)))
                    self.drafted.update(dict(enumerate(stats.num_draft_tokens_per_pos)))

    def drain(self) -> None:
        while self.scheduler.has_requests() or self.core.batch_queue:
            self.steps(1)

    def put(self, schedule: Schedule, wait: bool = True) -> None:
        path = os.environ[protocol.ENV_SCHEDULE_FILE]
        with open(path + ".new", "w") as f:
            f.write(schedule.dump())
        os.replace(path + ".new", path)
        while wait and self.get(protocol.STATE_PATH)["hash"] != schedule.hash:
            time.sleep(0.02)

    def get(self, path: str) -> Any:
        url = f"http://127.0.0.1:{os.environ[protocol.ENV_PORT]}{path}"
        text = urllib.request.urlopen(url, timeout=10).read().decode()
        return text if path == protocol.METRICS_PATH else json.loads(text)

    def report(self) -> dict[str, Any]:
        hooks = self.scheduler._specpilot if hasattr(self.scheduler, "_specpilot") else None
        recorder = hooks._recorder if hooks else None
        return {
            "vllm": vllm.__version__,
            "bases": [c.__name__ for c in type(self.scheduler).__mro__],
            "state": self.get(protocol.STATE_PATH),
            "steps": self.device.steps,
            "accepted": [self.accepted[i] for i in range(K)],
            "drafted": [self.drafted[i] for i in range(K)],
            "emitted": self.emitted,
            "lookup": self.scheduler.dynamic_sd_lookup,
            "our_accepted": recorder and recorder.accepted(),
            "our_drafted": recorder and recorder.drafted(),
            "all_steps": recorder and recorder.all_steps,
            "explored": recorder and recorder.explored_steps,
            "samples": [
                [s.tokens, s.batch, s.seconds, step_seconds(s.batch * (1 + s.tokens), s.tokens)]
                for s in (recorder.samples() if recorder else [])
            ],
        }


def switching(engine: Engine) -> None:
    """Depth 5 by the start-up schedule, then 2, 0 and 3 by file, while the same requests run."""
    engine.add(3, 400)
    engine.steps(20)
    for generation, depth in enumerate((2, 0, 3), start=1):
        engine.put(Schedule(generation, (Step(16, depth),)))
        engine.steps(20)
    engine.drain()


def crowds(engine: Engine) -> None:
    """Requests come and go at their own times, across both rows of the start-up schedule."""
    for requests, tokens in ((2, 60), (4, 90), (1, 30), (6, 50)):
        engine.add(requests, tokens)
        engine.steps(17)
    engine.drain()
    engine.add(2, 40)
    engine.drain()


def exploring(engine: Engine) -> None:
    """One percent may be lost at half a step's goodput each: two percent of the steps."""
    engine.put(Schedule(1, (Step(16, 1),), Exploration(0.01, 5, 0.5, 16)))
    for _ in range(8):
        engine.add(2, 500)
        engine.drain()


def breaking(engine: Engine) -> None:
    """Something inside the engine package raises in the middle of serving."""
    engine.put(Schedule(1, (Step(16, 2),)))
    engine.add(3, 200)
    engine.steps(20)

    def fail(*_args: Any) -> None:
        raise RuntimeError("a defect")

    engine.scheduler._specpilot._clock.updated = fail
    engine.drain()


SCENARIOS: dict[str, tuple[Callable[[Engine], None], dict[str, Any]]] = {
    "switching": (switching, {}),
    "crowds": (crowds, {}),
    "exploring": (exploring, {}),
    "breaking": (breaking, {}),
    "unscheduled": (crowds, {"rows": None}),
    "unspeculative": (crowds, {"method": "", "rows": None}),
    "ngram": (crowds, {"method": "ngram"}),
    "other_version": (crowds, {}),
}


def main() -> None:
    target, draft, pipelined = sys.argv[1:4]
    scheduler.time = Clock  # type: ignore[assignment]
    reports = {}
    for name, (play, options) in SCENARIOS.items():
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            os.environ[protocol.ENV_PORT] = str(s.getsockname()[1])
        os.environ[protocol.ENV_SCHEDULE_FILE] = tempfile.mkdtemp() + "/schedule.json"
        if name == "other_version":
            probe.OUTPUT_FIELDS += ("a_field_of_another_version",)  # type: ignore[assignment]
        engine = Engine(target, draft, pipelined == "1", **options)
        play(engine)
        reports[name] = engine.report()
    print("\n" + json.dumps(reports))


if __name__ == "__main__":
    main()
