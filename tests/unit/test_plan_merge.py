"""The user's podTemplate over ours, and what of ours no template can change."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.plan.merge import KEYS, merge
from specpilot.plan.profiling import devices_wanted
from specpilot.plan.protect import split


def refusals(template: dict[str, Any], **model: Any) -> dict[str, str]:
    body = {"model": {"name": "m", **model}, "engine": {"image": "vllm:v0.33.0"}, "podTemplate": template}
    return {r.path: r.message for r in split(SpeculativeDeploymentSpec.model_validate(body))[1]}


def kept(template: dict[str, Any]) -> dict[str, Any]:
    body = {"model": {"name": "m"}, "engine": {"image": "vllm:v0.33.0"}, "podTemplate": template}
    return split(SpeculativeDeploymentSpec.model_validate(body))[0]


def test_containers_are_found_by_name_and_new_ones_come_after() -> None:
    base = {"containers": [{"name": "vllm", "image": "a"}]}
    over = {
        "containers": [{"name": "side", "image": "b"}, {"name": "vllm", "resources": {"limits": {"gpu": 1}}}]
    }
    assert merge(base, over) == {
        "containers": [
            {"name": "vllm", "image": "a", "resources": {"limits": {"gpu": 1}}},
            {"name": "side", "image": "b"},
        ]
    }


def test_a_variable_from_elsewhere_replaces_a_plain_one() -> None:
    ref = {"secretKeyRef": {"name": "s", "key": "k"}}
    base = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    assert merge(base, {"env": [{"name": "A", "valueFrom": ref}]}) == {
        "env": [{"name": "A", "valueFrom": ref}, {"name": "B", "value": "2"}]
    }


def test_another_kind_of_probe_replaces_ours_and_keeps_its_times() -> None:
    base = {"livenessProbe": {"httpGet": {"path": "/health"}, "periodSeconds": 30}}
    over = {"livenessProbe": {"exec": {"command": ["true"]}}}
    assert merge(base, over) == {"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 30}}


def test_null_removes_what_we_set() -> None:
    base = {"securityContext": {"runAsUser": 1000, "runAsNonRoot": True}, "livenessProbe": {}}
    over = {"securityContext": {"runAsUser": None}, "livenessProbe": None}
    assert merge(base, over) == {"securityContext": {"runAsNonRoot": True}}


def test_tolerations_add_up_and_other_lists_are_replaced() -> None:
    base = {"tolerations": [{"key": "a"}], "capabilities": {"drop": ["ALL"]}}
    over = {"tolerations": [{"key": "b"}, {"key": "b"}, {"key": "a"}], "capabilities": {"drop": ["NET_RAW"]}}
    assert merge(base, over) == {
        "tolerations": [{"key": "a"}, {"key": "b"}],
        "capabilities": {"drop": ["NET_RAW"]},
    }


def test_one_port_number_may_serve_two_protocols() -> None:
    base = {"ports": [{"containerPort": 53, "name": "dns"}]}
    over = {"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]}
    assert merge(base, over)["ports"] == [
        {"containerPort": 53, "name": "dns", "protocol": "TCP"},
        {"containerPort": 53, "protocol": "UDP"},
    ]


scalars = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["a", "b"]))
fields = st.sampled_from(["a", "b", "env", "tolerations", "value", "valueFrom", "exec", "httpGet"])
items = st.fixed_dictionaries(
    {"name": st.sampled_from(["x", "y"])}, optional={"value": st.sampled_from(["1", "2"])}
)
trees = st.recursive(
    scalars,
    lambda t: st.one_of(st.dictionaries(fields, t, max_size=4), st.lists(items, max_size=3)),
    max_leaves=12,
)
templates = st.dictionaries(fields, trees, max_size=5)


@given(templates, templates)
def test_merging_twice_is_merging_once(base: dict[str, Any], overlay: dict[str, Any]) -> None:
    once = merge(base, overlay)
    assert merge(once, overlay) == once


@given(templates, templates)
def test_merging_changes_neither_side(base: dict[str, Any], overlay: dict[str, Any]) -> None:
    before = repr((base, overlay))
    merge(base, overlay)
    assert repr((base, overlay)) == before


@given(templates)
def test_an_empty_template_changes_nothing(base: dict[str, Any]) -> None:
    assert merge(base, {}) == base


def test_lists_with_keys_are_those_of_kubernetes() -> None:
    # x-kubernetes-list-map-keys or patchMergeKey in the API of core/v1 PodSpec and Container.
    assert KEYS["ports"] == ("containerPort", "protocol")
    assert KEYS["volumeMounts"] == ("mountPath",)
    assert KEYS["topologySpreadConstraints"] == ("topologyKey", "whenUnsatisfiable")


@pytest.mark.parametrize(
    ("template", "path"),
    [
        (
            {"metadata": {"labels": {"app.kubernetes.io/instance": "x"}}},
            "metadata.labels[app.kubernetes.io/instance]",
        ),
        (
            {"metadata": {"annotations": {"specpilot.io/schedule": "x"}}},
            "metadata.annotations[specpilot.io/schedule]",
        ),
        ({"metadata": {"name": "x"}}, "metadata.name"),
        ({"kind": "Pod"}, "kind"),
        ({"spec": {"volumes": [{"name": "a"}, {"name": "specpilot-run"}]}}, "spec.volumes[1]"),
        (
            {"spec": {"initContainers": [{"name": "specpilot-engine", "image": "x", "resources": {}}]}},
            "spec.initContainers[0].image",
        ),
        ({"spec": {"restartPolicy": "Never"}}, "spec.restartPolicy"),
        ({"spec": {"restartPolicy": None}}, "spec.restartPolicy"),
        ({"spec": {"containers": [{"name": "vllm", "image": "x"}]}}, "spec.containers[0].image"),
        ({"spec": {"containers": [{"name": "vllm", "command": ["x"]}]}}, "spec.containers[0].command"),
        ({"spec": {"containers": [{"name": "vllm", "args": ["x"]}]}}, "spec.containers[0].args"),
        (
            {"spec": {"containers": [{"name": "vllm", "ports": [{"containerPort": 9101}]}]}},
            "spec.containers[0].ports[0]",
        ),
        (
            {
                "spec": {
                    "containers": [
                        {"name": "s"},
                        {"name": "t", "ports": [{"name": "http", "containerPort": 1}]},
                    ]
                }
            },
            "spec.containers[1].ports[0]",
        ),
        (
            {"spec": {"containers": [{"name": "vllm", "volumeMounts": [{"mountPath": "/etc/specpilot/"}]}]}},
            "spec.containers[0].volumeMounts[0]",
        ),
        (
            {"spec": {"containers": [{"name": "vllm", "env": [{"name": "A"}, {"name": "SPECPILOT_PORT"}]}]}},
            "spec.containers[0].env[1]",
        ),
        (
            {"spec": {"containers": [{"name": "specpilot-profiler", "command": ["x"], "resources": {}}]}},
            "spec.containers[0].command",
        ),
    ],
)
def test_what_is_ours_is_refused_by_its_path_and_left_out(template: dict[str, Any], path: str) -> None:
    assert list(refusals(template)) == [f"spec.podTemplate.{path}"]
    assert refusals(kept(template)) == {}


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"metadata": {"annotations": None}}, "metadata.annotations"),
        ({"spec": {"volumes": None}}, "spec.volumes"),
        ({"spec": {"initContainers": ["x"]}}, "spec.initContainers"),
        ({"spec": {"containers": [{"name": "vllm", "env": None}]}}, "spec.containers[0].env"),
        ({"spec": {"containers": [{"name": "vllm", "ports": [1]}]}}, "spec.containers[0].ports"),
    ],
)
def test_null_or_another_shape_does_not_remove_what_is_ours(template: dict[str, Any], path: str) -> None:
    assert list(refusals(template)) == [f"spec.podTemplate.{path}"]


def test_what_is_the_users_is_not_refused() -> None:
    template = {
        "metadata": {"labels": {"team": "a"}, "annotations": {"example.com/x": "y"}},
        "spec": {
            "serviceAccountName": "own",
            "terminationGracePeriodSeconds": 600,
            "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
            "volumes": [{"name": "data"}],
            "initContainers": [
                {"name": "fetch"},
                {"name": "specpilot-import", "resources": {"limits": {"cpu": "1"}}},
            ],
            "containers": [
                {
                    "name": "vllm",
                    "env": [{"name": "HF_HOME", "value": "/data"}],
                    "ports": [{"containerPort": 7000}],
                },
                {"name": "specpilot-profiler", "resources": {"limits": {"memory": "1Gi"}}},
            ],
        },
    }
    assert refusals(template) == {}
    assert kept(template) == template


def test_the_hub_token_has_one_source() -> None:
    template = {"spec": {"containers": [{"name": "vllm", "env": [{"name": "HF_TOKEN", "value": "x"}]}]}}
    assert refusals(template) == {}
    found = refusals(template, tokenSecret={"name": "hub", "key": "token"})
    assert "tokenSecret" in found["spec.podTemplate.spec.containers[0].env[0]"]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | st.sampled_from(["", "x", "vllm", "nvidia.com/gpu"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*KEYS, "resources", "name", "limits"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*KEYS, "resources", "affinity"]), JUNK, max_size=3), JUNK, JUNK)
def test_whatever_a_template_holds_can_be_merged(part: dict[str, Any], resources: Any, env: Any) -> None:
    theirs = {**part, "name": "vllm", "resources": resources, "env": env}
    spec = SpeculativeDeploymentSpec.model_validate(
        {
            "model": {"name": "m"},
            "engine": {"image": "vllm:v0.33.0"},
            "podTemplate": {"spec": {**part, "containers": [theirs, {"name": "side", **part}]}},
        }
    )
    ours = {"containers": [{"name": "vllm", "env": [{"name": "A"}], "ports": [{"containerPort": 1}]}]}
    merge(ours, split(spec)[0]["spec"])
    devices_wanted(spec)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("ports", [{"name": "a"}], "each item must be a mapping with containerPort: remove it"),
        ("env", [{"value": "a"}], "each item must be a mapping with name: remove it"),
        ("resources", {"limits": 5}, "it must hold mappings such as limits and requests: remove it"),
    ],
)
def test_what_cannot_be_merged_is_left_out_and_named(field: str, value: Any, said: str) -> None:
    template = {"spec": {"containers": [{"name": "vllm", field: value}]}}
    assert refusals(template) == {f"spec.podTemplate.spec.containers[0].{field}": said}


def test_a_mount_of_ours_is_found_in_other_spellings() -> None:
    mounts = [{"name": "x", "mountPath": "/run//specpilot/"}, {"name": "x", "mountPath": "/a/../tmp"}]
    assert len(refusals({"spec": {"containers": [{"name": "vllm", "volumeMounts": mounts}]}})) == 2
