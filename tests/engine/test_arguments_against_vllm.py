"""The rendered command line, read by vLLM's own parser and configuration classes of both versions."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.engine.warm import Warm
from tests.setup import models, vllm

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.decide.arm import Arm, Kind
from specpilot.plan.arguments import SCHEDULER, arguments, capture_sizes, speculates, speculative_config
from specpilot.plan.arms import arms
from specpilot.plan.limits import limits

pytestmark = pytest.mark.xdist_group("vllm-code")

SNAPSHOTS = Path(__file__).parents[1] / "unit/snapshots"
CASES = {
    path.name.removesuffix(".in.yaml"): SpeculativeDeploymentSpec.model_validate(
        yaml.safe_load(path.read_text())["spec"]
    )
    for path in sorted(SNAPSHOTS.glob("*.in.yaml"))
}
DRAIN = 77


Case = tuple[SpeculativeDeploymentSpec, Arm | None]


def understood(code: Warm, cases: Iterable[Case], whole: bool = False) -> list[dict[str, Any]]:
    lines = [{"line": arguments(spec, DRAIN, arm, capped=True), "whole": whole} for spec, arm in cases]
    said = code.run("vllm_arguments_probe.py", given=json.dumps(lines))
    answers: list[dict[str, Any]] = json.loads(said.splitlines()[-1])
    return answers


@pytest.fixture(scope="module", params=[vllm.VERSION, vllm.NEWEST])
def parsed(request: pytest.FixtureRequest, code: Callable[[str], Warm]) -> dict[str, dict[str, Any]]:
    """Case → what vLLM understood."""
    specs = [(spec, None) for spec in CASES.values()]
    return dict(zip(CASES, understood(code(request.param), specs), strict=True))


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


@pytest.mark.parametrize("version", [vllm.VERSION, vllm.NEWEST])
def test_every_arm_is_a_command_line_that_means_it(code: Callable[[str], Warm], version: str) -> None:
    cases = [(spec, arm) for spec in CASES.values() if speculates(spec) for arm in arms(spec, 8000)]
    assert {arm.kind for _, arm in cases} == set(Kind)
    for (spec, arm), got in zip(cases, understood(code(version), cases), strict=True):
        drafts = {} if arm.kind is Kind.NONE else speculative_config(spec, arm, capped=True)
        assert got["speculation"] == drafts, arm
        assert got["scheduler"] == SCHEDULER
        assert (got["sizes"] or []) == list(capture_sizes(spec, arm))


def test_the_engine_takes_the_configuration_and_drafts_by_our_schedule(
    code: Callable[[str], Warm], tiny_models: Callable[..., models.TinyModels]
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
    got = understood(code(vllm.VERSION), [(spec, None) for spec in specs], whole=True)
    effective = [answer["effective"] for answer in got]
    assert [e["method"] for e in effective] == ["ngram", "draft_model"]
    assert effective[1]["model"] == str(tiny.draft)
    for engine in effective:
        assert engine["tokens"] == 5
        assert engine["lookup"] == [0, *[1] * 13, 5, 3, 0]
        assert engine["scheduler"] == SCHEDULER
