"""The few requests that `up` and `status` make to the API server."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from functools import cached_property
from typing import Any

from .layout import NODE, SERVER, Layout, TroubleError

NODE_PATH = f"/api/v1/nodes/{NODE}"
RBAC_PATH = "/apis/rbac.authorization.k8s.io/v1"


class Api:
    """The API server as its administrator sees it."""

    def __init__(self, layout: Layout) -> None:
        self._pki = layout.pki

    @cached_property
    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._pki / "ca.crt"))
        context.load_cert_chain(self._pki / "admin.crt", self._pki / "admin.key")
        return context

    def _request(
        self, path: str, method: str = "GET", body: Any = None, kind: str = "application/json"
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            SERVER + path, data, headers={"Content-Type": kind, "Accept": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, context=self._context, timeout=5) as answer:
            text = answer.read()
        return json.loads(text) if text.startswith(b"{") else text.decode()

    def ready(self) -> bool:
        try:
            return bool(self._request("/readyz") == "ok")
        except OSError:
            return False

    def node_ready(self) -> bool:
        try:
            node = self._request(NODE_PATH)
        except OSError:
            return False
        conditions = node["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def allow_dns(self) -> None:
        """Let CoreDNS read what it answers from."""
        watched = {
            "apiGroups": [""],
            "resources": ["services", "namespaces", "pods"],
            "verbs": ["list", "watch"],
        }
        slices = {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        }
        name = {"metadata": {"name": "localkube:dns"}}
        role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "localkube:dns"}
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "localkube:dns"}
        self._request(f"{RBAC_PATH}/clusterroles", "POST", {**name, "rules": [watched, slices]})
        binding = {**name, "roleRef": role, "subjects": [subject]}
        self._request(f"{RBAC_PATH}/clusterrolebindings", "POST", binding)

    def advertise(self, resources: dict[str, int]) -> None:
        """Give the node so many of each extended resource, as a device plugin would."""
        patch = [
            {
                "op": "add",
                "path": f"/status/capacity/{name.replace('~', '~0').replace('/', '~1')}",
                "value": str(n),
            }
            for name, n in resources.items()
        ]
        try:
            self._request(f"{NODE_PATH}/status", "PATCH", patch, "application/json-patch+json")
        except urllib.error.HTTPError as error:
            reason = json.loads(error.read()).get("message", error.reason)
            raise TroubleError(
                f"The node refused the extended resources ({reason}): use NAME/KIND=COUNT."
            ) from None
