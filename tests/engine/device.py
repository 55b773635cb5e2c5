"""A device that computes nothing, for vLLM's own engine core: everything around the model is real.

Runs in the vLLM environment. Steps take exactly `step_seconds`, on a clock that moves only when the
engine waits for results: so the true duration of each step is known, without sleeping.
"""

from __future__ import annotations

import random
from concurrent.futures import Future
from typing import Any

import torch
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

SURVIVAL = 0.6  # of each draft token, given the one before


def step_seconds(rows: int, asked: int) -> float:
    """A step that verifies `rows` tokens and then drafts `asked`."""
    return 0.010 + 0.001 * rows + 0.0005 * asked


class Clock:
    """Seconds on the device; stands in for the `time` module in the scheduler under test."""

    now = 0.0
    device_free = 0.0

    @classmethod
    def perf_counter(cls) -> float:
        return cls.now


class _Results(Future):  # type: ignore[type-arg]
    """Results that are there at a known time: waiting for them moves the clock."""

    def __init__(self, at: float, value: Any) -> None:
        super().__init__()
        self._at = at
        self.set_result(value)

    def result(self, timeout: float | None = None) -> Any:
        Clock.now = max(Clock.now, self._at)
        return super().result(timeout)


class Device(Executor):
    """`steps` lists what was executed: (requests, rows, drafts verified by request, depth asked).

    `finds_fewer`: the drafter proposes up to as many tokens as asked, as n-gram does.
    """

    steps: list[tuple[int, int, tuple[int, ...], int]]
    latest: Device
    finds_fewer = False

    def _init_executor(self) -> None:
        type(self).latest = self
        self.steps = []
        self._random = random.Random(0)
        self._scheduled: Any = None
        self._drafts: DraftTokenIds | None = None

    def collective_rpc(self, method: Any, *_args: Any, **_kwargs: Any) -> Any:
        spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.bfloat16)
        return {
            "get_kv_cache_spec": [{"layer": spec}],
            "get_supported_kv_cache_layouts": [["NHD"]],
            "determine_available_memory": [1 << 28],
            "get_supported_tasks": [("generate",)],
        }.get(method, [])

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        if not scheduler_output.total_num_scheduled_tokens:
            return self._reply(ModelRunnerOutput([], {}), 0.0, non_block)
        self._scheduled = scheduler_output
        return self._reply(None, 0.0, non_block)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:  # noqa: ARG002
        output = self._scheduled
        ids = list(output.num_scheduled_tokens)
        lengths = tuple(len(output.scheduled_spec_decode_tokens.get(i, ())) for i in ids)
        asked, rows = output.num_spec_tokens_to_schedule, output.total_num_scheduled_tokens
        self.steps.append((len(ids), rows, lengths, asked))
        sampled = [[100 + self._random.randrange(900) for _ in range(1 + self._accepted(n))] for n in lengths]
        found = [self._random.randint(0, asked) if self.finds_fewer else asked for _ in ids]
        self._drafts = DraftTokenIds(ids, [[50] * n for n in found])
        results = ModelRunnerOutput(ids, {i: n for n, i in enumerate(ids)}, sampled_token_ids=sampled)
        return self._reply(results, step_seconds(rows, asked), non_block)

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        drafts, self._drafts = self._drafts, None
        return drafts

    def check_health(self) -> None:
        """Always well."""

    def shutdown(self) -> None:
        """Nothing to end."""

    def _accepted(self, length: int) -> int:
        accepted = 0
        while accepted < length and self._random.random() < SURVIVAL:
            accepted += 1
        return accepted

    def _reply(self, value: Any, seconds: float, non_block: bool) -> Any:
        Clock.device_free = max(Clock.device_free, Clock.now) + seconds
        results = _Results(Clock.device_free, value)
        return results if non_block else results.result()
