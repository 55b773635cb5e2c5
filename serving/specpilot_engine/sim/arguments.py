"""vLLM's command line, as far as it matters to a simulated engine.

Every other argument is vLLM's own and is ignored. A speculative configuration that vLLM would refuse
is refused, so that a wrong rendering does not pass here and fail on a GPU.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from typing import Any, NoReturn

from specpilot_engine.protocol import ENV_SIM

# Fields of vLLM's SpeculativeConfig that a user may set (0.32 and 0.33).
_SPECULATIVE_FIELDS = {
    "method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size",
    "rejection_sample_method", "draft_sample_method", "synthetic_acceptance_rates",
    "synthetic_acceptance_length", "enable_adaptive_verification", "enforce_eager",
    "draft_tensor_parallel_size", "tensor_parallel_size", "quantization", "moe_backend",
    "attention_backend", "kv_cache_dtype", "max_model_len", "revision", "code_revision",
    "index_share_for_mtp_iteration", "disable_padded_drafter_batch", "disable_eagle_block_drop",
    "disable_lookahead_block_hashes", "draft_lm_head_quantization", "use_local_argmax_reduction",
    "use_heterogeneous_vocab", "prompt_lookup_max", "prompt_lookup_min", "parallel_drafting",
    "draft_load_config", "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob",
}  # fmt: skip
_CHOICES = {
    "rejection_sample_method": ("standard", "synthetic", "block", "fly"),
    "draft_sample_method": ("greedy", "probabilistic"),
}

# Their drafts have no distribution: one token with all the weight.
_WITHOUT_DISTRIBUTION = {"ngram", "ngram_gpu", "suffix"}

VERSION = "0.32.0+sim"  # what it answers as vLLM's

EXAMPLE = f"""\
example:
  {ENV_SIM}='{{"startup_seconds": 0, "time_scale": 5}}' python -m specpilot_engine.sim --model demo \\
    --port 8000 --max-num-seqs 64 --scheduler-cls specpilot_engine.scheduler.factory \\
    --speculative-config '{{"method": "mtp", "num_speculative_tokens": 7,
    "num_speculative_tokens_per_batch_size": [[1, 16, 7], [17, 64, 3]]}}'
  curl localhost:8000/v1/completions -H 'content-type: application/json' \\
    -d '{{"model": "demo", "prompt": "hello", "max_tokens": 50, "user": "code"}}'

The `user` field of a request chooses its kind of traffic: mixed, chat, code or prose, or a kind that
{ENV_SIM} names (JSON, or @file). Settings there: depths, batches, step_time_ms, context_factor,
traffic, default_traffic, outright_share, schedule_overhead, prefill_ms_per_token, startup_seconds,
grace_seconds, step_noise, seed, time_scale, and fail: {{"start": true}}, {{"live": "reason"}},
{{"crash_after": seconds}}, {{"never_ready": true}}, {{"without_drafter": true}}. Any other argument of
vLLM's is accepted and ignored.

Survival given for a kind of traffic is that of standard verification. With rejection_sample_method block
and draft_sample_method probabilistic, requests with a temperature above 0 have more: what a model of how
draft and target agree makes of it, where outright_share of the rejections are of tokens that the target
would never say.
"""


class ConfigError(ValueError):
    """vLLM would not start with this; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """The start-up speculation: drafts per request at most, and its schedule if there is one."""

    tokens: int
    rows: tuple[tuple[int, int, int], ...] = ()  # first batch, last batch, tokens; () is no schedule
    info: dict[str, str] = field(default_factory=dict)  # method and samplers, for /metrics

    @property
    def block(self) -> bool:
        """Whether sampled drafts are verified by block. Of one-hot drafts block accepts as standard does."""
        return (
            self.info.get("rejection_sample_method") == "block"
            and self.info.get("draft_sample_method") == "probabilistic"
            and self.info.get("method") not in _WITHOUT_DISTRIBUTION
        )

    def lookup(self, batches: int) -> list[int] | None:
        """The schedule as vLLM expands it: the depth at each batch up to `batches`, index 0 unused.

        Gaps and the tail carry the row before them, and `tokens` is the ceiling.
        """
        if not self.rows:
            return None
        depths = [0] * (batches + 1)
        for first, _, tokens in self.rows:
            depths[first:] = [min(tokens, self.tokens)] * (batches + 1 - first)
        return depths[: batches + 1]


@dataclass(frozen=True, slots=True)
class Arguments:
    """What of the command line the simulation uses."""

    model: str
    served_names: tuple[str, ...]  # the first labels the metrics
    host: str
    port: int
    max_num_seqs: int
    max_model_len: int
    max_num_batched_tokens: int
    speculation: Speculation | None
    scheduler_cls: str
    shutdown_timeout: float | None


