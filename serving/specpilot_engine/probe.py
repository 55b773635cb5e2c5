"""Checks that this vLLM has the internals the live scheduler relies on.

None of them is a public interface. Each is looked at before anything is built on it; what is missing
is named in one sentence, and the engine then runs as stock vLLM.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

# By class of vLLM.v1: the fields read from the objects that scheduler and runner exchange.
OUTPUT_FIELDS = (
    "num_scheduled_tokens",
    "total_num_scheduled_tokens",
    "scheduled_new_reqs",
    "scheduled_cached_reqs",
    "scheduled_spec_decode_tokens",
    "preempted_req_ids",
    "pending_structured_output_tokens",
    "num_invalid_spec_tokens",
    "num_spec_tokens_to_schedule",
)
CACHED_FIELDS = ("req_ids", "resumed_req_ids", "num_computed_tokens")
RESULT_FIELDS = ("sampled_token_ids", "req_id_to_index")
SCHEDULER_ATTRIBUTES = (
    "dynamic_sd_lookup",
    "kv_cache_manager",
    "max_num_running_reqs",
    "max_num_scheduled_tokens",
    "num_spec_tokens",
    "requests",
    "running",
)
BUILD_PARAMETERS = (
    "num_speculative_tokens_per_batch_size",
    "vllm_max_batch_size",
    "vllm_num_speculative_tokens",
)


def class_problem(base: type) -> str:
    """Why a live scheduler cannot be built on the scheduler class `base`; "" when it can."""
    for method in ("schedule", "update_from_output"):
        if not callable(getattr(base, method, None)):
            return f"vLLM's {base.__name__} has no {method}()"
    if not _reads_lookup(base):
        return f"vLLM's {base.__name__}.schedule does not read dynamic_sd_lookup"
    try:
        from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
        from vllm.v1.outputs import ModelRunnerOutput
        from vllm.v1.request import Request
        from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup
    except ImportError as e:
        return f"vLLM lacks {e.name or e}: {e}"
    for cls, fields in (
        (SchedulerOutput, OUTPUT_FIELDS),
        (CachedRequestData, CACHED_FIELDS),
        (ModelRunnerOutput, RESULT_FIELDS),
    ):
        known = {f.name for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
        for name in fields:
            if name not in known:
                return f"vLLM's {cls.__name__} has no field {name}"
    for cls, names in (
        (EngineCoreOutputs, ("outputs",)),
        (EngineCoreOutput, ("new_token_ids",)),
        (Request, ("is_finished", "use_structured_output")),
    ):
        for name in names:
            if not hasattr(cls, name):
                return f"vLLM's {cls.__name__} has no {name}"
    parameters = tuple(inspect.signature(build_dynamic_sd_schedule_lookup).parameters)
    if parameters != BUILD_PARAMETERS:
        return f"vLLM's build_dynamic_sd_schedule_lookup takes {', '.join(parameters)}"
    return ""


def instance_problem(scheduler: Any) -> str:
    """What the constructed `scheduler` lacks to be measured; "" when nothing."""
    for name in SCHEDULER_ATTRIBUTES:
        if not hasattr(scheduler, name):
            return f"vLLM's {type(scheduler).__name__} has no attribute {name}"
    if not hasattr(type(scheduler.kv_cache_manager), "usage"):
        return "vLLM's KVCacheManager has no usage"
    return ""


def tuning_problem(scheduler: Any, vllm_config: Any) -> str:
    """Why the depth cannot be changed while this engine runs; "" when it can.

    vLLM drops the schedule by itself where changing depths is not safe (data parallelism, some
    drafters). The lookup it left is the one thing to ask: setting one ourselves would bring back what
    it avoided.
    """
    if vllm_config.speculative_config is None:
        return "the engine runs without speculation"
    lookup = scheduler.dynamic_sd_lookup
    if lookup is None:
        return "vLLM runs without a depth schedule: none was given, or it does not support one here"
    if not isinstance(lookup, list) or len(lookup) != scheduler.max_num_running_reqs + 1:
        return "vLLM's depth schedule has an unknown form"
    return ""


def cutting_problem(base: type, vllm_config: Any) -> str:
    """Why drafts must be verified whole, as long as they were drafted; "" when they may be cut.

    `base` is vLLM's own scheduler class. Requests of unequal length leave full CUDA graphs. Chained MTP modules
    compute anew, of what earlier drafts left in their KV cache, as much as drafts were rejected: what was
    cut would stay.
    """
    from vllm.v1.request import Request

    speculation = vllm_config.speculative_config
    if vllm_config.parallel_config.pipeline_parallel_size > 1:
        return "the engine has several pipeline stages"
    if vllm_config.compilation_config.cudagraph_mode.has_full_cudagraphs():
        return "the engine uses full CUDA graphs"
    if verifies_adaptively(vllm_config):
        return "vLLM verifies adaptively itself"
    if getattr(speculation, "use_multi_module_mtp", bool)():
        return "the drafter chains MTP modules, which count on whole drafts"
    for function in (Request.__init__, base.schedule):  # type: ignore[attr-defined]
        if "spec_token_ids" not in _names_in(function):
            return "vLLM keeps drafts elsewhere than in its requests"
    if not vllm_config.scheduler_config.async_scheduling:
        return ""
    if speculation.method == "ngram_gpu":
        return "vLLM itself leaves out n-gram drafts that found nothing"
    return _placeholder_problem(base)


def _placeholder_problem(base: type) -> str:
    """Why an asynchronous scheduler's placeholders for drafts cannot be cut; "" when they can.

    It must make new ones after each step, and expect as many tokens of a request as that was scheduled.
    """
    names = _names_in(getattr(base, "_update_after_schedule", None))
    if not {"spec_token_ids", "scheduled_spec_decode_tokens", "num_output_placeholders"} <= set(names):
        return "vLLM schedules asynchronously in an unknown way"
    return ""


def verifies_adaptively(vllm_config: Any) -> bool:
    """Whether vLLM itself sizes what is verified of a draft."""
    return bool(getattr(vllm_config.speculative_config, "enable_adaptive_verification", False))


def _reads_lookup(base: type) -> bool:
    """Whether the class that defines schedule() looks the depth up at every call."""
    return "dynamic_sd_lookup" in _names_in(base.schedule)  # type: ignore[attr-defined]


def _names_in(function: Any) -> tuple[str, ...]:
    """Attributes and globals that a function's own code uses; none where it has no code to look at."""
    return getattr(getattr(inspect.unwrap(function), "__code__", None), "co_names", ())
