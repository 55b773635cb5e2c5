"""The shape of a model from vLLM's configuration: its numbers, and that nothing missing ever raises.

The names are those of vLLM's classes; tests/engine builds the real ones.
"""

import copy
from types import SimpleNamespace as Config

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot_engine.protocol import ModelShape, parse_shape
from specpilot_engine.shape import shape_of


class Model(Config):
    """vLLM's ModelConfig, as far as it is asked."""

    def get_hidden_size(self):
        return self.hf_text_config.hidden_size

    def get_vocab_size(self):
        return self.hf_text_config.vocab_size

    def get_head_size(self):
        return self.hf_text_config.head_dim

    def get_total_num_hidden_layers(self):
        return self.hf_text_config.num_hidden_layers

    def get_total_num_kv_heads(self):
        return self.hf_text_config.num_key_value_heads

    def get_num_kv_heads(self, parallel):
        return 1 if self.use_mla else max(1, self.get_total_num_kv_heads() // parallel.tensor_parallel_size)

    def get_num_attention_heads(self, parallel):
        return self.hf_text_config.num_attention_heads // parallel.tensor_parallel_size

    def get_num_experts(self):
        return getattr(self.hf_text_config, "n_routed_experts", 0)

    def get_num_experts_per_tok(self):
        return getattr(self.hf_text_config, "num_experts_per_tok", 0)


def model(mla=False, quantization=None, described=None, bytes_each=2, **text):
    text = Config(**text)
    return Model(
        hf_config=text,
        hf_text_config=text,
        model_arch_config=Config(quantization_config=described),
        quantization=quantization,
        dtype=Config(itemsize=bytes_each),
        use_mla=mla,
    )


def engine(target, method=None, draft=None, devices=1, ranks=1, cache="auto", **speculation):
    parallel = Config(tensor_parallel_size=devices, data_parallel_size=ranks)
    drafter = {"draft_model_config": draft, "draft_parallel_config": parallel, **speculation}
    return Config(
        model_config=target,
        parallel_config=parallel,
        cache_config=Config(cache_dtype=cache),
        device_config=Config(device_type="cpu"),
        speculative_config=Config(method=method, **drafter) if method else None,
    )


def dense(layers=2, **more):
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 100}
    return model(hidden_size=64, vocab_size=1000, num_hidden_layers=layers, **{**sizes, **more})


