"""Every name by which the engine package reads a model's shape stands in vLLM's own source, of both versions."""

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.setup import vllm

from specpilot_engine import layers, shape

READS = ("getattr", "number")  # calls that are given the names of attributes
ASKED = {
    "config/model.py": {
        "get_hidden_size", "get_head_size", "get_vocab_size", "get_total_num_hidden_layers",
        "get_total_num_kv_heads", "get_num_kv_heads", "get_num_attention_heads", "get_num_experts",
        "get_num_experts_per_tok", "use_mla", "hf_config", "hf_text_config", "model_arch_config", "dtype",
        "quantization",
    },
    "config/model_arch.py": {"quantization_config"},
    "config/parallel.py": {"tensor_parallel_size", "data_parallel_size"},
    "config/cache.py": {"cache_dtype"},
    "config/device.py": {"device_type"},
    "config/speculative.py": {
        "method", "draft_model_config", "draft_parallel_config", "parallel_drafting",
    },
    "config/vllm.py": {
        "model_config", "parallel_config", "cache_config", "device_config", "speculative_config",
    },
    "platforms/cuda.py": {"get_device_name", "NonNvmlCudaPlatform"},
}  # fmt: skip


@pytest.fixture(scope="module", params=[vllm.VERSION, vllm.NEWEST])
def source(request: pytest.FixtureRequest) -> Path:
    """The package `vllm` of one version."""
    if request.param == vllm.NEWEST:
        return Path(vllm.provide_newest()) / "vllm"
    (found,) = vllm.provide().venv.glob("lib/python3*/site-packages/vllm")
    return found


def defined(file: Path) -> set[str]:
    """Names of the classes, methods, annotated fields and attributes that are set in a file."""
    kinds = (ast.ClassDef, ast.FunctionDef)
    nodes = list(ast.walk(ast.parse(file.read_text())))
    fields = {n.target.id for n in nodes if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    fields |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    return fields | {n.name for n in nodes if isinstance(n, kinds)}


@pytest.mark.parametrize("file", ASKED)
def test_vllms_classes_have_what_they_are_asked_for(source: Path, file: str) -> None:
    assert ASKED[file] - defined(source / file) == set()


def read_names() -> set[str]:
    """What is read from a checkpoint's configuration, and from vLLM's where it may be missing."""
    found: set[str] = set(layers.OTHER_BLOCKS)
    for module in (layers, shape):
        for node in ast.walk(ast.parse(Path(module.__file__ or "").read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READS:
                given = [a.value for a in node.args[1:3] if isinstance(a, ast.Constant)]
                found |= {name for name in given if isinstance(name, str) and name != "fp4"}
    return found


def unknown(names: Iterable[str], folder: Path) -> set[str]:
    left = set(names)
    for file in folder.rglob("*.py"):
        text = file.read_text(errors="replace")
        left = {name for name in left if f".{name}" not in text and f'"{name}"' not in text}
        if not left:
            break
    return left


def test_vllm_itself_reads_each_name_from_a_models_configuration(source: Path) -> None:
    names = read_names()
    assert {"kv_lora_rank", "moe_intermediate_size", "index_topk", "compress_ratios", "layer_types"} <= names
    assert unknown(names, source) == set()


def test_every_method_of_drafting_and_kind_of_quantization_that_is_told_apart_exists(source: Path) -> None:
    methods = {*shape.AUTOREGRESSIVE, *shape.BLOCK, *shape.NOTHING}
    assert unknown(methods, source / "config") == set()
    quantized = {"mxfp4", "gpt_oss_mxfp4", "experts_int8", "deepseek_v4_fp8", "modelopt"}
    assert unknown(quantized, source / "model_executor/layers/quantization") == set()
    assert unknown({*layers.FULL, "linear_attention", "sliding_attention"}, source) == set()
