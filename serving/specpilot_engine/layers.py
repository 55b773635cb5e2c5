"""What the layers of one model weigh and read, from vLLM's configuration of it.

Names are those that vLLM's own model code reads from a checkpoint's configuration. Nothing is guessed: what is
missing or of an unknown kind raises, and there is no shape of such a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

INDEX_BYTES = 1.0  # of one number in the indexer's keys of sparse attention, which are kept in 8 bits
STATE_BYTES = 8.0  # of one number of a linear attention's state: read and written, in 32 bits
SPARSE_RATIO = 4  # of compressed attention, the one whose latents are selected; others are read whole
FULL = ("full_attention", "indexed_attention", "deepseek_sparse_attention", "qwen_sparse_attention")
# Blocks whose sizes stand elsewhere.
OTHER_BLOCKS = ("layers_block_type", "hybrid_override_pattern", "attn_type_list", "block_configs")


@dataclass(slots=True)
class Sums:
    """Over layers: parameters of the whole model, and what attention reads and computes on one device."""

    dense: float = 0.0
    experts: float = 0.0  # of all routed ones
    full_bytes: float = 0.0
    full_flops: float = 0.0
    window: int = 0
    window_bytes: float = 0.0
    window_flops: float = 0.0
    selected: int = 0
    selected_bytes: float = 0.0
    selected_flops: float = 0.0
    state: float = 0.0


def number(config: Any, *names: str, default: float | None = None) -> float:
    """The first of these attributes that is a number above 0. Raises LookupError without a default."""
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value)
    if default is None:
        raise LookupError(f"no {' or '.join(names)}")
    return default


def whole(model: Any, value: Any, name: str) -> float:
    """A size that must be there: `value` of `model`, as vLLM's methods give it."""
    if not isinstance(value, (int, float)) or value <= 0:
        raise LookupError(f"{type(model).__name__} has no {name}")
    return float(value)


def layers(model: Any, parallel: Any, which: Iterable[int], kv_bytes: float) -> Sums:
    """The sums over layers `which` of vLLM's ModelConfig `model`; `kv_bytes` of one number in the KV cache.

    Raises LookupError, AttributeError, TypeError or ValueError for what is not understood.
    """
    text, sums = model.hf_text_config, Sums()
    if other := [name for name in OTHER_BLOCKS if getattr(text, name, None)]:
        raise LookupError(f"layers are described by {other[0]}")
    for layer in which:
        _attention(model, parallel, text, layer, kv_bytes, sums)
        _mlp(model, text, layer, sums)
    return sums


def _attention(model: Any, parallel: Any, text: Any, layer: int, kv_bytes: float, sums: Sums) -> None:
    hidden = whole(model, model.get_hidden_size(), "hidden size")
    heads = whole(model, model.get_num_attention_heads(parallel), "attention heads")
    every = heads * number(parallel, "tensor_parallel_size")  # heads of all devices
    kind = _kind(text, layer)
    if kind == "linear_attention":
        _linear(text, hidden, parallel, sums)
        return
    if getattr(text, "compress_ratios", None):
        _compressed(text, layer, hidden, heads, every, kv_bytes, sums)
        return
    if model.use_mla:
        latent = number(text, "kv_lora_rank")
        rope, plain = number(text, "qk_rope_head_dim", default=0.0), number(text, "qk_nope_head_dim")
        value, query = number(text, "v_head_dim"), number(text, "q_lora_rank", default=0.0)
        sums.dense += query * (hidden + every * (plain + rope)) if query else hidden * every * (plain + rope)
        sums.dense += hidden * (latent + rope) + latent * every * (plain + value) + every * value * hidden
        read, computed = kv_bytes * (latent + rope), 2 * heads * (2 * latent + rope)
    else:
        size = whole(model, model.get_head_size(), "head size")
        pairs = whole(model, model.get_total_num_kv_heads(), "KV heads")
        sums.dense += hidden * size * (2 * every + 2 * pairs)
        read = 2 * kv_bytes * size * whole(model, model.get_num_kv_heads(parallel), "KV heads")
        computed = 4 * heads * size
    if kind == "sliding_attention":
        _windowed(int(number(text, "sliding_window")), read, computed, sums)
    elif number(text, "index_topk", default=0.0):
        _sparse(text, read, computed, number(text, "index_kpool", default=1.0), 1.0, sums)
    elif kind == "qwen_sparse_attention":
        raise LookupError("sparse attention without index_topk")
    else:
        sums.full_bytes += read
        sums.full_flops += computed


