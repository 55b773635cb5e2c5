"""What the engine will admit, read from the user's arguments or from vLLM's own defaults.

Defaults depend on the device, which the plan does not know; each limit is therefore a bound that
holds on every device: `max_num_seqs` is the least the engine admits, `widest_batch` the most. Batches
beyond MAX_BATCH are not looked at: the deepest look costs time in proportion, and the last depth holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.growth import MAX_BATCH
from specpilot.plan import flags, user_env

# vLLM 0.32 and 0.33, engine/arg_utils.py get_batch_defaults, for the API server:
# 256 sequences and 2,048 tokens below 70 GiB of device memory, 1,024 and 8,192 or 16,384 above;
# on CPUs 128 and 2,048 for each rank.
_SEQS_LEAST, _SEQS_MOST, _SEQS_CPU = 256, 1024, 128
_TOKENS_LEAST = 2048
# config/vllm.py _set_cudagraph_sizes: the largest captured batch, in tokens.
CAPTURE_CAP, CAPTURE_CAP_BLACKWELL = 512, 1024
_BLACKWELL = re.compile(r"(?<![A-Z0-9])G?B[123]00(?![0-9])")


@dataclass(frozen=True, slots=True)
class Limits:
    max_num_seqs: int
    widest_batch: int
    max_num_batched_tokens: int
    max_model_len: int | None  # None: the model's own
    capture_cap: int  # largest captured batch in tokens; 0: no graphs at all


def limits(spec: SpeculativeDeploymentSpec) -> Limits:
    """Limits of one engine of this spec."""
    given = flags.parse(spec.engine.args)
    cpu = runs_on_cpu(spec)
    ranks = spec.parallelism.tensor * spec.parallelism.pipeline
    least, most = (_SEQS_CPU * ranks, _SEQS_CPU * ranks) if cpu else (_SEQS_LEAST, _SEQS_MOST)
    seqs = min(flags.integer(given, "--max-num-seqs") or 0, MAX_BATCH)
    tokens = flags.integer(given, "--max-num-batched-tokens") or _TOKENS_LEAST * (ranks if cpu else 1)
    cap = 0 if cpu or _eager(given) else min(_cap(spec), tokens)
    return Limits(
        max_num_seqs=seqs or least,
        widest_batch=seqs or most,
        max_num_batched_tokens=tokens,
        max_model_len=flags.integer(given, "--max-model-len"),
        capture_cap=cap,
    )


def runs_on_cpu(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether the user says so; taking a GPU engine for a CPU one would cost it its planned graphs."""
    names = user_env.variables(spec)
    tagged = re.search(r"(^|[^a-z])cpu([^a-z]|$)", spec.engine.image.lower()) is not None
    return tagged or any(name.startswith("VLLM_CPU_") for name in names)


def _eager(given: tuple[flags.Flag, ...]) -> bool:
    if flags.enabled(given, "--enforce-eager"):
        return True
    mode = flags.mapping(given, "--compilation-config").get("cudagraph_mode")
    if mode is None:
        return flags.level(given) == "0"
    return str(mode).upper() == "NONE"


def _cap(spec: SpeculativeDeploymentSpec) -> int:
    hints = (spec.pod_template or {}).get("spec") or {}
    placement = [hints.get("nodeSelector"), hints.get("affinity")]
    blackwell = any(_BLACKWELL.search(text) for part in placement for text in _strings(part))
    return CAPTURE_CAP_BLACKWELL if blackwell else CAPTURE_CAP


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.upper()
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
