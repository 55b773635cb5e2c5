"""The API server against the models: what it refuses, fills in and shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from tests.setup.cluster import PROJECT, Cluster
from tests.unit.test_api_validate import TABLES, VALID, changed

from specpilot.api import owned
from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.validate import problems

Body = dict[str, Any]
SAMPLES = sorted((PROJECT / "deploy/samples").glob("*.yaml"))
GROUP, VERSION = "specpilot.io", "v1alpha1"


class Api:
    """Creates custom objects without keeping them, strictly validated."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))

    def refusal(self, body: Body) -> str:
        """Why the API server refuses to create it; "" when it would."""
        plural = f"{body['kind'].lower()}s"
        options = {"dry_run": "All", "field_validation": "Strict"}
        try:
            self._api.create_namespaced_custom_object(GROUP, VERSION, "default", plural, body, **options)
        except ApiException as error:
            if error.status not in (400, 422):
                raise
            return str(json.loads(error.body)["message"])
        return ""


@pytest.fixture(scope="module", autouse=True)
def definitions(cluster: Cluster) -> None:
    made = [yaml.safe_load(path.read_text()) for path in sorted((PROJECT / "crds").glob("*.yaml"))]
    cluster.apply(*made)
    for name in (definition["metadata"]["name"] for definition in made):
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Iterator[str]:
    """A namespace for objects that nothing acts on; each test takes names of its own."""
    name = f"admission-{uuid4().hex[:8]}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    cluster.remove_namespace(name)


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return Api(cluster.kubeconfig)


@pytest.mark.parametrize("case", TABLES["refused"], ids=lambda case: case["what"])
def test_the_api_server_refuses_what_python_refuses(api: Api, case: Body) -> None:
    body = changed(case["set"])
    refusal = api.refusal(body)
    assert case["field"] in refusal
    assert case.get("says", "") in refusal
    if "says" in case:  # a rule of ours: the very sentence
        assert any(problem.message in refusal for problem in problems(body)), refusal


@pytest.mark.parametrize("case", TABLES["accepted"], ids=lambda case: case["what"])
def test_the_api_server_accepts_what_python_accepts(api: Api, case: Body) -> None:
    assert api.refusal(changed(case["set"])) == ""


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_pass_strict_validation(cluster: Cluster, api: Api, path: Path) -> None:
    assert api.refusal(yaml.safe_load(path.read_text())) == ""
    cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(path))


FLAGS = [flag for group in owned.GROUPS for flag in group.flags]
NEARLY = st.sampled_from([*FLAGS, "--dtype", "--seed", "--config-format", "-q", "-dcp", "--model-impl"])


@st.composite
def arguments(draw: st.DrawFn) -> str:
    """Owned flags and others, cut short, respelt and with values attached."""
    flag = draw(NEARLY)
    cut = flag[: draw(st.integers(1, len(flag)))] if draw(st.booleans()) else flag
    respelt = cut.replace("-", "_") if draw(st.booleans()) else cut
    return respelt + draw(st.sampled_from(["", "", "=1", ".a", ".a=1", "4", "x"]))


DEPTHS = st.lists(st.integers(-1, 9), min_size=0, max_size=5)
DURATIONS = st.one_of(
    st.sampled_from(["0s", "1s", "999ms", "1m", "1h1ms", "1", "s", "-1s", "1000000s", "2m30s"]),
    st.text("0123456789hms.", max_size=6),
)
CHANGES = {
    "metadata.name": st.text("ab-Z7.", min_size=1, max_size=4),
    "spec.engine.args": st.lists(arguments(), max_size=3),
    "spec.speculation.method": st.sampled_from(["DSpark", "Eagle", "DraftModel", "NGram", "None", "none"]),
    "spec.speculation.draftModel": st.sampled_from([{"name": "a/b"}, {}]),
    "spec.speculation.maxTokens": st.integers(-1, 34),
    "spec.speculation.candidates": DEPTHS,
    "spec.speculation.verification": st.fixed_dictionaries(
        {},
        optional={
            "method": st.sampled_from(["Block", "Standard", "Synthetic"]),
            "adaptive": st.sampled_from(["Auto", "Always", "Never"]),
            "syntheticAcceptance": st.lists(st.sampled_from([0, 0.25, 0.5, 1, 1.5]), max_size=3),
        },
    ),
    "spec.tuning.interval": DURATIONS,
    "spec.tuning.objective": st.fixed_dictionaries({}, optional={"maxInterTokenLatency": DURATIONS}),
    "spec.profiling.grid": st.fixed_dictionaries({}, optional={"tokens": DEPTHS, "batchSizes": DEPTHS}),
    "spec.metrics": st.fixed_dictionaries(
        {},
        optional={"source": st.sampled_from(["Auto", "Prometheus"]), "prometheus": st.text("a", max_size=1)},
    ),
}


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=st.lists(st.sampled_from(sorted(CHANGES)), max_size=4, unique=True), data=st.data())
def test_python_and_the_api_server_agree_on_any_object(
    api: Api, fields: list[str], data: st.DataObject
) -> None:
    body = changed({field: data.draw(CHANGES[field], label=field) for field in fields})
    errors = [problem for problem in problems(body) if problem.severity == "Error"]
    assert bool(api.refusal(body)) == bool(errors), (errors, api.refusal(body))


