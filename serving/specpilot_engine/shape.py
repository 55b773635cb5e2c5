"""The shape of the model that this engine runs, read from vLLM's configuration: for the operator's first estimate.

Read once, at the start. Whatever is missing or new to this package means that there is no shape: the operator then
knows less, and the engine is none the worse.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from specpilot_engine.layers import layers, number, whole
from specpilot_engine.protocol import ModelShape, parse_shape

log = logging.getLogger(__name__)

# What a drafter computes, by vLLM's name of the method.
AUTOREGRESSIVE = ("eagle", "eagle3", "mtp", "draft_model")
BLOCK = ("dflash", "dspark")
NOTHING = ("ngram", "ngram_gpu", "suffix")
OWN_LAYERS = 3  # of a DSpark drafter inside its target's checkpoint that does not say, as in vLLM
FOUR_BITS = 4.25 / 8  # bytes of a weight, with its share of a scale


def shape_of(vllm_config: Any) -> ModelShape | None:
    """None where it cannot be told; never raises."""
    try:
        return parse_shape(_read(vllm_config).labels())
    except Exception as e:
        log.info("specpilot: step times cannot be estimated from the model's shape: %r", e)
        return None


def _read(config: Any) -> ModelShape:
    model, parallel = config.model_config, config.parallel_config
    count = int(whole(model, model.get_total_num_hidden_layers(), "layers"))
    kv_bytes = _kv_bytes(config.cache_config.cache_dtype, _itemsize(model))
    sums = layers(model, parallel, range(count), kv_bytes)
    dense, grouped = _weight_bytes(model)
    devices = int(number(parallel, "tensor_parallel_size"))
    hidden, head = float(model.get_hidden_size()), _head(model)
    experts = int(model.get_num_experts()) if sums.experts else 0
    routed = int(whole(model, model.get_num_experts_per_tok(), "experts a token")) if experts else 0
    ranks = int(number(parallel, "data_parallel_size")) if experts else 1
    # Two all-reduces a layer, each of which sends 2 (n - 1) / n of a row; to experts a row goes out in 8 bits and
    # comes back in 16.
    exchanged = 8 * count * hidden * (devices - 1) / devices
    exchanged += 3 * count * hidden * routed if ranks > 1 else 0.0
    return ModelShape(
        weights=(dense * sums.dense + _itemsize(model) * head) / devices,
        weight_flops=2 * (sums.dense + head) / devices,
        layers=count,
        devices=devices,
        exchanged=exchanged,
        device=str(config.device_config.device_type),
        device_name=_device_name(str(config.device_config.device_type)),
        experts=experts,
        routed=routed,
        ranks=ranks,
        expert_weights=grouped * sums.experts / (devices * ranks),
        expert_flops=2 * sums.experts * routed / experts / devices if experts else 0.0,
        full_bytes=sums.full_bytes,
        full_flops=sums.full_flops,
        window=sums.window,
        window_bytes=sums.window_bytes,
        window_flops=sums.window_flops,
        selected=sums.selected,
        selected_bytes=sums.selected_bytes,
        selected_flops=sums.selected_flops,
        state_bytes=sums.state,
        **_drafter(config, ranks, routed / experts if experts else 0.0),
    )


def _drafter(config: Any, ranks: int, share: float) -> dict[str, Any]:
    """The fields of the drafter; `share` of the routed experts computes for each row."""
    speculation = config.speculative_config
    if speculation is None or speculation.method in NOTHING:
        return {"draft": "none"}
    method, target = speculation.method, config.model_config
    if method not in (*AUTOREGRESSIVE, *BLOCK):
        raise LookupError(f"drafts are made by {method}")
    model, parallel = speculation.draft_model_config, speculation.draft_parallel_config
    last = int(target.get_total_num_hidden_layers()) - 1
    if method == "mtp" and model.get_hidden_size() == target.get_hidden_size():
        # A pass runs one module: the target's last kind of layer, and what joins a state with a token.
        count, sums = 1, layers(target, parallel, [last], 0.0)
        sums.dense += 2 * float(target.get_hidden_size()) ** 2
    elif method == "dspark" and int(model.get_total_num_hidden_layers()) == last + 1:
        count = int(number(model.hf_config, "n_mtp_layers", default=OWN_LAYERS))
        sums = layers(target, parallel, [last] * count, 0.0)
    else:
        count = int(whole(model, model.get_total_num_hidden_layers(), "layers"))
        sums = layers(model, parallel, range(count), 0.0)
        if sums.experts and int(model.get_num_experts()) != int(target.get_num_experts()):
            raise LookupError("the drafter has experts of its own")
    dense, grouped = _weight_bytes(model)
    devices, head = number(parallel, "tensor_parallel_size"), _head(model)
    at_once = method in BLOCK or bool(getattr(speculation, "parallel_drafting", False))
    return {
        "draft": "block" if at_once else "autoregressive",
        "draft_layers": count,
        "draft_weights": (dense * sums.dense + _itemsize(model) * head) / devices,
        "draft_flops": 2 * (sums.dense + head + sums.experts * share) / devices,
        "draft_expert_weights": grouped * sums.experts / (devices * ranks),
    }


def _head(model: Any) -> float:
    """Parameters of the output head; a drafter's may be over fewer words."""
    words = number(model.hf_config, "draft_vocab_size", default=0.0) or model.get_vocab_size()
    return float(model.get_hidden_size()) * whole(model, words, "vocabulary")


