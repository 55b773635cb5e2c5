"""Run by vLLM's own Python: which decode steps get a graph, by vLLM's own capture and dispatch code.

Standard input is a JSON list of cases, standard output the answers. The configurations hold only what
`_set_cudagraph_sizes`, `_init_candidates`, `dispatch` and the first runner's dispatcher read.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace as Config
from typing import Any

from vllm.config.compilation import CompilationMode, CUDAGraphMode
from vllm.config.vllm import VllmConfig
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

FULL = CUDAGraphMode.FULL


def configured(case: dict[str, Any]) -> Any:
    speculation = Config(
        num_speculative_tokens_per_batch_size=case["schedule"],
        uses_dynamic_speculative_decoding=lambda: case["schedule"] is not None,
    )
    compilation = Config(
        cudagraph_capture_sizes=case["sizes"],
        max_cudagraph_capture_size=None,
        cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE,
        mode=CompilationMode.VLLM_COMPILE,
        splitting_ops=None,
        compile_sizes=[],
        is_attention_compiled_piecewise=lambda: True,
        post_init_cudagraph_sizes=lambda: None,
    )
    config = Config(
        speculative_config=speculation,
        compilation_config=compilation,
        scheduler_config=Config(max_num_seqs=case["seqs"], max_num_batched_tokens=case["tokens"]),
        num_speculative_tokens=case["k"],
        uniform_decode_query_len=case["k"] + 1,
        model_config=Config(enforce_eager=False),
        performance_mode="balanced",
        cache_config=Config(use_kda_recoverssm=False),
        parallel_config=Config(data_parallel_size=1),
        lora_config=None,
    )
    VllmConfig._set_cudagraph_sizes(config)
    return config


def second_runner(config: Any, case: dict[str, Any]) -> CudaGraphManager:
    manager = object.__new__(CudaGraphManager)
    manager.vllm_config, manager.compilation_config = config, config.compilation_config
    manager.max_num_reqs, manager.decode_query_len = case["seqs"], case["k"] + 1
    manager.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE
    manager.varlen_decode, manager.ubatch_runner = case.get("adaptive", False), None
    manager.lora_capture_cases, manager._lora_dispatch_map, manager._max_lora_case = [0], {}, 0
    manager._candidates, manager._capture_descs = {}, {}
    manager._init_candidates()
    manager._graphs_captured = True
    return manager


def first_runner(config: Any) -> CudagraphDispatcher:
    config.compilation_config.cudagraph_mode = CUDAGraphMode.PIECEWISE
    dispatcher = CudagraphDispatcher(config)
    dispatcher.initialize_cudagraph_keys(CUDAGraphMode.PIECEWISE, config.uniform_decode_query_len)
    return dispatcher


def answer(case: dict[str, Any]) -> dict[str, Any]:
    config = configured(case)
    manager = second_runner(config, case)
    batches = range(1, case["seqs"] + 1)
    full = {
        k: [b for b in batches if manager.dispatch(b, b * (k + 1), k + 1, 0, k + 1).cg_mode == FULL]
        for k in case["depths"]
    }
    graphs = len(manager._capture_descs.get(FULL, []))
    dispatcher = first_runner(config)
    piecewise = {
        k: [b for b in batches if dispatcher.dispatch(b * (k + 1))[0] == CUDAGraphMode.PIECEWISE]
        for k in case["depths"]
    }
    return {
        "full": full,
        "piecewise": piecewise,
        "graphs": graphs,
        "sizes": list(config.compilation_config.cudagraph_capture_sizes),
    }


print(json.dumps([answer(case) for case in json.load(sys.stdin)]))
