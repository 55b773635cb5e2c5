"""`--scheduler-cls specpilot_engine.scheduler.factory`: vLLM's own scheduler with a live depth.

vLLM calls whatever the name resolves to with the scheduler's arguments. This factory picks the base
that vLLM would have picked (a synchronous one under async scheduling would silently switch
speculation off), checks that the internals it needs are there, and returns either the live scheduler
or the stock one. Whatever goes wrong, the engine starts and serves; the reason is exported.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from typing import Any

import specpilot_engine
from specpilot_engine import probe, protocol
from specpilot_engine.exports import EngineStatus, ExportServer, engine_routes
from specpilot_engine.live import LiveHooks, Lookup, Lookups, prepare_lookups, schedule_of
from specpilot_engine.protocol import ModelShape, Schedule
from specpilot_engine.record import Recorder
from specpilot_engine.shape import shape_of
from specpilot_engine.timing import StepClock
from specpilot_engine.trim import Trimmer
from specpilot_engine.watch import ScheduleWatcher

log = logging.getLogger(__name__)

VARIABLE_METHODS = ("ngram", "ngram_gpu", "suffix")  # propose as many tokens as they find


@dataclass(slots=True)
class Tuning:
    """What this engine says about itself, and the watcher while the depth is live."""

    reason: str
    startup: Schedule
    watcher: ScheduleWatcher[Lookups] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    whole_drafts: str = ""  # why drafts are never cut
    shape: ModelShape | None = None  # of the model
    adaptive: int = 0  # drafts of which vLLM itself sizes what is verified

    def off(self, reason: str) -> None:
        """The depth is not live any more."""
        self.reason = reason
        if self.watcher is not None:
            self.watcher.cancel()
            self.watcher = None

    def status(self) -> EngineStatus:
        """A snapshot for the export port."""
        watcher = self.watcher
        if watcher is None:
            return EngineStatus(False, self.reason, self.startup, "", self.versions, shape=self.shape)
        about = (watcher.current, watcher.file_error, self.versions)
        return EngineStatus(True, "", *about, self.whole_drafts, self.shape, self.adaptive)


class LiveMixin:
    """Wraps the two calls of a step; ahead of a vLLM scheduler in the bases."""

    _specpilot: LiveHooks | None = None
    _specpilot_tuning: Tuning | None = None
    dynamic_sd_lookup: Lookup | None
    _specpilot_startup: Lookup | None = None

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's schedule(), at the depth in force."""
        hooks = self._specpilot
        if hooks is None:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        now = time.perf_counter()
        try:
            hooks.before_schedule()
        except Exception as e:
            self._specpilot_off(e)
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        try:
            hooks.after_schedule(output, now)
        except Exception as e:
            self._specpilot_off(e)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any, *args: Any) -> Any:
        """vLLM's update_from_output(), counted and timed."""
        hooks = self._specpilot
        if hooks is None:
            return super().update_from_output(scheduler_output, model_runner_output, *args)  # type: ignore[misc]
        now = time.perf_counter()
        try:
            hooks.before_update(scheduler_output, model_runner_output)
        except Exception as e:
            self._specpilot_off(e)
        results = super().update_from_output(scheduler_output, model_runner_output, *args)  # type: ignore[misc]
        try:
            hooks.after_update(scheduler_output, results, now)
        except Exception as e:
            self._specpilot_off(e)
        return results

    def _specpilot_off(self, error: Exception) -> None:
        """Back to stock vLLM with its start-up schedule, for good. Of a step whose two hooks both fail the first error
        is the cause."""
        if self._specpilot is None:
            return
        self._specpilot = None
        if self._specpilot_startup is not None:
            self.dynamic_sd_lookup = self._specpilot_startup
        log.error("specpilot: live tuning is off after an internal error", exc_info=error)
        if self._specpilot_tuning is not None:
            self._specpilot_tuning.off(f"internal error: {error!r}")


def factory(*args: Any, **kwargs: Any) -> Any:
    """The engine's scheduler. Takes and passes on the arguments of vLLM's own class."""
    vllm_config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
    base = stock_class(vllm_config)
    try:
        problem = probe.class_problem(base)
    except Exception as e:
        problem = f"looking at vLLM's internals failed: {e!r}"
    cls = base if problem else type("LiveScheduler", (LiveMixin, base), {})
    scheduler = cls(*args, **kwargs)
    try:
        attach(scheduler, vllm_config, problem)
    except Exception:
        log.exception("specpilot: could not be set up; the engine runs as stock vLLM")
    return scheduler