LAYER = 64 * 16 * (2 * 4 + 2 * 2) + 3 * 64 * 100  # parameters of one of its layers
HEAD = 64 * 1000
# As DeepSeek V3: latents of 32 + 8 numbers, one dense layer and two with 16 experts of which 2 compute.
EXPERTS = {
    "hidden_size": 64, "vocab_size": 1000, "num_hidden_layers": 3, "num_attention_heads": 4,
    "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "q_lora_rank": 48,
    "intermediate_size": 100, "moe_intermediate_size": 24, "n_routed_experts": 16, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip
LATENT = 48 * (64 + 4 * 24) + 64 * 40 + 32 * 4 * 32 + 4 * 16 * 64  # parameters of its attention
EXPERT = 3 * 64 * 24


def told(config) -> ModelShape:
    shape = shape_of(config)
    assert shape is not None
    return shape


def four(value):
    """To the digits that are exported."""
    return float(f"{value:.4g}")


def test_a_dense_model_and_its_draft_model():
    shape = told(engine(dense(), "draft_model", dense(1)))
    assert shape == ModelShape(
        weights=four(2 * (2 * LAYER + HEAD)),
        weight_flops=four(2 * (2 * LAYER + HEAD)),
        layers=2,
        device="cpu",
        full_bytes=2 * 2 * 2 * 2 * 16,  # layers, keys and values, bytes, heads, numbers
        full_flops=2 * 4 * 4 * 16,
        draft="autoregressive",
        draft_layers=1,
        draft_weights=four(2 * (LAYER + HEAD)),
        draft_flops=four(2 * (LAYER + HEAD)),
    )


def test_a_mixture_of_experts_with_latents_and_its_mtp_module():
    target = model(mla=True, quantization="fp8", **EXPERTS)
    shape = told(engine(target, "mtp", target))
    others = 3 * LATENT + 3 * 64 * 100 + 2 * (64 * 16 + EXPERT)
    assert (shape.experts, shape.routed, shape.layers) == (16, 2, 3)
    assert shape.weights == four(others + 2 * HEAD)
    assert shape.expert_weights == four(2 * 16 * EXPERT)
    assert shape.expert_flops == four(2 * 2 * 2 * EXPERT)
    assert (shape.full_bytes, shape.full_flops) == (3 * 2 * 40, 3 * 2 * 4 * 72)
    assert (shape.draft, shape.draft_layers) == ("autoregressive", 1)
    assert shape.draft_weights == four(LATENT + 64 * 16 + EXPERT + 2 * 64 * 64 + 2 * HEAD)
    assert shape.draft_expert_weights == four(16 * EXPERT)


def test_devices_share_heads_and_weights_but_not_latents_and_ranks_share_experts():
    target = model(mla=True, **EXPERTS)
    alone, shared = told(engine(target)), told(engine(target, devices=4, ranks=2))
    assert shared.weights == pytest.approx(alone.weights / 4, rel=1e-3)
    assert shared.expert_weights == pytest.approx(alone.expert_weights / 8, rel=1e-3)
    assert shared.expert_flops == pytest.approx(alone.expert_flops / 4, rel=1e-3)
    assert (shared.full_bytes, shared.full_flops) == (alone.full_bytes, alone.full_flops / 4)
    assert (shared.devices, shared.ranks, alone.exchanged) == (4, 2, 0)
    assert shared.exchanged == 8 * 3 * 64 * 3 / 4 + 3 * 3 * 64 * 2


def test_windows_by_layer_and_windows_everywhere():
    kinds = ["sliding_attention", "full_attention"]
    mixed = told(engine(dense(sliding_window=128, layer_types=kinds)))
    everywhere = told(engine(dense(sliding_window=128)))
    none = told(engine(dense(sliding_window=None)))
    assert (mixed.window, mixed.window_bytes, mixed.full_bytes) == (128, 128, 128)
    assert (everywhere.window_bytes, everywhere.full_bytes) == (256, 0)
    assert (none.window, none.full_bytes) == (0, 256)


def test_sparse_attention_has_an_indexer_that_sees_every_token():
    index = {"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
    shape = told(engine(model(mla=True, **EXPERTS, **index)))
    assert (shape.selected, shape.selected_bytes, shape.selected_flops) == (2048, 3 * 2 * 40, 3 * 2 * 4 * 72)
    assert (shape.full_bytes, shape.full_flops) == (3 * 128, four(3 * 2 * 64 * 128))


def test_compressed_attention_has_a_window_in_every_layer_and_latents_of_several_tokens():
    ratios = {"compress_ratios": [1, 4, 128], "head_dim": 32, "sliding_window": 128, "o_lora_rank": 16}
    index = {"index_topk": 512, "index_head_dim": 128, "index_n_heads": 64, "o_groups": 2}
    shape = told(engine(model(mla=True, **EXPERTS, **ratios, **index), cache="fp8"))
    assert (shape.window, shape.window_bytes) == (128, 3 * 32)
    assert (shape.selected, shape.selected_bytes) == (2048, 32 / 4)
    assert shape.full_bytes == 128 / 4 + 32 / 128


def test_linear_attention_keeps_a_state():
    sizes = {"linear_num_value_heads": 4, "linear_num_key_heads": 2}
    dims = {"linear_value_head_dim": 16, "linear_key_head_dim": 8}
    shape = told(engine(dense(layer_types=["linear_attention", "full_attention"], **sizes, **dims)))
    assert (shape.state_bytes, shape.full_bytes) == (8 * 4 * 16 * 8, 128)


@pytest.mark.parametrize(
    ("method", "more", "kind", "layers"),
    [
        ("eagle3", {}, "autoregressive", 1),
        ("eagle3", {"parallel_drafting": True}, "block", 1),
        ("dspark", {}, "block", 1),
        ("ngram", {}, "none", 0),
    ],
)
def test_what_a_drafter_computes_goes_by_its_method(method, more, kind, layers):
    shape = told(engine(dense(), method, dense(1), **more))
    assert (shape.draft, shape.draft_layers) == (kind, layers)


def test_a_block_drafter_inside_the_targets_checkpoint_has_layers_of_its_own():
    assert told(engine(dense(8), "dspark", dense(8))).draft_layers == 3
    assert told(engine(dense(8), "dspark", dense(8, n_mtp_layers=2))).draft_layers == 2


@pytest.mark.parametrize(
    ("quantization", "described", "size"),
    [
        (None, None, 2),
        ("fp8", {"quant_method": "fp8"}, 1),
        ("modelopt_fp4", {}, 4.25 / 8),
        ("gptq_marlin", {"bits": 8}, 1),
        ("awq", {"w_bit": 4}, 0.5),
        ("compressed-tensors", {"config_groups": {"group_0": {"weights": {"num_bits": 4}}}}, 0.5),
        ("a new one", {}, 2),
    ],
)
def test_a_weight_is_as_large_as_its_quantization_says(quantization, described, size):
    shape = told(engine(dense(quantization=quantization, described=described)))
    assert shape.weights == four(size * 2 * LAYER + 2 * HEAD)
    assert shape.weight_flops == four(2 * (2 * LAYER + HEAD))


def test_only_the_experts_of_some_are_quantized():
    shape = told(engine(model(mla=True, quantization="gpt_oss_mxfp4", **EXPERTS)))
    assert shape.expert_weights == four(2 * 16 * EXPERT * 4.25 / 8)
    assert shape.weights == four(2 * (3 * LATENT + 3 * 64 * 100 + 2 * (64 * 16 + EXPERT) + HEAD))


@pytest.mark.parametrize(
    "config",
    [
        engine(dense(layer_types=["full_attention", "mamba"])),
        engine(dense(hybrid_override_pattern="M*-")),
        engine(dense(intermediate_size=None)),
        engine(dense(), "medusa", dense(1)),
        engine(model(mla=True, **{**EXPERTS, "num_experts_per_tok": 0})),
        Config(),
        None,
    ],
    ids=[
        "another layer",
        "another description",
        "no width",
        "another drafter",
        "no routing",
        "empty",
        "none",
    ],
)
def test_what_is_not_understood_has_no_shape(config):
    assert shape_of(config) is None


@given(st.data())
def test_whatever_is_missing_or_odd_nothing_raises(data):
    index = {"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64, "mlp_layer_types": ["sparse"]}
    config = engine(model(mla=True, **EXPERTS, **index), "eagle", dense(1))
    holder = copy.deepcopy(config)
    parts = [holder, holder.model_config, holder.parallel_config, holder.speculative_config]
    parts += [holder.model_config.hf_text_config, holder.speculative_config.draft_model_config.hf_text_config]
    part = data.draw(st.sampled_from(parts))
    name = data.draw(st.sampled_from(sorted(vars(part))))
    if data.draw(st.booleans()):
        delattr(part, name)
    else:
        odd = st.sampled_from([None, -1, 0, "x", [], {}, [1, 2], 1e300, float("nan"), True])
        setattr(part, name, data.draw(odd))
    shape = shape_of(holder)
    assert shape is None or parse_shape(shape.labels()) == shape


@given(
    st.dictionaries(
        st.sampled_from(["weights", "weight_flops", "layers", "experts", "draft", "pod"]), st.text()
    )
)
def test_labels_of_any_text_make_a_shape_or_none(labels):
    shape = parse_shape(labels)
    assert shape is None or shape.weights > 0