def _kind(text: Any, layer: int) -> str:
    """As transformers names it in layer_types, which older configurations lack."""
    linear = getattr(text, "linear_attn_config", None)
    if isinstance(linear, Mapping) and layer + 1 in (linear.get("kda_layers") or ()):
        return "linear_attention"
    if getattr(text, "compress_ratios", None):
        return "compressed"
    kinds = getattr(text, "layer_types", None)
    if kinds:
        kind = str(kinds[layer])
        if kind not in (*FULL, "sliding_attention", "linear_attention"):
            raise LookupError(f"attention is of an unknown kind, {kind}")
        return kind
    return "sliding_attention" if number(text, "sliding_window", default=0.0) else "full_attention"


def _windowed(window: int, read: float, computed: float, sums: Sums) -> None:
    sums.window = max(sums.window, window)
    sums.window_bytes += read
    sums.window_flops += computed


def _sparse(text: Any, read: float, computed: float, pooled: float, ratio: float, sums: Sums) -> None:
    """Each row's indexer looks at all keys, of `pooled` tokens each, and selects as many latents of `ratio`
    tokens; the indexer is the same on all devices."""
    index = number(text, "index_head_dim") / pooled
    sums.full_bytes += INDEX_BYTES * index
    sums.full_flops += 2 * number(text, "index_n_heads") * index
    sums.selected = max(sums.selected, int(number(text, "index_topk") * ratio))
    sums.selected_bytes += read / ratio
    sums.selected_flops += computed / ratio


def _compressed(
    text: Any, layer: int, hidden: float, heads: float, every: float, kv_bytes: float, sums: Sums
) -> None:
    """DeepSeek V4's: a window in every layer, and latents of `ratio` tokens each besides."""
    size, query = number(text, "head_dim"), number(text, "q_lora_rank")
    output = number(text, "o_lora_rank")
    sums.dense += hidden * (query + size) + query * every * size
    sums.dense += output * (every * size + number(text, "o_groups") * hidden)
    read, computed = kv_bytes * size, 4 * heads * size
    _windowed(int(number(text, "sliding_window")), read, computed, sums)
    ratios = text.compress_ratios
    ratio = float(ratios[layer]) if layer < len(ratios) else 1.0
    if ratio == SPARSE_RATIO:
        _sparse(text, read, computed, ratio, ratio, sums)
    elif ratio > 1:
        sums.full_bytes += read / ratio
        sums.full_flops += computed / ratio


def _linear(text: Any, hidden: float, parallel: Any, sums: Sums) -> None:
    """Gated delta nets and their kin: a state of keys times values for each head."""
    nested = getattr(text, "linear_attn_config", None)
    if isinstance(nested, Mapping):
        keys = values = float(nested["num_heads"])
        key = value = float(nested["head_dim"])
    else:
        values = number(text, "linear_num_value_heads", "linear_num_heads")
        keys = number(text, "linear_num_key_heads", "linear_num_heads")
        value = number(text, "linear_value_head_dim", "linear_head_dim")
        key = number(text, "linear_key_head_dim", "linear_head_dim")
    sums.dense += hidden * (2 * keys * key + 3 * values * value)
    sums.state += STATE_BYTES * values * value * key / number(parallel, "tensor_parallel_size")


def _mlp(model: Any, text: Any, layer: int, sums: Sums) -> None:
    hidden, experts = float(model.get_hidden_size()), float(model.get_num_experts())
    if not experts or not _routes(text, layer):
        sums.dense += (
            3 * hidden * number(text, "intermediate_size_mlp", "intermediate_size", "ffn_hidden_size")
        )
        return
    width = number(text, "moe_intermediate_size", "intermediate_size")
    shared = width * number(text, "n_shared_experts", "num_shared_experts", default=0.0)
    shared += number(text, "shared_expert_intermediate_size", default=0.0)
    sums.dense += hidden * (experts + 3 * shared)
    sums.experts += 3 * hidden * width * experts


def _routes(text: Any, layer: int) -> bool:
    """Whether a layer of a model with experts has them."""
    kinds = getattr(text, "mlp_layer_types", None)
    if kinds:
        return str(kinds[min(layer, len(kinds) - 1)]) == "sparse"
    if layer < number(text, "first_k_dense_replace", default=0.0):
        return False
    if layer in (getattr(text, "mlp_only_layers", None) or ()):
        return False
    often = getattr(text, "moe_layer_freq", None)
    if isinstance(often, (list, tuple)):
        return bool(often[layer])
    if isinstance(often, int) and often > 1:
        return layer % often == 0
    step = int(number(text, "decoder_sparse_step", "interleave_moe_layer_step", default=1.0))
    return (layer + 1) % step == 0