def _itemsize(model: Any) -> float:
    return float(model.dtype.itemsize)


def _weight_bytes(model: Any) -> tuple[float, float]:
    """Bytes of one weight: of all linear layers, and of routed experts where they are kept otherwise."""
    method, plain = str(model.quantization or ""), _itemsize(model)
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return plain, FOUR_BITS
    if method == "experts_int8":
        return plain, 1.0
    if method == "deepseek_v4_fp8":
        return 1.0, 1.0 if getattr(model.hf_config, "expert_dtype", "fp4") == "fp8" else FOUR_BITS
    bits = _bits(getattr(model.model_arch_config, "quantization_config", None))
    if bits:
        size = bits / 8
    elif "fp4" in method or "awq" in method or "gptq" in method:
        size = FOUR_BITS
    elif "fp8" in method or "int8" in method or method == "modelopt":
        size = 1.0
    else:
        size = plain
    return size, size


def _bits(quantization: Any) -> float:
    """Bits of a weight where the checkpoint says so, else 0."""
    if not isinstance(quantization, Mapping):
        return 0.0
    groups = quantization.get("config_groups")  # compressed-tensors
    if isinstance(groups, Mapping) and groups:
        first = next(iter(groups.values()))
        weights = first.get("weights") if isinstance(first, Mapping) else None
        quantization = weights if isinstance(weights, Mapping) else {}
    found = next((quantization[n] for n in ("num_bits", "bits", "w_bit") if n in quantization), 0)
    return float(found) if isinstance(found, (int, float)) and 0 < found <= 32 else 0.0


def _kv_bytes(dtype: Any, plain: float) -> float:
    """Bytes of one number in the KV cache."""
    name = str(dtype)
    if name == "auto":
        return plain
    if any(four in name for four in ("fp4", "int4", "4bit", "3bit", "v4")):
        return FOUR_BITS
    return 1.0 if "8" in name else 2.0


def _device_name(kind: str) -> str:
    """As the driver's library tells it; "" where only a device that is set up would, as none is in this process."""
    if kind != "cuda":
        return ""
    try:
        from vllm.platforms import current_platform

        if type(current_platform).__name__ == "NonNvmlCudaPlatform":
            return ""
        return str(current_platform.get_device_name())
    except Exception as e:
        log.info("specpilot: the device has no name: %r", e)
        return ""
