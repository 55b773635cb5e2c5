"""The policies of other engines, written from their own descriptions, to be replayed beside ours."""

from __future__ import annotations

from collections.abc import Callable

from specpilot.replay.peers.sglang_ema import AcceptLengthEma, aggressive
from specpilot.replay.peers.sglang_throughput import ThroughputAware
from specpilot.replay.peers.vllm_adaptive_k import AdaptiveK, capped
from specpilot.replay.peers.vllm_static import StaticSchedule
from specpilot.replay.policy import Policy

PEERS: dict[str, Callable[[], Policy]] = {
    "sglang-ema": AcceptLengthEma,
    "sglang-ema-aggressive": aggressive,
    "sglang-throughput": ThroughputAware,
    "vllm-adaptive-k": AdaptiveK,
    "vllm-adaptive-k-capped": capped,
    "vllm-static": StaticSchedule,
}
