"""The CustomResourceDefinitions that are generated from the models."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import kubernetes_validate
import pytest
import yaml
from pydantic import Field

from specpilot.api import crd, growth, policies
from specpilot.api.base import Model, Policy
from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.profile import CostProfileSpec
from specpilot.api.schema import structural, unknown_fields
from specpilot.api.validate import errors, problems

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "deploy/samples").glob("*.yaml"))
DEPLOYMENT, PROFILE = crd.crds()


def version(definition: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definition["spec"]["versions"][0]
    return found


def at(definition: dict[str, Any], path: str) -> dict[str, Any]:
    node: dict[str, Any] = version(definition)["schema"]["openAPIV3Schema"]
    for name in path.split("."):
        node = node["items"] if name == "[]" else node["properties"][name]
    return node


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if isinstance(node.get(part), dict):
            yield from nodes(node[part], f"{path}[]")


def all_nodes() -> Iterator[tuple[str, dict[str, Any]]]:
    for definition in (DEPLOYMENT, PROFILE):
        yield from nodes(
            version(definition)["schema"]["openAPIV3Schema"], definition["spec"]["names"]["kind"]
        )


class Inner(Model):
    depth: Annotated[int, Field(gt=0)] = 3
    name: str | None = None


class Outer(Model):
    """Said of the whole."""

    inner: Inner = Inner()
    maybe: Inner | None = None
    tags: list[str] = Field([])
    free: Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]


def test_files_are_what_the_models_say() -> None:
    command = [sys.executable, "-m", "specpilot.api.crd", "--check"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"PYTHONPATH": f"{ROOT}/operator:{ROOT}/serving"}
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stale_file_is_named_with_the_command_that_renews_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crd, "REPOSITORY", tmp_path)
    monkeypatch.setattr(crd, "files", lambda: iter([(tmp_path / "crds/a.yaml", "content")]))
    assert crd.main(["--check"]) == 1
    assert capsys.readouterr().err == (
        "crds/a.yaml is not what the models say: run `python -m specpilot.api.crd`\n"
    )
    assert crd.main([]) == 0
    assert (tmp_path / "crds/a.yaml").read_text() == "content"
    assert crd.main(["--check"]) == 0


@pytest.mark.parametrize("definition", [DEPLOYMENT, PROFILE], ids=lambda d: d["spec"]["names"]["kind"])
def test_a_definition_fits_kubernetes_own_schema_strictly(definition: dict[str, Any]) -> None:
    kubernetes_validate.validate(definition, "1.37", strict=True)


def test_a_model_becomes_a_structural_schema() -> None:
    assert structural(Outer) == {
        "description": "Said of the whole.",
        "type": "object",
        "required": ["free"],
        "properties": {
            "inner": {
                "type": "object",
                "default": {"depth": 3},
                "properties": {
                    "depth": {"type": "integer", "default": 3, "minimum": 0, "exclusiveMinimum": True},
                    "name": {"type": "string"},
                },
            },
            "maybe": {
                "type": "object",
                "properties": {
                    "depth": {"type": "integer", "default": 3, "minimum": 0, "exclusiveMinimum": True},
                    "name": {"type": "string"},
                },
            },
            "tags": {
                "type": "array",
                "default": [],
                "x-kubernetes-list-type": "atomic",
                "items": {"type": "string"},
            },
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }


def test_no_node_is_left_that_a_structural_schema_forbids() -> None:
    for path, node in all_nodes():
        assert node.keys().isdisjoint({"$ref", "$defs", "anyOf", "allOf", "const", "title", "nullable"}), path
        assert node.get("additionalProperties") is not True, path
        assert "default" not in node or node["default"] is not None, path
        assert "type" in node, path


def test_every_field_of_ours_is_explained() -> None:
    bare = [path for path, node in all_nodes() if "description" not in node and not _self_evident(path)]
    assert bare == []


def _self_evident(path: str) -> bool:
    names = ("apiVersion", "kind", "metadata", "spec", "status", "type")
    return (
        path.endswith("[]") or ".podTemplate." in path or ".env[]" in path or path.rsplit(".", 1)[-1] in names
    )


def test_defaults_fill_a_minimal_object_as_python_does() -> None:
    minimal = SpeculativeDeploymentSpec.model_validate({"model": {"name": "m"}, "engine": {"image": "i"}})
    spec = at(DEPLOYMENT, "spec")["properties"]
    said = minimal.to_json()
    for name in ("replicas", "parallelism", "speculation", "tuning", "profiling", "metrics"):
        assert spec[name]["default"] == said[name], name
    assert said["engine"] == {"image": "i", "args": [], "env": []}


def test_names_columns_and_subresources() -> None:
    assert DEPLOYMENT["metadata"]["name"] == "speculativedeployments.specpilot.io"
    assert DEPLOYMENT["spec"]["names"]["shortNames"] == ["specdep"]
    assert PROFILE["spec"]["names"]["shortNames"] == ["specprof"]
    assert {c["name"]: c["jsonPath"] for c in version(DEPLOYMENT)["additionalPrinterColumns"]} == {
        "MODE": ".spec.tuning.mode",
        "K": ".status.speculation.summary",
        "GAIN": ".status.lastDecision.gain",
        "PROFILE": ".status.profile.name",
        "READY": ".status.ready",
        "AGE": ".metadata.creationTimestamp",
    }
    assert version(DEPLOYMENT)["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert version(PROFILE)["subresources"] == {"status": {}}


@pytest.mark.parametrize("definition", [DEPLOYMENT, PROFILE], ids=lambda d: d["spec"]["names"]["kind"])
def test_every_column_and_path_names_a_field(definition: dict[str, Any]) -> None:
    paths = [c["jsonPath"] for c in version(definition)["additionalPrinterColumns"]]
    paths += version(definition)["subresources"].get("scale", {}).values()
    for path in paths:
        if not path.startswith(".metadata"):
            assert at(definition, path[1:])["type"] in ("string", "integer"), path


def test_lists_merge_as_their_content_wants() -> None:
    assert at(DEPLOYMENT, "spec.engine.env")["x-kubernetes-list-map-keys"] == ["name"]
    assert at(DEPLOYMENT, "spec.podTemplate.spec.containers")["x-kubernetes-list-map-keys"] == ["name"]
    assert at(DEPLOYMENT, "spec.engine.args")["x-kubernetes-list-type"] == "atomic"
    assert at(DEPLOYMENT, "status.conditions")["x-kubernetes-list-map-keys"] == ["type"]
    assert at(PROFILE, "spec.points")["x-kubernetes-list-map-keys"] == [
        "tokens",
        "batchSize",
        "contextLength",
    ]


def tables() -> list[Policy[Any]]:
    named = {**vars(policies), **vars(growth)}
    found = [value for value in named.values() if isinstance(value, tuple)]
    return [entry for value in found for entry in value if isinstance(entry, Policy)]


def test_every_policy_is_a_rule_of_a_definition() -> None:
    rules = [rule for _, node in all_nodes() for rule in node.get("x-kubernetes-validations", ())]
    assert {rule["message"] for rule in rules} == {policy.message for policy in tables()}
    assert {rule["rule"] for rule in rules} == {policy.cel for policy in tables()}


def test_messages_name_the_field_and_the_fix() -> None:
    for policy in tables():
        start = policy.field.split(".")[0]
        assert policy.message.startswith(start), policy.message
        assert ":" in policy.message, policy.message


def test_the_points_of_a_profile_only_grow() -> None:
    def profile(*points: tuple[int, float], key: str = "k") -> CostProfileSpec:
        rows = [{"tokens": k, "batchSize": 1, "contextLength": 8, "seconds": s} for k, s in points]
        return CostProfileSpec.model_validate(
            {"key": key, "fingerprint": {"model": "m", "method": "MTP"}, "points": rows}
        )

    identity, grows = growth.PROFILE
    [stays] = growth.POINT
    before, after = profile((0, 0.1)), profile((0, 0.3), (1, 0.2))
    assert not grows.violated((before, after))
    assert stays.violated((before.points[0], after.points[0]))
    assert not stays.violated((before.points[0], before.points[0]))
    assert grows.violated((profile((0, 0.1)), profile()))
    assert identity.violated((profile(), profile(key="other")))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_valid_and_says_nothing_twice(path: Path) -> None:
    body = yaml.safe_load(path.read_text())
    parsed = SpeculativeDeployment.parse(body)
    assert errors(parsed.spec) == []
    assert [p for p in problems(body) if p.severity == "Error"] == []
    assert path.read_text().startswith("# "), "a sample says in its first line what it is"
    assert len(path.read_text().splitlines()) <= 40


def test_there_is_a_sample_for_each_way_to_draft() -> None:
    methods = {yaml.safe_load(p.read_text())["spec"]["speculation"]["method"] for p in SAMPLES}
    assert methods == {"DSpark", "MTP", "Eagle3", "DraftModel", "NGram"}


def test_unknown_fields_are_found_where_strict_validation_finds_them() -> None:
    schema = at(DEPLOYMENT, "spec")
    body = {"model": {"nam": "m"}, "engine": {"env": [{"name": "A", "x": 1}]}, "podTemplate": {"a": {"b": 1}}}
    assert list(unknown_fields(schema, body, "spec")) == ["spec.model.nam", "spec.engine.env[0].x"]
