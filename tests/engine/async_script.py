"""Drafts cut at random under vLLM's asynchronous scheduling: what do its scheduler and both model runners make of it?

Runs in the vLLM environment: `async_script.py TARGET DRAFT`; the last line it prints is a JSON object
by model runner that the scheduler works for.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import tempfile
from typing import Any

import core_script
import device
import vllm
from core_script import Engine, K
from runners import First, Second, target
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.outputs import ModelRunnerOutput

from specpilot_engine import protocol, scheduler

STEPS = 150


class Runners(device.Device):
    """Both runners, on what the scheduler of one engine says; they must sample the same tokens."""

    def _init_executor(self) -> None:
        super()._init_executor()
        self.first, self.second = First(K), Second(K)
        self.differ: list[Any] = []

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:  # noqa: ARG002
        output = self._scheduled
        names = list(output.num_scheduled_tokens)
        lengths = tuple(len(output.scheduled_spec_decode_tokens.get(name, ())) for name in names)
        asked, rows = output.num_spec_tokens_to_schedule, output.total_num_scheduled_tokens
        self.steps.append((len(names), rows, lengths, asked))
        sampled, other = self.first.step(output), self.second.step(output)
        if sampled != other:
            self.differ.append([len(self.steps), sampled, other])
        tokens = [list(sampled[name]) for name in names]
        results = ModelRunnerOutput(names, {n: i for i, n in enumerate(names)}, sampled_token_ids=tokens)
        return self._reply(results, device.step_seconds(rows, asked), non_block)


class Shears:
    """In place of the trimmer: any number of drafts of any request, now and then none or all of everybody's."""

    active = False

    def __init__(self) -> None:
        self.random = random.Random(1)
        self.lists: list[tuple[list[int], int]] = []  # as they were found, with their lengths

    def before_schedule(self, running: Any, *_: Any) -> bool:
        self.lists += [(r.spec_token_ids, len(r.spec_token_ids)) for r in running]
        fate = self.random.random()
        for request in running:
            length = len(request.spec_token_ids)
            keep = 0 if fate < 0.15 else length if fate < 0.35 else self.random.randint(0, length)
            if keep < length:
                request.spec_token_ids = request.spec_token_ids[:keep]
        return False

    def after_schedule(self, *_: Any) -> None: ...
    def landed(self, *_: Any) -> None: ...
    def timed(self, *_: Any) -> None: ...


class Crowd:
    """Requests of their own prompts that come and go, and what became of them."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.random = engine, random.Random(2)
        self.prompts: dict[str, list[int]] = {}
        self.limits: dict[str, int] = {}
        self.tokens: dict[str, list[int]] = {}

    def add(self) -> None:
        name = f"r{len(self.prompts)}"
        prompt = [self.random.randrange(100, 1000) for _ in range(self.random.randint(5, 60))]
        limit = self.random.randint(20, 120)
        request = EngineCoreRequest(
            name,
            prompt,
            None,
            SamplingParams(max_tokens=limit, ignore_eos=True, temperature=0.0),
            None,
            0.0,
            None,
            None,
            None,
        )
        core = self.engine.core
        added, wave = core.preprocess_add_request(request)
        self.prompts[added.request_id], self.limits[added.request_id] = prompt, limit
        self.tokens[added.request_id] = []
        core.add_request(added, wave)

    def step(self) -> None:
        core = self.engine.core
        outputs, executed = core.step_fn()
        core.post_step(executed)
        for client in (outputs or {}).values():
            for out in client.outputs:
                self.tokens[out.request_id] += out.new_token_ids

    def wrong(self) -> list[str]:
        """Requests that did not get what the target alone would have said."""
        return [name for name, tokens in self.tokens.items() if tokens != self.alone(name, len(tokens))]

    def alone(self, name: str, length: int) -> list[int]:
        prompt = self.prompts[name]
        said, token = [], prompt[-1]
        for position in range(len(prompt) - 1, len(prompt) - 1 + length):
            token = target(position, token)
            said.append(token)
        return said


def play(second: bool) -> dict[str, Any]:
    """`second`: the scheduler is told that it works for the second model runner."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        os.environ[protocol.ENV_PORT] = str(s.getsockname()[1])
    os.environ[protocol.ENV_SCHEDULE_FILE] = tempfile.mkdtemp() + "/schedule.json"
    engine = Engine(sys.argv[1], sys.argv[2], pipelined=True)
    scheduled, hooks = engine.scheduler, engine.scheduler._specpilot
    scheduled.use_v2_model_runner = second
    if hasattr(scheduled, "can_skip_drafts"):
        scheduled.can_skip_drafts = second
    shears = hooks._trimmer = Shears()
    crowd = Crowd(engine)
    for i in range(STEPS):
        if i % 9 == 0 and len(scheduled.requests) < 12:
            crowd.add()
        if i % 70 == 69:
            engine.core.abort_requests([next(iter(scheduled.requests))])
        crowd.step()
    while scheduled.has_requests() or engine.core.batch_queue:
        crowd.step()
    return {
        "vllm": vllm.__version__,
        "bases": [c.__name__ for c in type(scheduled).__mro__],
        "whole_drafts": scheduled._specpilot_tuning.whole_drafts,
        "live": scheduled._specpilot is hooks,
        "drafts": [step[2] for step in engine.device.steps],
        "differ": engine.device.differ[:1],
        "wrong": crowd.wrong(),
        "requests": len(crowd.tokens),
        "finished": sum(len(tokens) == crowd.limits[name] for name, tokens in crowd.tokens.items()),
        "emitted": sum(map(len, crowd.tokens.values())),
        "mutated": sum(len(found) != length for found, length in shears.lists),
        "shared": len({id(found) for found, _ in shears.lists if found}) < len(shears.lists) / 2,
        "counted": sum(hooks._recorder.draft_lengths),
        "left": [len(scheduled.running), scheduled.kv_cache_manager.usage],
    }


def main() -> None:
    scheduler.time = device.Clock  # type: ignore[assignment]
    core_script.Device = Runners  # type: ignore[misc]
    print("\n" + json.dumps({"first": play(False), "second": play(True)}))


if __name__ == "__main__":
    main()
