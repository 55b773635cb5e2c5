"""The engine package around the simulated engine: the same hooks, watcher, counters and port.

The hooks know vLLM's objects by shape; here those shapes are made of simulated steps. Times are those
of the simulated clock, so that what is exported is free of the event loop's jitter.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import specpilot_engine
from specpilot_engine import probe, protocol
from specpilot_engine.exports import ExportServer, engine_routes
from specpilot_engine.live import LiveHooks, Lookup, prepare_lookups, schedule_of
from specpilot_engine.protocol import Schedule
from specpilot_engine.record import Recorder
from specpilot_engine.scheduler import VARIABLE_METHODS, Tuning
from specpilot_engine.sim.arguments import VERSION, Arguments, Speculation
from specpilot_engine.sim.engine import Engine, Request, Step
from specpilot_engine.timing import StepClock
from specpilot_engine.watch import ScheduleWatcher

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Cached:
    """vLLM's CachedRequestData: the requests that were there before this step."""

    req_ids: list[str]
    num_computed_tokens: list[int]
    resumed_req_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Output:
    """vLLM's SchedulerOutput. Drafts and tokens are ranges: only their number counts."""

    total_num_scheduled_tokens: int
    num_spec_tokens_to_schedule: int
    scheduled_new_reqs: list[Request]
    scheduled_cached_reqs: _Cached
    scheduled_spec_decode_tokens: dict[str, range]
    preempted_req_ids: frozenset[str] = frozenset()
    pending_structured_output_tokens: bool = False
    num_invalid_spec_tokens: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Sampled:
    """vLLM's ModelRunnerOutput."""

    sampled_token_ids: list[range]
    req_id_to_index: dict[str, int]


@dataclass(frozen=True, slots=True)
class _RequestTokens:
    """vLLM's EngineCoreOutput."""

    new_token_ids: range


@dataclass(frozen=True, slots=True)
class _Outputs:
    """vLLM's EngineCoreOutputs."""

    outputs: list[_RequestTokens]


class Live:
    """Measures and tunes the engine if the command line names the engine package's scheduler.

    `fail`: a reason for which live tuning is to be off; "" for none.
    """

    def __init__(self, engine: Engine, arguments: Arguments, fail: str) -> None:
        self._hooks: LiveHooks | None = None
        self._watcher: ScheduleWatcher[Any] | None = None
        self._exports: ExportServer | None = None
        self._output: _Output | None = None
        if not arguments.scheduler_cls.startswith("specpilot_engine."):
            log.info("--scheduler-cls does not name the engine package: no live tuning, no exports")
            return
        speculation = arguments.speculation
        recorder = Recorder(engine.num_spec_tokens)
        tuning = Tuning(
            fail or probe.tuning_problem(engine, SimpleNamespace(speculative_config=speculation)),
            schedule_of(engine.dynamic_sd_lookup, engine.max_num_running_reqs, engine.num_spec_tokens),
            versions={"vllm": VERSION, "specpilot_engine": specpilot_engine.__version__},
            whole_drafts="the simulated engine verifies every draft",
        )
        if speculation and not tuning.reason:
            adaptive = speculation.info["adaptive_verification"] == "true"
            tuning.adaptive = engine.num_spec_tokens if adaptive else 0
            self._watcher = tuning.watcher = _watcher(engine, tuning.startup, tuning.adaptive)
        variable = speculation is not None and speculation.info["method"] in VARIABLE_METHODS
        clock = StepClock(pipelined=False, variable=variable)
        self._hooks = LiveHooks(engine, recorder, clock, self._watcher)
        text = os.environ.get(protocol.ENV_PORT, "")
        port = int(text) if text.isdecimal() else protocol.PORT
        self._exports = ExportServer(port, engine_routes(recorder, tuning.status))

    def start(self) -> None:
        """Follow the schedule file and open the export port."""
        if self._watcher is not None:
            self._watcher.start()
        if self._exports is not None:
            self._exports.start()

    def stop(self) -> None:
        """Undo `start`."""
        if self._watcher is not None:
            self._watcher.stop()
        if self._exports is not None:
            self._exports.stop()

    def before_schedule(self) -> None:
        """Put the depth in force in place for the step that is planned next."""
        if self._hooks is not None:
            self._hooks.before_schedule()

    def after_schedule(self, step: Step) -> None:
        """Note a planned step."""
        if self._hooks is not None:
            self._output = _output(step)
            self._hooks.after_schedule(self._output, step.started)

    def before_update(self, step: Step) -> None:
        """Count what its drafts were worth, before its tokens are handed out."""
        if self._hooks is not None:
            sampled = _Sampled(
                [range(1 + accepted) for accepted in step.accepted],
                {request.id: i for i, request in enumerate(step.decoding)},
            )
            self._hooks.before_update(self._output, sampled)

    def after_update(self, step: Step) -> None:
        """Count and time the step, after its tokens were handed out."""
        if self._hooks is not None:
            outputs = [
                _RequestTokens(range(emitted))
                for request, emitted in zip(step.decoding, step.emitted, strict=True)
                if not request.aborted
            ]
            outputs += [_RequestTokens(range(1)) for _ in step.first_tokens]
            self._hooks.after_update(self._output, {0: _Outputs(outputs)}, step.ended)


def _output(step: Step) -> _Output:
    fresh = [r for r, _ in step.prefilling if not r.prefilled]
    cached = step.decoding + [r for r, _ in step.prefilling if r.prefilled]
    drafts = range(step.tokens)
    return _Output(
        len(step.decoding) * (1 + step.tokens) + sum(n for _, n in step.prefilling),
        step.next_tokens,
        fresh,
        _Cached([r.id for r in cached], [r.context for r in cached]),
        {r.id: drafts for r in step.decoding} if step.tokens else {},
    )


def _watcher(engine: Engine, startup: Schedule, adaptive: int) -> ScheduleWatcher[Any]:
    tokens, batches = engine.num_spec_tokens, engine.max_num_running_reqs
    rows = engine.max_num_scheduled_tokens

    def build(rows: list[tuple[int, int, int]]) -> Lookup:
        return Speculation(tokens, tuple(rows)).lookup(batches) or []

    return ScheduleWatcher(
        startup,
        tokens,
        lambda schedule: prepare_lookups(schedule, build, batches + 1, rows, adaptive),
        os.environ.get(protocol.ENV_SCHEDULE_FILE, ""),
        os.environ.get(protocol.ENV_OVERRIDE_FILE, ""),
    )