def stock_class(vllm_config: Any) -> type:
    """The class vLLM picks when --scheduler-cls is not given."""
    pipelined = bool(vllm_config.scheduler_config.async_scheduling)
    if getattr(vllm_config, "diffusion_config", None) is not None:
        from vllm.v1.core.sched import diffusion_scheduler as diffusion

        return diffusion.DiffusionAsyncScheduler if pipelined else diffusion.DiffusionScheduler  # type: ignore[no-any-return]
    if pipelined:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler

        return AsyncScheduler  # type: ignore[no-any-return]
    from vllm.v1.core.sched.scheduler import Scheduler

    return Scheduler  # type: ignore[no-any-return]


def attach(scheduler: Any, vllm_config: Any, problem: str) -> ExportServer:
    """Measure and tune `scheduler` as far as it allows, and serve what is found.

    `problem`: why the scheduler is the stock one ("" when it is live). The export port opens in any
    case, so that the reason can be read.
    """
    tokens = int(getattr(scheduler, "num_spec_tokens", 0) or 0)
    size = int(vllm_config.scheduler_config.max_num_seqs)
    recorder = Recorder(tokens)
    tuning = Tuning(
        problem, schedule_of(None, size, tokens), versions=_versions(), shape=shape_of(vllm_config)
    )
    if not problem:
        try:
            _go_live(scheduler, vllm_config, recorder, tuning)
        except Exception as e:
            log.exception("specpilot: could not be set up")
            scheduler._specpilot = None
            tuning.off(f"could not be set up: {e!r}")
    if tuning.reason:
        log.warning("specpilot: the draft depth cannot be changed live: %s", tuning.reason)
    server = ExportServer(_port(vllm_config), engine_routes(recorder, tuning.status))
    server.start()
    return server


def _go_live(scheduler: Any, vllm_config: Any, recorder: Recorder, tuning: Tuning) -> None:
    tuning.reason = probe.instance_problem(scheduler)
    if tuning.reason:
        return
    tuning.reason = probe.tuning_problem(scheduler, vllm_config)
    if not tuning.reason:
        lookup = scheduler.dynamic_sd_lookup
        tuning.startup = schedule_of(lookup, len(lookup) - 1, recorder.max_tokens)
        tuning.adaptive = recorder.max_tokens if probe.verifies_adaptively(vllm_config) else 0
        tuning.watcher = _watcher(scheduler, tuning.startup, recorder.max_tokens, tuning.adaptive)
        scheduler._specpilot_startup = lookup
    scheduler._specpilot_tuning = tuning
    trimmer = None
    if tuning.watcher is not None:
        tuning.whole_drafts = probe.cutting_problem(stock_class(vllm_config), vllm_config)
        trimmer = None if tuning.whole_drafts else Trimmer(recorder.max_tokens)
    scheduler._specpilot = LiveHooks(scheduler, recorder, _clock(vllm_config), tuning.watcher, trimmer)


def _watcher(scheduler: Any, startup: Schedule, tokens: int, adaptive: int) -> ScheduleWatcher[Lookups]:
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    size = len(scheduler.dynamic_sd_lookup)
    budget = int(scheduler.max_num_scheduled_tokens)

    def build(rows: list[tuple[int, int, int]]) -> Lookup:
        return build_dynamic_sd_schedule_lookup(  # type: ignore[no-any-return]
            rows, vllm_max_batch_size=size - 1, vllm_num_speculative_tokens=tokens
        )

    watcher = ScheduleWatcher(
        startup,
        tokens,
        lambda schedule: prepare_lookups(schedule, build, size, budget, adaptive),
        os.environ.get(protocol.ENV_SCHEDULE_FILE, ""),
        os.environ.get(protocol.ENV_OVERRIDE_FILE, ""),
    )
    watcher.start()
    return watcher


def _clock(vllm_config: Any) -> StepClock:
    speculative = vllm_config.speculative_config
    return StepClock(
        pipelined=bool(vllm_config.scheduler_config.async_scheduling),
        stages=int(vllm_config.parallel_config.pipeline_parallel_size),
        variable=speculative is not None and speculative.method in VARIABLE_METHODS,
    )


def _port(vllm_config: Any) -> int:
    """Each data-parallel engine of a pod has a port of its own."""
    text = os.environ.get(protocol.ENV_PORT, "")
    if text and not text.isdecimal():
        log.error("specpilot: %s is not a port: %r; using %d", protocol.ENV_PORT, text, protocol.PORT)
        text = ""
    return int(text or protocol.PORT) + int(vllm_config.parallel_config.data_parallel_index)


def _versions() -> dict[str, str]:
    import vllm

    return {"vllm": str(vllm.__version__), "specpilot_engine": specpilot_engine.__version__}
