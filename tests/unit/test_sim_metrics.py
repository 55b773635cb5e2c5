"""What the simulated engine exposes has vLLM's names, types and labels."""

from specpilot_engine.sim.arguments import Speculation
from specpilot_engine.sim.counters import Counters, VllmCollector
from specpilot_engine.sim.engine import Engine
from specpilot_engine.sim.truth import read_truth

BASE = ("model_name", "engine")
# Recorded from vLLM 0.32.0, v1/metrics/loggers.py and v1/spec_decode/metrics.py; the engine tests hold
# the simulated exposition against the source itself.
RECORDED = {
    "vllm:num_requests_running": ("gauge", BASE),
    "vllm:num_requests_waiting": ("gauge", BASE),
    "vllm:num_preemptions": ("counter", BASE),
    "vllm:prompt_tokens": ("counter", BASE),
    "vllm:generation_tokens": ("counter", BASE),
    "vllm:request_success": ("counter", (*BASE, "finished_reason")),
    "vllm:time_to_first_token_seconds": ("histogram", BASE),
    "vllm:inter_token_latency_seconds": ("histogram", BASE),
    "vllm:e2e_request_latency_seconds": ("histogram", BASE),
    "vllm:spec_decode_num_drafts": ("counter", BASE),
    "vllm:spec_decode_num_draft_tokens": ("counter", BASE),
    "vllm:spec_decode_num_accepted_tokens": ("counter", BASE),
    "vllm:spec_decode_num_accepted_tokens_per_pos": ("counter", (*BASE, "position")),
}


def exposed(speculation: Speculation | None) -> dict[str, tuple[str, tuple[str, ...]]]:
    engine = Engine(read_truth(None), 8, 64, speculation)
    collector = VllmCollector(Counters(speculation), engine, "m")
    return {
        family.name: (family.type, tuple(k for k in family.samples[0].labels if k != "le"))
        for family in collector.registry().collect()
        if family.name.startswith("vllm:")
    }


def test_names_types_and_labels_are_vllms():
    assert exposed(Speculation(3)) == RECORDED


def test_without_speculation_its_series_are_absent_as_in_vllm():
    assert exposed(None) == {k: v for k, v in RECORDED.items() if "spec_decode" not in k}


def test_every_position_and_finish_reason_is_there_from_the_start():
    speculation = Speculation(3)
    engine = Engine(read_truth(None), 8, 64, speculation)
    registry = VllmCollector(Counters(speculation), engine, "m").registry()
    base = {"model_name": "m", "engine": "0"}
    for position in range(3):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        assert registry.get_sample_value(name, base | {"position": str(position)}) == 0
    for reason in ("stop", "length", "abort", "error", "repetition"):
        name = "vllm:request_success_total"
        assert registry.get_sample_value(name, base | {"finished_reason": reason}) == 0
