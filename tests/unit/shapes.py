"""Shapes of models for the tests, from their published sizes."""

from __future__ import annotations

from dataclasses import replace

from specpilot_engine.protocol import ModelShape

# 8B parameters at 16 bits with 32 layers of full attention (8 KV heads of 128), and an EAGLE head.
DENSE = ModelShape(
    weights=15e9,
    weight_flops=15e9,
    layers=32,
    device="cuda",
    device_name="NVIDIA H100 80GB HBM3",
    full_bytes=131072.0,
    full_flops=524288.0,
    draft="autoregressive",
    draft_layers=1,
    draft_weights=1.4e9,
    draft_flops=1.4e9,
)
# 106B parameters at 8 bits, 128 experts of which 8 are routed to.
MOE = replace(
    DENSE,
    weights=6e9,
    weight_flops=10e9,
    layers=46,
    experts=128,
    routed=8,
    expert_weights=100e9,
    expert_flops=12.5e9,
    draft_weights=1e9,
    draft_flops=1.5e9,
    draft_expert_weights=2.2e9,
)
# Of DeepSeek V3.2's kind: 61 layers, latents of 576 numbers, 2,048 of them selected by an indexer of 64 heads.
SPARSE = replace(
    DENSE,
    full_bytes=61 * 128.0,
    full_flops=61 * 2.0 * 64 * 128,
    selected=2048,
    selected_bytes=61 * 2 * 576.0,
    selected_flops=61 * 2.0 * 16 * 1088,
)
# DeepSeek V4-Pro on 8 B300, as the published figure has it: 1.6T parameters, of which 49B compute for a row.
# How many layers see a context in which way, and the drafter's three layers, are taken from V4's code.
_LAYERS, _HIDDEN, _WIDTH = 61, 7168, 3072
_EXPERT = 3.0 * _HIDDEN * _WIDTH * _LAYERS  # parameters of one in each layer
_OTHERS = 49e9 - 6 * _EXPERT
V4_PRO = ModelShape(
    weights=_OTHERS / 8,
    weight_flops=2 * _OTHERS / 8,
    layers=_LAYERS,
    devices=8,
    exchanged=8.0 * _LAYERS * _HIDDEN * 7 / 8,
    device="cuda",
    device_name="NVIDIA B300",
    experts=384,
    routed=6,
    expert_weights=384 * _EXPERT * 0.53 / 8,
    expert_flops=2 * 6 * _EXPERT / 8,
    full_bytes=_LAYERS / 2 * (128 / 4 + 512 / 128),
    full_flops=_LAYERS / 2 * 2 * 64 * 128 / 4,
    window=128,
    window_bytes=_LAYERS * 512.0,
    window_flops=_LAYERS * 4.0 * 16 * 512,
    selected=2048,
    selected_bytes=_LAYERS / 2 * 512 / 4,
    selected_flops=_LAYERS / 2 * 4 * 16 * 512 / 4,
    draft="block",
    draft_layers=3,
    draft_weights=(3 * _OTHERS / _LAYERS + 2.0 * _HIDDEN * 129280) / 8,
    draft_flops=(6 * _OTHERS / _LAYERS + 2.0 * _HIDDEN * 129280) / 8,
    draft_expert_weights=384 * _EXPERT * 0.53 / 8 * 3 / _LAYERS,
)
# The pair measured on two CPU cores: 155M and 17M parameters at 16 bits.
LAB_SHAPE = ModelShape(
    weights=0.31e9,
    weight_flops=0.31e9,
    layers=12,
    device="cpu",
    draft="autoregressive",
    draft_layers=1,
    draft_weights=0.034e9,
    draft_flops=0.034e9,
)
