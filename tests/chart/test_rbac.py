"""What the operator may do: as much as it needs, and in the namespaces it serves."""

from __future__ import annotations

import pytest
from tests.chart.conftest import CHART, Body, Render, ci_values

VALUES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
OWN = "specpilot.specpilot-system"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def rights(role: Body) -> dict[str, set[str]]:
    """Verbs by group/resource."""
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault(f"{group}/{resource}", set()).update(rule["verbs"])
    return found


def roles(render: Render, values: Body) -> list[Body]:
    return render(values, kind="Role") + render(values, kind="ClusterRole")


@pytest.mark.parametrize("name", VALUES)
def test_no_right_is_a_wildcard_or_leads_to_more_rights(render: Render, name: str) -> None:
    for role in roles(render, ci_values(name)):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not {"bind", "escalate", "impersonate"} & set(rule["verbs"])
        forbidden = {"/secrets", "/pods/exec", "/serviceaccounts/token", "rbac.authorization.k8s.io/roles"}
        assert not forbidden & rights(role).keys()


def test_across_the_cluster_these_are_the_operators_rights(render: Render) -> None:
    by_name = {role["metadata"]["name"]: role for role in render(kind="ClusterRole")}
    children = {"get", "list", "watch", "create", "patch", "delete"}
    assert rights(by_name[OWN]) == {
        "specpilot.io/speculativedeployments": {"get", "list", "watch"},
        "specpilot.io/speculativedeployments/status": {"patch"},
        "specpilot.io/speculativedeployments/finalizers": {"update"},
        "specpilot.io/costprofiles": {"get", "list", "watch", "create", "patch"},
        "specpilot.io/costprofiles/status": {"patch"},
        "apps/deployments": children,
        "batch/jobs": children,
        "/services": children,
        "/serviceaccounts": children,
        "/configmaps": children,
        "policy/poddisruptionbudgets": children,
        "monitoring.coreos.com/podmonitors": children,
        "/pods": {"get", "list", "watch", "patch"},
        "/events": {"create"},
    }
    assert rights(by_name[f"{OWN}-nodes"]) == {"/nodes": {"get", "list"}}


def test_network_policies_are_written_only_where_they_are_asked_for(render: Render) -> None:
    resource = "networking.k8s.io/networkpolicies"
    [role] = [
        r
        for r in render({"config": {"networkPolicy": True}}, kind="ClusterRole")
        if r["metadata"]["name"] == OWN
    ]
    assert "create" in rights(role)[resource]


def test_in_namespaces_nothing_reaches_beyond_them(render: Render) -> None:
    values = ci_values("namespaced")
    assert render(values, kind="ClusterRole") == []
    assert render(values, kind="ClusterRoleBinding") == []
    places = {
        role["metadata"]["namespace"]
        for role in render(values, kind="Role")
        if role["metadata"]["name"] == OWN
    }
    assert places == {"team-a", "team-b"}


def test_namespaced_rights_are_the_same_as_across_the_cluster(render: Render) -> None:
    [across] = [r for r in render(kind="ClusterRole") if r["metadata"]["name"] == OWN]
    for role in render(ci_values("namespaced"), kind="Role"):
        if role["metadata"]["name"] == OWN:
            assert role["rules"] == across["rules"]


@pytest.mark.parametrize("name", VALUES)
def test_every_binding_joins_a_role_that_is_there_with_the_operators_account(
    render: Render, name: str
) -> None:
    values = ci_values(name)
    known = {
        (r["kind"], r["metadata"].get("namespace"), r["metadata"]["name"]) for r in roles(render, values)
    }
    [account] = render(values, kind="ServiceAccount")
    bindings = render(values, kind="RoleBinding") + render(values, kind="ClusterRoleBinding")
    for binding in bindings:
        where = binding["metadata"].get("namespace")
        assert (binding["roleRef"]["kind"], where, binding["roleRef"]["name"]) in known
        assert binding["subjects"] == [
            {
                "kind": "ServiceAccount",
                "name": account["metadata"]["name"],
                "namespace": account["metadata"]["namespace"],
            }
        ]
    assert bindings


def test_the_lease_is_the_one_thing_written_in_the_operators_own_namespace(render: Render) -> None:
    [lease] = [r for r in render(kind="Role") if r["metadata"]["name"] == "specpilot-lease"]
    assert lease["metadata"]["namespace"] == "specpilot-system"
    assert lease["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["specpilot"],
            "verbs": ["get", "update"],
        },
    ]


def test_the_clusters_own_roles_learn_the_two_resources(render: Render) -> None:
    by_name = {role["metadata"]["name"]: role for role in render(kind="ClusterRole")}
    view, edit = by_name[f"{OWN}-view"], by_name[f"{OWN}-edit"]
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]
    assert all(verbs.isdisjoint(WRITES) for verbs in rights(view).values())
    assert all(verbs <= WRITES for verbs in rights(edit).values())
    assert not [
        r
        for r in render({"rbac": {"aggregate": False}}, kind="ClusterRole")
        if "view" in r["metadata"]["name"]
    ]


def test_rights_can_be_left_to_others(render: Render) -> None:
    assert roles(render, {"rbac": {"create": False}}) == []
