"""The chart: what it renders for each set of values, and which values it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from helm_python import Chart, HelmRenderError, HelmValuesError, lint
from tests.chart.conftest import CHART, Body, Render, ci_values

from specpilot.api import crd
from specpilot.config import Config

VALUES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
FOREIGN = {"ServiceMonitor"}  # of the Prometheus operator, whose schemas Kubernetes does not have


@pytest.mark.parametrize("name", VALUES)
def test_helm_lints_it_strictly(name: str) -> None:
    report = lint(CHART, ci_values(name), strict=True, kube_version="v1.37.0")
    assert report["errors"] == []
    assert [m for m in report["messages"] if m["severity"] > 1] == []


@pytest.mark.parametrize("name", VALUES)
def test_every_object_fits_kubernetes_own_schema_strictly(render: Render, name: str) -> None:
    for body in render(ci_values(name)):
        if body["kind"] not in FOREIGN:
            kubernetes_validate.validate(body, "1.37", strict=True)


@pytest.mark.parametrize("name", VALUES)
def test_no_object_is_rendered_twice_and_all_carry_the_recommended_labels(render: Render, name: str) -> None:
    bodies = render(ci_values(name))
    keys = [(b["kind"], b["metadata"].get("namespace", ""), b["metadata"]["name"]) for b in bodies]
    assert len(keys) == len(set(keys))
    for body in bodies:
        labels = body["metadata"]["labels"]
        wanted = ("name", "instance", "version", "component", "part-of", "managed-by")
        assert {f"app.kubernetes.io/{label}" for label in wanted} <= labels.keys(), body["metadata"]["name"]


@pytest.mark.parametrize("name", VALUES)
def test_the_configuration_is_one_that_the_operator_reads(render: Render, name: str) -> None:
    values = ci_values(name)
    config = operator_config(render, values)
    assert config.watch_namespaces == values.get("watchNamespaces", [])
    assert (config.ports.metrics, config.ports.health) == (8080, 8081)
    assert [e.name for e in config.prometheus] == [e["name"] for e in values.get("prometheus", [])]


def operator_config(render: Render, values: Body) -> Config:
    [config_map] = render(values, kind="ConfigMap")
    return Config.model_validate(yaml.safe_load(config_map["data"]["config.yaml"]))


def operator_pod(render: Render, values: Body | None = None) -> Body:
    [deployment] = render(values, kind="Deployment")
    pod: Body = deployment["spec"]["template"]
    return pod


def test_the_chart_has_the_defaults_of_the_operator(render: Render) -> None:
    said, defaults = operator_config(render, {}).model_dump(), Config().model_dump()
    assert said.pop("engine_image") == "ghcr.io/specpilot/specpilot:0.1.0"
    assert said == {name: value for name, value in defaults.items() if name != "engine_image"}


def test_a_schema_covers_every_value_and_every_field_of_the_configuration() -> None:
    with Chart.load(CHART) as chart:
        schema, values = chart.schema, chart.values
    assert schema is not None
    assert values.keys() <= schema["properties"].keys()
    known = {"watchNamespaces", "engineImage", "pullPolicy", "prometheus", "ports"}  # the chart writes them
    own = {"namespace", "identity"}  # the pod's environment says them
    fields = {field.alias for field in Config.model_fields.values()}
    config = schema["properties"]["config"]["properties"]
    assert config.keys() == fields - known - own
    sections = {
        f.alias: f.annotation for f in Config.model_fields.values() if hasattr(f.annotation, "model_fields")
    }
    theirs = {"lease": {"name"}}  # the chart's rights are to that one alone
    for name in sections.keys() & config.keys():
        said = {f.alias for f in sections[name].model_fields.values()} - theirs.get(name, set())
        assert config[name]["properties"].keys() == said, name


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"replicas": "2"}, "got string, want integer"),
        ({"image": {"tag": 1.2}}, "want string"),
        ({"image": {"digest": "0123"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"watchNamespaces": "team-a"}, "got string, want array"),
        ({"watchNamespaces": ["Team A"]}, "/watchNamespaces/0"),
        ({"config": {"tick": "5"}}, "/config/tick"),
        ({"config": {"tik": "5s"}}, "additional properties 'tik' not allowed"),
        ({"config": {"logLevel": "loud"}}, "/config/logLevel"),
        ({"prometheus": [{"name": "main"}]}, "missing property 'url'"),
        ({"prometheus": [{"name": "main", "url": "prometheus:9090"}]}, "/prometheus/0/url"),
        ({"prometheus": [{"name": "main", "url": "http://p", "token": "secret"}]}, "'token' not allowed"),
        (
            {"prometheus": [{"name": "main", "url": "http://p", "headers": {"a b": "c"}}]},
            "invalid propertyName 'a b'",
        ),
        ({"crds": {"enabled": True}}, "additional properties 'enabled' not allowed"),
    ],
)
def test_wrong_values_are_refused_where_they_stand(values: Body, complaint: str) -> None:
    with Chart.load(CHART) as chart, pytest.raises(HelmValuesError, match=complaint.replace("[", r"\[")):
        chart.render(values)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"serviceAccount": {"create": False}},
            "serviceAccount.name is required when serviceAccount.create is false: set it",
        ),
        (
            {
                "prometheus": [
                    {
                        "name": "p",
                        "url": "http://p",
                        "tokenFile": "/t",
                        "tokenSecret": {"name": "a", "key": "b"},
                    }
                ]
            },
            "prometheus p has tokenSecret and tokenFile: remove one",
        ),
        (
            {
                "prometheus": [
                    {
                        "name": "p",
                        "url": "http://p",
                        "caSecret": {"name": "a", "key": "b"},
                        "caConfigMap": {"name": "a", "key": "b"},
                    }
                ]
            },
            "prometheus p has caSecret and caConfigMap: remove one",
        ),
    ],
)
def test_what_a_schema_cannot_say_is_said_in_a_sentence(values: Body, sentence: str) -> None:
    with Chart.load(CHART) as chart, pytest.raises(HelmRenderError, match=sentence):
        chart.render(values)


def test_crds_are_those_of_the_models_and_stay_when_the_release_goes(render: Render) -> None:
    bodies = render(kind="CustomResourceDefinition")
    for body in bodies:
        assert body["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        del body["metadata"]["labels"]
    assert sorted(bodies, key=str) == sorted(crd.crds(), key=str)


def test_crds_can_be_left_to_others_and_can_go_with_the_release(render: Render) -> None:
    assert render({"crds": {"install": False}}, kind="CustomResourceDefinition") == []
    kept = render({"crds": {"keep": False}}, kind="CustomResourceDefinition")
    assert len(kept) == 2
    assert all("annotations" not in body["metadata"] for body in kept)


@pytest.mark.parametrize("name", VALUES)
def test_the_operators_pod_is_restricted(render: Render, name: str) -> None:
    spec = operator_pod(render, ci_values(name))["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert all({"configMap", "emptyDir", "projected"} & volume.keys() for volume in spec["volumes"])
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_the_pod_starts_the_operator_with_its_configuration_and_name(render: Render) -> None:
    [container] = operator_pod(render)["spec"]["containers"]
    assert container["args"] == ["operator"]
    environment = {e["name"]: e for e in container["env"]}
    assert environment["SPECPILOT_CONFIG"]["value"] == "/etc/specpilot-operator/config.yaml"
    assert environment["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert environment["POD_NAMESPACE"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
    assert mounts == {"/etc/specpilot-operator": "config", "/tmp": "tmp"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert {p["name"]: p["containerPort"] for p in container["ports"]} == {"metrics": 8080, "health": 8081}


def test_a_change_of_configuration_starts_new_pods(render: Render) -> None:
    def checksum(values: Body) -> Any:
        return operator_pod(render, values)["metadata"]["annotations"]["checksum/config"]

    assert checksum({}) != checksum({"config": {"tick": "1s"}})
    assert checksum({}) == checksum({"resources": {}})


def test_prometheus_secrets_are_mounted_where_the_configuration_looks(render: Render) -> None:
    values = ci_values("full")
    endpoints = {e.name: e for e in operator_config(render, values).prometheus}
    assert str(endpoints["main"].token_file) == "/etc/specpilot-prometheus/main/token"
    assert endpoints["main"].headers == {"X-Scope-OrgID": "team-a"}
    key = Path("/etc/specpilot-prometheus/main/headers/X-Api-Key")
    assert endpoints["main"].header_files == {"X-Api-Key": key}
    assert (endpoints["main"].timeout, endpoints["main"].window) == (5, 180)
    assert str(endpoints["main"].ca_file) == "/etc/specpilot-prometheus/main/ca.crt"
    assert str(endpoints["thanos"].token_file) == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert endpoints["plain"].token_file is None
    [volume] = [v for v in operator_pod(render, values)["spec"]["volumes"] if v["name"] == "prometheus"]
    assert volume["projected"]["sources"] == [
        {"secret": {"name": "prometheus", "items": [{"key": "token", "path": "main/token"}]}},
        {"secret": {"name": "prometheus", "items": [{"key": "api-key", "path": "main/headers/X-Api-Key"}]}},
        {"secret": {"name": "prometheus", "items": [{"key": "ca.crt", "path": "main/ca.crt"}]}},
        {"configMap": {"name": "service-ca", "items": [{"key": "service-ca.crt", "path": "thanos/ca.crt"}]}},
    ]


def test_the_image_is_the_charts_version_unless_values_say_otherwise(render: Render) -> None:
    def image(values: Body) -> Any:
        return operator_pod(render, {"image": values})["spec"]["containers"][0]["image"]

    digest = f"sha256:{'0' * 64}"
    assert image({}) == "ghcr.io/specpilot/specpilot:0.1.0"
    assert image({"repository": "r:5000/x", "tag": "dev"}) == "r:5000/x:dev"
    assert image({"repository": "r/x", "tag": "dev", "digest": digest}) == f"r/x@{digest}"


@pytest.mark.parametrize(("release", "name"), [("specpilot", "specpilot"), ("prod", "prod-specpilot")])
def test_names_follow_the_release(render: Render, release: str, name: str) -> None:
    [deployment] = render(kind="Deployment", name=release)
    assert deployment["metadata"]["name"] == name
    [service] = render(kind="Service", name=release)
    assert service["spec"]["selector"] == {
        "app.kubernetes.io/name": "specpilot-operator",
        "app.kubernetes.io/instance": release,
    }


def test_notes_say_what_to_do_next_and_what_is_allowed(manifests: Callable[..., dict[str, str]]) -> None:
    plain = manifests()["NOTES.txt"]
    assert "kubectl --namespace specpilot-system rollout status deployment/specpilot" in plain
    assert "specpilot explain NAMESPACE/my-model\n" in plain  # without a namespace it would look for a file
    assert "No Prometheus is configured" in plain
    assert "can run pods in that namespace" in plain
    assert "spec.metrics.prometheus can be: main, thanos, plain." in manifests(ci_values("full"))["NOTES.txt"]
    namespaced = manifests(ci_values("namespaced"))["NOTES.txt"]
    assert "serves the namespaces team-a, team-b." in namespaced
    assert "specpilot crd | kubectl apply --server-side -f -" in namespaced


def test_monitor_and_budget_are_there_when_asked_for(render: Render) -> None:
    assert render(kind="ServiceMonitor") == []
    assert render(kind="PodDisruptionBudget") == []
    values = ci_values("full")
    [monitor] = render(values, kind="ServiceMonitor")
    [service] = render(values, kind="Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "15s"}]
    assert render(values, kind="PodDisruptionBudget")[0]["spec"]["maxUnavailable"] == 1
