"""The kinds this operator reads or writes, so that no discovery has to work before it can start.

Discovery asks every API group, and one broken aggregated API makes it fail.
"""

from __future__ import annotations

from dataclasses import dataclass

from specpilot.api.base import API_VERSION


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource type: its place in object bodies and in request paths."""

    api_version: str
    name: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """Request path; without `name` the collection, without `namespace` over all of them."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{scope}/{self.plural}{tail}"


SPECULATIVE_DEPLOYMENT = Kind(API_VERSION, "SpeculativeDeployment", "speculativedeployments")
COST_PROFILE = Kind(API_VERSION, "CostProfile", "costprofiles")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
JOB = Kind("batch/v1", "Job", "jobs")
POD = Kind("v1", "Pod", "pods")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
POD_MONITOR = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
EVENT = Kind("v1", "Event", "events")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
NODE = Kind("v1", "Node", "nodes", namespaced=False)

CHILDREN = (DEPLOYMENT, JOB, CONFIG_MAP, SERVICE, SERVICE_ACCOUNT, DISRUPTION_BUDGET)
"""Watched with the managed-by label. NetworkPolicy and PodMonitor are optional: see OPTIONAL."""
OPTIONAL = (NETWORK_POLICY, POD_MONITOR)
"""Written only where the installation asks for them, or where the cluster has them."""

_BY_NAME = {
    kind.name: kind
    for kind in (SPECULATIVE_DEPLOYMENT, COST_PROFILE, POD, EVENT, LEASE, NODE, *CHILDREN, *OPTIONAL)
}


def kind_of(body: dict[str, object]) -> Kind:
    """The Kind of an object's body. Raises KeyError for one this operator does not handle."""
    return _BY_NAME[str(body["kind"])]