def parse_arguments(argv: list[str]) -> Arguments:
    """Read vLLM's arguments. Ends the process with status 2 on a malformed one, as argparse does.

    Raises ConfigError for a speculative configuration that vLLM's own validation would refuse.
    """
    parser = argparse.ArgumentParser(
        "python -m specpilot_engine.sim",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--model", default="simulated", help="name of the model")
    parser.add_argument("--served-model-name", nargs="+", help="names that requests may use")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000, help="of the OpenAI API (8000)")
    parser.add_argument("--max-num-seqs", type=_positive, default=256, help="running requests at most")
    parser.add_argument("--max-model-len", type=_length, default=65536, help="tokens of one request")
    parser.add_argument("--max-num-batched-tokens", type=_length, default=8192, help="tokens of one step")
    parser.add_argument("--speculative-config", "-sc", type=_object, help="vLLM's JSON")
    parser.add_argument(
        "--scheduler-cls", default="", help="specpilot_engine.scheduler.factory turns live tuning on"
    )
    parser.add_argument("--shutdown-timeout", type=float, help="seconds for running requests to finish")
    args, _ = parser.parse_known_args([_dashes(a) for a in argv])
    return Arguments(
        model=args.model,
        served_names=tuple(args.served_model_name or [args.model]),
        host=args.host,
        port=args.port,
        max_num_seqs=args.max_num_seqs,
        max_model_len=args.max_model_len,
        max_num_batched_tokens=args.max_num_batched_tokens,
        speculation=None if args.speculative_config is None else parse_speculation(args.speculative_config),
        scheduler_cls=args.scheduler_cls,
        shutdown_timeout=args.shutdown_timeout,
    )


def _dashes(argument: str) -> str:
    """vLLM takes `_` for `-` in the name of an option."""
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if argument.startswith("--") else argument


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {value}")
    return value


def _length(text: str) -> int:
    """vLLM's human-readable whole numbers: 1k is 1000, 1K is 1024."""
    factors = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
    factor = factors.get(text[-1:], 1)
    return _positive(str(int(float(text.rstrip("kmgKMG")) * factor)))


def _object(text: str) -> dict[str, Any]:
    try:
        doc = json.loads(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"not JSON ({e})") from None
    if not isinstance(doc, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return doc


def parse_speculation(doc: dict[str, Any]) -> Speculation:
    """Check `--speculative-config` as vLLM does and keep what the simulation needs."""
    if unknown := sorted(set(doc) - _SPECULATIVE_FIELDS):
        _refuse(f"{unknown[0]!r} is not a field of it")
    if not _whole(tokens := doc.get("num_speculative_tokens"), 1):
        _refuse(f"num_speculative_tokens must be a whole number above 0, not {tokens!r}")
    for name, allowed in _CHOICES.items():
        if doc.get(name, allowed[0]) not in allowed:
            _refuse(f"{name} must be one of {', '.join(allowed)}, not {doc[name]!r}")
    method = doc.get("method")
    if method is not None and not isinstance(method, str):
        _refuse(f"method must be a name, not {method!r}")
    if method is None and not doc.get("model"):
        _refuse("it names neither a method nor a model")
    return Speculation(
        int(doc["num_speculative_tokens"]),
        _rows(doc.get("num_speculative_tokens_per_batch_size")),
        {
            "method": method or "draft_model",
            "rejection_sample_method": doc.get("rejection_sample_method", "standard"),
            "draft_sample_method": doc.get("draft_sample_method", "greedy"),
            "adaptive_verification": str(bool(doc.get("enable_adaptive_verification"))).lower(),
        },
    )


def _rows(value: Any) -> tuple[tuple[int, int, int], ...]:
    name = "num_speculative_tokens_per_batch_size"
    if value is None:
        return ()
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(r, list) and len(r) == 3 and all(_whole(v, 0) for v in r) for r in value)
    ):
        _refuse(f"{name} must be a list of [first batch, last batch, tokens]")
    rows = sorted((int(f), int(last), int(k)) for f, last, k in value)
    end = 0
    for first, last, _ in rows:
        if first > last or first <= end:
            _refuse(f"the ranges of {name} must not be empty or overlap")
        end = last
    if rows[0][0] != 1:
        _refuse(f"the first range of {name} must start at 1")
    return tuple(rows)


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _refuse(why: str) -> NoReturn:
    raise ConfigError(f"invalid --speculative-config: {why}.")
