"""What Python says about good and bad objects; the cluster tests ask the API server the same."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.validate import Problem, Severity, errors, problems, validate
from specpilot.api.versions import OLDEST, engine_version, tag
from specpilot.api.vocabulary import Reason
from specpilot.control.read import parse

TABLES = yaml.safe_load(Path(__file__).with_name("api_objects.yaml").read_text())
VALID: dict[str, Any] = {
    "apiVersion": "specpilot.io/v1alpha1",
    "kind": "SpeculativeDeployment",
    "metadata": {"name": "flash"},
    "spec": {
        "model": {"name": "org/model"},
        "engine": {"image": "vllm/vllm-openai:v0.33.0"},
        "speculation": {"method": "DSpark"},
    },
}


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    body = copy.deepcopy(VALID)
    for path, value in changes.items():
        *parents, last = path.split(".")
        target = body
        for name in parents:
            target = target.setdefault(name, {})
        if value is None:
            del target[last]
        else:
            target[last] = value
    return body


def spec(**engine: str) -> SpeculativeDeploymentSpec:
    return SpeculativeDeploymentSpec.model_validate({"model": {"name": "m"}, "engine": engine})


@pytest.mark.parametrize("case", TABLES["refused"], ids=lambda case: case["what"])
def test_a_bad_object_is_refused_with_its_field_and_the_fix(case: dict[str, Any]) -> None:
    found = problems(changed(case["set"]))
    assert any(p.field.startswith(case["field"]) for p in found), found
    assert all(p.severity == Severity.ERROR and p.field in p.message for p in found if "says" not in case)
    assert any(case.get("says", "") in p.message for p in found), found


@pytest.mark.parametrize("case", TABLES["accepted"], ids=lambda case: case["what"])
def test_a_good_object_is_accepted(case: dict[str, Any]) -> None:
    assert problems(changed(case["set"])) == []


def test_another_kind_is_refused() -> None:
    [problem] = problems({**VALID, "kind": "Deployment"})
    assert problem.message == (
        "apiVersion and kind must be specpilot.io/v1alpha1 and SpeculativeDeployment: correct them"
    )


def test_every_wrong_shape_is_named_at_once() -> None:
    found = problems(changed({"spec.replicas": -1, "spec.tuning": {"dwell": "soon", "mode": "On"}}))
    assert [p.field for p in found] == ["spec.replicas", "spec.tuning.mode", "spec.tuning.dwell"]
    assert found[2].message == (
        "spec.tuning.dwell must be a duration such as 30s, 2m or 40ms, not 'soon': correct it"
    )


def test_a_date_in_yaml_is_a_problem_and_no_crash() -> None:
    [problem] = problems(
        yaml.safe_load(
            "{apiVersion: specpilot.io/v1alpha1, kind: SpeculativeDeployment, spec: {x: 2026-01-01}}"
        )
    )
    assert problem.field == "spec.x"
    [problem] = problems(changed({"spec.model.name": yaml.safe_load("2026-01-01")}))
    assert "quote" in problem.message


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.33.0", "0.33.0"),
        ("vllm/vllm-openai:0.33.0rc1", "0.33.0rc1"),
        ("vllm/vllm-openai:v0.33.0-cu130", "0.33.0"),
        ("registry:5000/team/vllm:v0.33.0@sha256:0123", "0.33.0"),
        ("vllm:nightly-0.33.1", "0.33.1"),
        ("vllm:v0.33", "0.33"),
        ("vllm:v0.33.0.post1", "0.33.0.post1"),
        ("vllm:latest", None),
        ("vllm", None),
        ("registry:5000/vllm", None),
        ("vllm@sha256:0123", None),
        ("nvcr.io/nvidia/vllm:26.05-py3", None),
        ("vllm:cu13.0v", None),
    ],
)
def test_the_version_is_read_from_a_tag_that_tells(image: str, version: str | None) -> None:
    assert engine_version(image) == (Version(version) if version else None)


def test_the_users_word_on_the_version_wins() -> None:
    assert engine_version("vllm:v0.33.0", "0.34.1") == Version("0.34.1")


def test_a_tag_ends_before_the_digest_and_a_port_is_none() -> None:
    assert tag("registry:5000/a/b:v1@sha256:ff") == "v1"
    assert tag("registry:5000/a/b") == ""


def test_an_unknown_version_asks_for_it() -> None:
    assert validate(spec(image="vllm:latest")) == [
        Problem(
            "spec.engine.vllmVersion",
            "spec.engine.image has a tag that does not tell vLLM's version: set spec.engine.vllmVersion",
        )
    ]
    assert validate(spec(image="vllm:latest", vllmVersion="0.33.0")) == []


def test_a_version_before_the_oldest_known_one_is_not_supported() -> None:
    [problem] = validate(spec(image="vllm:v0.11.0"))
    assert (problem.field, problem.reason) == ("spec.engine.image", Reason.NOT_SUPPORTED)
    assert str(OLDEST) in problem.message
    assert validate(spec(image=f"vllm:v{OLDEST}rc1")) == []


def test_block_verification_is_a_warning_because_only_some_engines_have_it() -> None:
    wanted = SpeculativeDeploymentSpec.model_validate(
        changed({"spec.speculation.verification": {"method": "Block"}})["spec"]
    )
    [problem] = validate(wanted)
    assert problem.severity == Severity.WARNING
    assert errors(wanted) == []


@pytest.mark.parametrize(("interval", "period"), [("10m", 300.0), ("5m", 300.0), ("30s", 30.0)])
def test_an_interval_that_was_stored_before_it_had_an_upper_bound_is_served_as_the_longest_with_a_warning(
    interval: str, period: float
) -> None:
    body = changed({"spec.tuning.interval": interval})
    body["metadata"] |= {"generation": 1, "namespace": "ns"}
    parsed = parse(body)
    assert parsed.sd is not None
    assert parsed.problem is None
    assert parsed.sd.spec.tuning.period == period
    assert ("must be at most 5m" in parsed.warnings) == (interval == "10m")
    assert [p.severity for p in problems(body)] == [Severity.ERROR] * (interval == "10m"), "of a new object"
