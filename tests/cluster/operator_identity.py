"""Who an operator under test is in the cluster: its rights, its namespaces, and what it has written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import yaml
from tests.cluster.places import namespace, namespace_of
from tests.setup.audit import AuditLog, Write
from tests.setup.cluster import PROJECT, Cluster
from tests.setup.waiting import eventually

RBAC = "rbac.authorization.k8s.io"
ROLE = "specpilot-under-test"

# The least that the operator needs; its chart grants the same.
RULES: list[dict[str, Any]] = [
    {
        "apiGroups": ["specpilot.io"],
        "resources": ["speculativedeployments"],
        "verbs": ["get", "list", "watch"],
    },
    {
        "apiGroups": ["specpilot.io"],
        "resources": ["speculativedeployments/status", "costprofiles/status"],
        "verbs": ["patch"],
    },
    {
        "apiGroups": ["specpilot.io"],
        "resources": ["speculativedeployments/finalizers"],  # blockOwnerDeletion
        "verbs": ["update"],
    },
    {
        "apiGroups": ["specpilot.io"],
        "resources": ["costprofiles"],
        "verbs": ["get", "list", "watch", "create", "patch"],
    },
    {
        "apiGroups": ["apps", "batch", "", "policy"],
        "resources": [
            "deployments",
            "jobs",
            "configmaps",
            "services",
            "serviceaccounts",
            "poddisruptionbudgets",
        ],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]


class Identity:
    """An operator's name, rights, and the namespaces that it alone looks after.

    Each has its own, so that several operators may be under test in one cluster at a time. `places` is
    how many namespaces; 0: the whole cluster.
    """

    def __init__(self, cluster: Cluster, places: int = 3) -> None:
        self.cluster = cluster
        self.namespace = f"operator-{uuid4().hex[:8]}"
        self.user = f"system:serviceaccount:{self.namespace}:specpilot"
        self.watched = [f"t-{uuid4().hex[:8]}" for _ in range(places)]
        self._free = list(self.watched)

    def install(self) -> None:
        """CRDs, namespaces and rights."""
        crds = [yaml.safe_load(path.read_text()) for path in sorted((PROJECT / "crds").glob("*.yaml"))]
        self.cluster.apply(*crds)
        names = [f"crd/{crd['metadata']['name']}" for crd in crds]
        self.cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=90s")
        who = {"name": "specpilot", "namespace": self.namespace}
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}},
            *(namespace(name) for name in self.watched),
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": who},
            {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": RULES},
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": self.namespace},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": ROLE},
                "subjects": [{"kind": "ServiceAccount", **who}],
            },
        )

    def remove(self) -> None:
        """All of it, the CRDs aside."""
        self.cluster.kubectl("delete", "clusterrolebinding", self.namespace, "--ignore-not-found")
        for name in (self.namespace, *self.watched):
            self.cluster.remove_namespace(name)

    @contextmanager
    def place(self) -> Iterator[str]:
        """One of the watched namespaces, for as long as the block."""
        if not self.watched:
            with namespace_of(self.cluster) as name:
                yield name
            return
        assert self._free, "this operator needs more places"
        name = self._free.pop()
        try:
            yield name
        finally:
            self.cluster.remove_namespace(name)

    def position(self) -> int:
        """A place in the audit log, to be given to `writes`."""
        return self._log().position()

    def writes(self, after: int) -> list[Write]:
        """What the operator wrote since a place in the audit log, the Lease aside."""
        return [w for w in self._log().writes(after, user=self.user) if w.resource != "leases"]

    def quiet(self, seconds: float, within: float, what: str) -> None:
        """Wait for a stretch of `seconds` in which the operator writes nothing."""
        start, since = self.position(), time.monotonic()
        written: list[Write] = []

        def still() -> bool:
            nonlocal start, since
            if news := self.writes(start):
                written.extend(news)
                start, since = self.position(), time.monotonic()
            return time.monotonic() - since >= seconds

        try:
            eventually(still, within, what, every=1.0)
        except AssertionError as error:
            error.add_note("\n".join(str(write) for write in written[-50:]))
            raise

    def kubeconfig(self, server: str = "") -> dict[str, Any]:
        """The cluster's, with the operator's own user; `server`: another URL of the API server."""
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        ask = ("create", "token", "specpilot", "--namespace", self.namespace, "--duration=4h")
        token = self.cluster.kubectl(*ask).strip()
        current = next(c for c in config["contexts"] if c["name"] == config["current-context"])
        current["context"]["user"] = "specpilot"
        if server:
            config["clusters"] = [{"name": current["context"]["cluster"], "cluster": {"server": server}}]
        return {**config, "users": [{"name": "specpilot", "user": {"token": token}}]}

    def _log(self) -> AuditLog:
        assert self.cluster.audit_log is not None, "this cluster has no audit log"
        return self.cluster.audit_log
