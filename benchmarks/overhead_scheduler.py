"""The two schedulers that engine_overhead.py compares, in one engine: named by --scheduler-cls.

Runs inside vLLM. The engine's scheduler object uses the methods of vLLM's own class and of the live one
in turn, for BLOCK steps each, so that both serve the same requests on the same machine seconds apart. What is timed,
from results to results, is timed outside of both. Every block is one line of the file in RESULTS.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

from specpilot_engine import scheduler

RESULTS = "SPECPILOT_BENCHMARK_RESULTS"
BLOCK = 24  # steps
SETTLE = 4  # of them not counted: the first ones still end what the other class began
HOOKS = ("before_schedule", "after_schedule", "before_update", "after_update")


def factory(**kwargs: Any) -> Any:
    """The engine's scheduler, alternating."""
    live = scheduler.factory(**kwargs)
    hooks = live._specpilot
    assert hooks is not None, live._specpilot_tuning
    Alternating(live, scheduler.stock_class(kwargs["vllm_config"]), hooks)
    return live


class Alternating:
    """Times steps and has `target` use the methods of `stock` and of its own class in turn."""

    def __init__(self, target: Any, stock: type, hooks: Any) -> None:
        self._target: Any = target
        self._stock: Any = stock
        self._live: Any = type(target)
        self._methods = self._live
        self._out = open(os.environ[RESULTS], "a", buffering=1)  # noqa: SIM115
        self._last = 0.0
        self._batch = 0
        self._times: list[float] = []
        self._inside = 0  # nanoseconds in our hooks during this block
        for name in HOOKS:
            setattr(hooks, name, self._counted(getattr(hooks, name)))
        # On the instance, so that it stands before either class's own method.
        target.update_from_output = self._update

    def _update(self, output: Any, results: Any) -> Any:
        now = time.perf_counter()
        batch = len(output.num_scheduled_tokens)
        if batch != self._batch or output.scheduled_new_reqs or output.finished_req_ids:
            self._batch, self._times, self._inside = batch, [], 0
        elif self._last:
            self._times.append(now - self._last)
        self._last = now
        done = self._methods.update_from_output(self._target, output, results)
        if len(self._times) == BLOCK:
            self._end_block(batch)
        return done

    def _end_block(self, batch: int) -> None:
        live = self._methods is self._live
        block = {"live": live, "batch": batch, "seconds": self._times[SETTLE:]}
        self._out.write(json.dumps({**block, "inside": self._inside / 1e9 / BLOCK}) + "\n")
        self._methods = self._stock if live else self._live
        self._target.schedule = self._methods.schedule.__get__(self._target)
        self._times, self._inside = [], 0

    def _counted(self, hook: Callable[..., None]) -> Callable[..., None]:
        def counted(*args: Any) -> None:
            began = time.perf_counter_ns()
            hook(*args)
            self._inside += time.perf_counter_ns() - began

        return counted
