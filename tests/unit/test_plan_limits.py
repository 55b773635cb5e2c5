"""Reading the user's arguments in the spellings vLLM takes, and the limits that follow."""

from typing import Any

import pytest

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.plan import flags
from specpilot.plan.limits import Limits, limits, runs_on_cpu


def spec(args: list[str], image: str = "vllm/vllm-openai:v0.33.0", **more: Any) -> SpeculativeDeploymentSpec:
    engine = {"image": image, "args": args, **more.pop("engine", {})}
    return SpeculativeDeploymentSpec.model_validate({"model": {"name": "m"}, "engine": engine, **more})


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--max-num-seqs", "64"], 64),
        (["--max-num-seqs=64"], 64),
        (["--max_num_seqs", "64"], 64),
        (["--max-num-seqs", "1k"], 1000),
        (["--max-num-seqs", "1K"], 1024),
        (["--max-num-seqs", "1.5k"], 1500),
        (["--max-num-seqs", "8", "--max-num-seqs", "16"], 16),
        (["--max-num-s", "64"], 64),
        (["--max-num-batched-tokens", "64"], None),
        (["--max-num-seqs-of-others", "64"], None),
        (["--max-num-seqs", "auto"], None),
        (["--max-num-seqs", "-1"], None),
        (["--max-num-seqs"], None),
        (["--other", "64"], None),
        (["--max-num-seqs", "1e99"], None),
        (["--max-num-seqs", "inf"], None),
        (["--max-num-seqs", "9" * 400], None),
        (["--max-num-seqs", " 64\n"], 64),
        (["--max-num-seqs", "1.5"], None),
        ([], None),
    ],
)
def test_a_count_is_read_in_every_spelling(args: list[str], expected: int | None) -> None:
    assert flags.integer(flags.parse(args), "--max-num-seqs") == expected


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--enforce-eager"], True),
        (["--enforce-eager", "--no-enforce-eager"], False),
        (["--enforce_eager=false"], False),
        (["--enforce"], True),
        (["--enforce-eager", "--no-enforce"], False),
        ([], False),
    ],
)
def test_a_switch_is_read_as_argparse_reads_it(args: list[str], expected: bool) -> None:
    assert flags.enabled(flags.parse(args), "--enforce-eager") is expected


def test_a_json_argument_is_read_whole_and_by_dotted_parts() -> None:
    args = ["-cc", '{"mode": 3, "cudagraph_mode": "NONE"}', "--compilation_config.mode", "2"]
    assert flags.mapping(flags.parse(args), "--compilation-config") == {"mode": 2, "cudagraph_mode": "NONE"}
    assert flags.mapping(flags.parse(["-cc", "nonsense"]), "--compilation-config") == {}


def test_unknown_limits_are_bounds_that_hold_on_every_device() -> None:
    assert limits(spec([])) == Limits(256, 1024, 2048, None, 512)


@pytest.mark.parametrize(
    ("args", "eager"),
    [
        (["-O0"], True),
        (["-O", "0"], True),
        (["-O=0"], True),
        (["--optimization-level", "0"], True),
        (["--optimization_level=2"], False),
        (["-O1"], False),
        (["-O0", "-O2"], False),
        (["-O0", "-cc.cudagraph_mode", "FULL"], False),
        (["-O2", "-cc.cudagraph_mode", "none"], True),
    ],
)
def test_an_engine_that_optimizes_nothing_captures_no_graphs(args: list[str], eager: bool) -> None:
    assert (limits(spec(args)).capture_cap == 0) is eager


def test_given_limits_are_taken() -> None:
    args = ["--max-num-seqs", "64", "--max-num-batched-tokens", "300", "--max-model-len", "32k"]
    assert limits(spec(args)) == Limits(64, 64, 300, 32000, 300)


@pytest.mark.parametrize(
    "args",
    [
        ["--enforce-eager"],
        ["-cc.cudagraph_mode", "NONE"],
        ["--compilation-config", '{"cudagraph_mode": "none"}'],
    ],
)
def test_engines_that_run_eagerly_have_no_graphs(args: list[str]) -> None:
    assert limits(spec(args)).capture_cap == 0


def test_a_cpu_engine_has_its_own_defaults_and_no_graphs() -> None:
    cpu = spec(
        [], engine={"env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"}]}, parallelism={"tensor": 2}
    )
    assert limits(cpu) == Limits(256, 256, 4096, None, 0)
    entry = {"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"}
    template = {"spec": {"containers": [{"name": "vllm", "env": [entry]}]}}
    assert runs_on_cpu(spec([], podTemplate=template))
    for odd in ({}, {"spec": None}, {"spec": {"containers": [{"name": "vllm", "env": "x"}]}}):
        assert not runs_on_cpu(spec([], podTemplate=odd))
    assert runs_on_cpu(spec([], "localhost/vllm-cpu:v0.32.0"))
    assert not runs_on_cpu(spec([], "registry/vllm-openai:v0.33.0"))


@pytest.mark.parametrize(
    ("product", "cap"), [("NVIDIA-GB300-NVL", 1024), ("NVIDIA-H200", 512), ("RTX-PRO-B2000", 512)]
)
def test_the_capture_cap_follows_the_device_that_placement_names(product: str, cap: int) -> None:
    term = {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": [product]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    placed = spec(["--max-num-batched-tokens", "8192"], podTemplate={"spec": {"affinity": affinity}})
    assert limits(placed).capture_cap == cap


def test_batches_that_no_grid_holds_are_not_looked_at() -> None:
    assert limits(spec(["--max-num-seqs", "100000000"])).widest_batch == 4096
