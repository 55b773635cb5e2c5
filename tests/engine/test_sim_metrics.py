"""The simulated engine's exposition against the source of the vLLM that is installed."""

import ast
import importlib.util
from pathlib import Path

import pytest

from specpilot_engine.sim.arguments import Speculation
from specpilot_engine.sim.counters import Counters, VllmCollector
from specpilot_engine.sim.engine import Engine
from specpilot_engine.sim.truth import read_truth

KINDS = {"_counter_cls": "counter", "_gauge_cls": "gauge", "_histogram_cls": "histogram"}


@pytest.fixture(scope="module")
def v1() -> Path:
    """vLLM's `v1` package, here or in the cached environment of the engine tests."""
    spec = importlib.util.find_spec("vllm")
    found = [Path(p) for p in spec.submodule_search_locations or []] if spec else []
    found += (Path.home() / ".cache/specpilot/vllm/lib").glob("python3*/site-packages/vllm")
    assert found, "vLLM is not installed: run `make test`, which sets up the engine tests' environment."
    return found[0] / "v1"


def declared(*files: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name → (type, labels) of the metrics that vLLM's source creates."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for file in files:
        labels: dict[str, tuple[str, ...]] = {"labelnames": ("model_name", "engine")}
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name.endswith("labelnames") and (value := names(node.value, labels)):
                    labels[name] = value
            if isinstance(node, ast.Tuple) and len(node.elts) == 2:  # ("vllm:…", "documentation"), counters
                first = node.elts[0]
                if isinstance(first, ast.Constant) and str(first.value).startswith("vllm:"):
                    found[first.value] = ("counter", labels["labelnames"])
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                arguments = {k.arg: k.value for k in node.keywords}
                name_node, kind = arguments.get("name"), KINDS.get(node.func.attr)
                if kind and isinstance(name_node, ast.Constant):
                    found[name_node.value] = (kind, names(arguments["labelnames"], labels))
    return found


def names(node: ast.expr, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The label names an expression such as `labelnames + ["position"]` stands for; () if unclear."""
    if isinstance(node, ast.Name):
        return known.get(node.id, ())
    if isinstance(node, ast.BinOp):
        return names(node.left, known) + names(node.right, known)
    if isinstance(node, ast.List):
        return tuple(e.value for e in node.elts if isinstance(e, ast.Constant))
    return ()


def simulated() -> dict[str, tuple[str, tuple[str, ...], list[float]]]:
    engine = Engine(read_truth(None), 8, 64, Speculation(3))
    registry = VllmCollector(Counters(Speculation(3)), engine, "m").registry()
    return {
        f.name: (
            f.type,
            tuple(k for k in f.samples[0].labels if k != "le"),
            [float(s.labels["le"]) for s in f.samples if "le" in s.labels],
        )
        for f in registry.collect()
        if f.name.startswith("vllm:")
    }


def test_every_simulated_series_is_declared_so_in_vllm(v1: Path):
    real = declared(v1 / "metrics/loggers.py", v1 / "spec_decode/metrics.py")
    for name, (kind, labels, _) in simulated().items():
        assert real.get(name) == (kind, labels), name


def test_histograms_have_vllms_buckets(v1: Path):
    buckets = {}
    for node in ast.parse((v1 / "metrics/buckets.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Tuple):
            buckets[ast.unparse(node.target)] = list(ast.literal_eval(node.value))
    infinity = [float("inf")]
    series = simulated()
    for name, family in [
        ("inter_token_latency_seconds", "INTER_TOKEN_LATENCY_BUCKETS"),
        ("time_to_first_token_seconds", "TIME_TO_FIRST_TOKEN_BUCKETS"),
        ("e2e_request_latency_seconds", "REQUEST_LATENCY_BUCKETS"),
    ]:
        assert series[f"vllm:{name}"][2] == buckets[family] + infinity