def test_the_longest_arguments_stay_within_the_cost_of_a_rule(api: Api) -> None:
    long = ["--hf-overrides=" + "x" * 2033] * 128
    assert api.refusal(changed({"spec.engine.args": long})) == ""
    assert "use spec.parallelism" in api.refusal(changed({"spec.engine.args": [*long[1:], "-tp=4"]}))


def test_the_api_server_fills_in_the_defaults_that_python_has(cluster: Cluster, place: str) -> None:
    cluster.apply(VALID, namespace=place)
    stored = cluster.get("specdep", "flash", place)["spec"]
    assert stored == SpeculativeDeploymentSpec.model_validate(VALID["spec"]).to_json()


def test_one_line_says_what_matters(cluster: Cluster, place: str) -> None:
    cluster.apply(VALID, namespace=place)
    status = {
        "ready": "2/2",
        "speculation": {"summary": "7,3,1"},
        "lastDecision": {"time": "2026-01-01T00:00:00Z", "reason": "LoadShift", "gain": "0.08"},
        "profile": {"name": "flash-6c1d2e3f"},
    }
    cluster.kubectl(
        *("patch", "specdep", "flash", "--namespace", place, "--subresource=status", "--type=merge"),
        *("--patch", json.dumps({"status": status})),
    )
    head, line = cluster.kubectl("get", "specdep", "--namespace", place).splitlines()
    assert head.split() == ["NAME", "MODE", "K", "GAIN", "PROFILE", "READY", "AGE"]
    assert line.split()[:-1] == ["flash", "Apply", "7,3,1", "0.08", "flash-6c1d2e3f", "2/2"]


def test_replicas_scale_through_the_subresource(cluster: Cluster, place: str) -> None:
    cluster.apply(VALID, namespace=place)
    cluster.kubectl("scale", "specdep/flash", "--replicas=3", "--namespace", place)
    assert cluster.get("specdep", "flash", place)["spec"]["replicas"] == 3


POINTS = [
    {"tokens": k, "batchSize": b, "contextLength": c, "seconds": 0.01}
    for k in range(8)
    for b in range(1, 17)
    for c in range(1, 5)
]


def profile(name: str, points: list[Body], **spec: Any) -> Body:
    fingerprint = {"model": "m", "method": "MTP"}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "CostProfile",
        "metadata": {"name": name},
        "spec": {"key": "k", "fingerprint": fingerprint, "points": points, **spec},
    }


def test_all_points_of_the_largest_grid_can_be_added_in_batches(cluster: Cluster, place: str) -> None:
    for size in (0, 1, 100, 511, 512):
        cluster.apply(profile("grows", POINTS[:size]), namespace=place)
    cluster.apply(profile("grows", POINTS[::-1], measuredOn="a pod"), namespace=place)
    assert len(cluster.get("specprof", "grows", place)["spec"]["points"]) == 512


@pytest.mark.parametrize(
    ("points", "more", "says"),
    [
        (POINTS[:2], {}, "spec.points can only grow"),
        ([{**POINTS[0], "seconds": 0.02}, *POINTS[1:3]], {}, "spec.points cannot change"),
        (POINTS[:3], {"key": "other"}, "spec.fingerprint and spec.key cannot change"),
        ([*POINTS[:3], POINTS[0]], {}, "Duplicate value"),
    ],
    ids=["a point removed", "a point changed", "another key", "a point twice"],
)
def test_what_was_measured_stays(
    cluster: Cluster, place: str, points: list[Body], more: Body, says: str
) -> None:
    where, name = ("--namespace", place, "-f", "-"), f"stays-{uuid4().hex[:8]}"
    cluster.kubectl("create", *where, input=json.dumps(profile(name, POINTS[:3])))
    with pytest.raises(AssertionError, match=says):
        cluster.kubectl("replace", *where, input=json.dumps(profile(name, points, **more)))
