"""The world that is simulated when nothing is said."""

from __future__ import annotations

from typing import Any

from specpilot_engine.acceptance import OUTRIGHT

# Throughput that vLLM published for DeepSeek V4-Pro on eight B300 (adaptive-verification post,
# Figure 3), tokens/s by draft depth (rows 0, 1, 3, 5, 7) and concurrency. The figure does not give
# survival; "mixed" is a curve under which every step time is plausible: rising with depth and batch.
_BATCHES = [1, 16, 32, 64, 128, 256]
_TOKENS_PER_SECOND = {
    0: [101, 1124, 1664, 2774, 4406, 6323],
    1: [153, 1408, 2384, 3864, 5912, 8619],
    3: [231, 1906, 3112, 4856, 7402, 9728],
    5: [251, 1939, 3071, 4931, 6846, 8766],
    7: [251, 1878, 2939, 4611, 6250, 7609],
}
_MIXED = [0.80, 0.66, 0.56, 0.43, 0.35, 0.28, 0.23]


def _step_times_ms() -> list[list[float]]:
    """Goodput = batch · accepted length / step time, solved for the step time."""
    return [
        [
            round(1e3 * batch * (1 + sum(_MIXED[:depth])) / rate, 2)
            for batch, rate in zip(_BATCHES, rates, strict=True)
        ]
        for depth, rates in _TOKENS_PER_SECOND.items()
    ]


DEFAULT_TRUTH: dict[str, Any] = {
    "depths": list(_TOKENS_PER_SECOND),
    "batches": _BATCHES,
    "step_time_ms": _step_times_ms(),
    # The other kinds are made up so that the best depth moves with the traffic: about 3 for chat,
    # 7 for code and 0 or 1 for prose.
    "traffic": {
        "mixed": {"survival": _MIXED},
        "chat": {"survival": [0.62, 0.40, 0.25, 0.15, 0.09, 0.055, 0.03]},
        "code": {"survival": [0.90, 0.82, 0.75, 0.67, 0.60, 0.54, 0.49]},
        "prose": {"survival": [0.42, 0.18, 0.08, 0.03, 0.015, 0.008, 0.004]},
    },
    "outright_share": OUTRIGHT,
    "schedule_overhead": 0.0,
    "prefill_ms_per_token": 0.01,
    "startup_seconds": 1.0,
    "grace_seconds": 25.0,
    "step_noise": 0.03,
    "seed": 0,
    "time_scale": 1.0,
}
