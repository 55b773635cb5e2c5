"""The graph map against vLLM's own capture and dispatch code, run on this machine's CPU in a process of its own."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specpilot.plan.graphs import Graphs, captured, plan_captures

CACHE = Path.home() / ".cache/specpilot"
PYTHON = CACHE / "vllm/bin/python"
TREES = {"0.32": None, "0.33": CACHE / "vllm33"}

# Fills in only what `_set_cudagraph_sizes`, `_init_candidates` and `dispatch` read; the methods are vLLM's.
PROBE = """
import json, sys
from types import SimpleNamespace as Config
from vllm.config.compilation import CompilationMode, CUDAGraphMode
from vllm.config.vllm import VllmConfig
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

FULL = CUDAGraphMode.FULL


def configured(case):
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


def second_runner(config, case):
    manager = object.__new__(CudaGraphManager)
    manager.vllm_config, manager.compilation_config = config, config.compilation_config
    manager.max_num_reqs, manager.decode_query_len = case["seqs"], case["k"] + 1
    manager.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE
    manager.varlen_decode, manager.ubatch_runner = False, None
    manager.lora_capture_cases, manager._lora_dispatch_map, manager._max_lora_case = [0], {}, 0
    manager._candidates, manager._capture_descs = {}, {}
    manager._init_candidates()
    manager._graphs_captured = True
    return manager


def first_runner(config):
    config.compilation_config.cudagraph_mode = CUDAGraphMode.PIECEWISE
    dispatcher = CudagraphDispatcher(config)
    dispatcher.initialize_cudagraph_keys(CUDAGraphMode.PIECEWISE, config.uniform_decode_query_len)
    return dispatcher


def answer(case):
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
"""

DEPTHS = [(0, 1, 3, 7), (0, 1, 3, 5, 7), (0, 7), (0, 2, 4), (0, 1, 2, 4), (0, 3), tuple(range(8))]
SEQS = [1, 3, 8, 100, 250, 256, 1024]


def startup(depths: tuple[int, ...], seqs: int, wide: int = 1) -> list[list[int]]:
    """One wide row and one each for the others at the top, as many as fit."""
    others = [k for k in depths if k != wide][: seqs - 1]
    first = seqs - len(others)
    return [[1, first, wide], *([first + i, first + i, k] for i, k in enumerate(others, 1))]


def planned_case(depths: tuple[int, ...], seqs: int, cap: int = 512) -> dict[str, Any]:
    schedule = startup(depths, seqs, depths[1])
    used = tuple(sorted({k for _, _, k in schedule}))
    sizes = list(plan_captures(used, (seqs,), cap))
    case = {"schedule": schedule, "sizes": sizes, "seqs": seqs, "tokens": 8192, "k": depths[-1]}
    return {**case, "depths": list(used), "cap": cap}


@cache
def vllm_says(version: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(cases, vLLM's answers): planned sizes first, then vLLM's own default sizes."""
    assert PYTHON.exists(), "vLLM is not installed: run `make test`, which sets up the engine tests."
    cases = [planned_case(depths, seqs) for depths in DEPTHS for seqs in SEQS]
    cases += [planned_case(depths, 1024, 1024) for depths in DEPTHS]
    wide = [[1, 252, 3], [253, 253, 0], [254, 254, 1], [255, 255, 5], [256, 256, 7]]
    cases.append({**planned_case((0, 1, 3, 5, 7), 256), "sizes": None, "schedule": wide})
    static = {"schedule": None, "sizes": None, "seqs": 256, "tokens": 8192, "k": 7, "depths": [7], "cap": 512}
    cases.append(static)
    tree = TREES[version]
    env = {**os.environ, "PYTHONPATH": str(tree) if tree else "", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(
        [str(PYTHON), "-c", PROBE],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return cases, json.loads(done.stdout.splitlines()[-1])


def graph_map(case: dict[str, Any], sizes: list[int]) -> Graphs:
    return captured(sizes, case["depths"], case["seqs"], case["k"])


@pytest.fixture(params=list(TREES))
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_hits_and_counts_are_vllms(version: str) -> None:
    for case, answer in zip(*vllm_says(version), strict=True):
        graphs = graph_map(case, answer["sizes"])
        ours = {str(k): [b for b in range(1, case["seqs"] + 1) if graphs.hit(k, b)] for k in case["depths"]}
        assert ours == answer["full"], case
        assert graphs.total == answer["graphs"], case


def test_planned_sizes_are_taken_as_they_are(version: str) -> None:
    for case, answer in zip(*vllm_says(version), strict=True):
        if case["sizes"] is not None:
            assert answer["sizes"] == case["sizes"], case


def test_planned_sizes_leave_no_batch_without_a_full_graph(version: str) -> None:
    for case, answer in zip(*vllm_says(version), strict=True):
        if case["sizes"] is not None and len(case["depths"]) < 8:
            for k in case["depths"]:
                expected = [b for b in range(1, case["seqs"] + 1) if b * (k + 1) <= case["cap"]]
                assert answer["full"][str(k)] == expected, (case, k)


def test_where_full_graphs_are_hit_the_first_runner_hits_piecewise_ones(version: str) -> None:
    for case, answer in zip(*vllm_says(version), strict=True):
        for k in case["depths"]:
            assert set(answer["full"][str(k)]) <= set(answer["piecewise"][str(k)]), (case, k)


def test_defaults_of_vllm_lose_the_graphs_that_planning_keeps(version: str) -> None:
    cases, answers = vllm_says(version)
    default = answers[-2]
    lost = {k: 256 - len(default["full"][str(k)]) for k in (0, 1)}
    assert cases[-2]["sizes"] is None
    assert all(count > 0 for count in lost.values())
    if version == "0.33":
        assert lost == {0: 61, 1: 47}
        assert 85 - len(default["full"]["5"]) == 31
        assert default["graphs"] == 240
        assert answers[-1]["graphs"] == 48
