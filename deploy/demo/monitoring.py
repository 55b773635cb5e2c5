"""A Prometheus in the cluster, and the questions that the demo asks it."""

from __future__ import annotations

import json
import math
import shutil
import urllib.parse
from pathlib import Path
from typing import Any

import yaml
from deploy.console import TroubleError, cache
from deploy.demo import discovery
from tests.setup import vllm_pods
from tests.setup.cluster import Cluster

NAME, PORT = "prometheus", 9090
SCRAPE = "2s"
CONFIG, TARGETS, DATA = "/etc/prometheus", "/targets", "/data"

Body = dict[str, Any]


class Prometheus:
    """This machine's program in a pod, since there may be no registry to take an image from.

    `image`: any with Python and a C library, for the program and for the discovery beside it.
    """

    def __init__(self, cluster: Cluster, namespace: str, image: str) -> None:
        self._cluster, self._namespace, self._image = cluster, namespace, image
        self.url = f"http://{NAME}.{namespace}:{PORT}"  # within the cluster

    def start(self) -> None:
        """Apply everything, and wait until it answers."""
        program = shutil.which("prometheus")
        if not program:
            raise TroubleError("Prometheus is missing: install it (Debian's package is called prometheus).")
        folder = cache() / "prometheus"  # which clusters in Docker mount too
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, folder / "prometheus")
        vllm_pods.mount(self._cluster, self._namespace, NAME, folder)
        self._cluster.apply(*self._objects(folder), namespace=self._namespace)
        where = ("--namespace", self._namespace, "--timeout=120s")
        self._cluster.kubectl("rollout", "status", f"deployment/{NAME}", *where)

    def stop(self) -> None:
        """Remove what does not go with its namespace."""
        self._cluster.kubectl("delete", "clusterrole,clusterrolebinding", self._account, "--ignore-not-found")

    def ask(self, expression: str) -> float | None:
        """The one value of an instant query; None where there is none (yet)."""
        query = urllib.parse.urlencode({"query": expression})
        path = f"/api/v1/namespaces/{self._namespace}/services/{NAME}:{PORT}/proxy/api/v1/query?{query}"
        text = self._cluster.kubectl("get", "--raw", path, check=False)
        result = json.loads(text)["data"]["result"] if text else []
        value = float(result[0]["value"][1]) if result else math.nan
        return None if math.isnan(value) else value

    @property
    def _account(self) -> str:
        return f"{NAME}.{self._namespace}"

    def _objects(self, folder: Path) -> list[Body]:
        named = {"name": NAME, "labels": {"app.kubernetes.io/name": NAME}}
        account = {"kind": "ServiceAccount", "name": NAME, "namespace": self._namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self._account}
        files = {
            "prometheus.yml": yaml.safe_dump(
                discovery.configuration(SCRAPE, Path(TARGETS) / "targets.json"), sort_keys=False
            ),
            "discovery.py": Path(discovery.__file__).read_text(),
        }
        return [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": self._account},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": self._account},
                "roleRef": role,
                "subjects": [account],
            },
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": files},
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": named,
                "spec": {"selector": named["labels"], "ports": [{"port": PORT, "targetPort": PORT}]},
            },
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": named,
                "spec": {
                    "selector": {"matchLabels": named["labels"]},
                    "template": {"metadata": {"labels": named["labels"]}, "spec": self._pod(folder)},
                },
            },
        ]

    def _pod(self, folder: Path) -> Body:
        def container(name: str, *command: str, **more: Any) -> Body:
            places = {"config": CONFIG, "targets": TARGETS, "data": DATA, "program": str(folder)}
            return {
                "name": name,
                "image": self._image,
                "imagePullPolicy": "IfNotPresent",
                "command": list(command),
                "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in places.items()],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                **more,
            }

        options = (f"--config.file={CONFIG}/prometheus.yml", f"--storage.tsdb.path={DATA}")
        ready = {"httpGet": {"path": "/-/ready", "port": PORT}, "periodSeconds": 1}
        return {
            "serviceAccountName": NAME,
            "terminationGracePeriodSeconds": 2,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "fsGroup": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                container(NAME, f"{folder}/prometheus", *options, readinessProbe=ready),
                container("discovery", "python3", f"{CONFIG}/discovery.py", f"{TARGETS}/targets.json"),
            ],
            "volumes": [
                {"name": "config", "configMap": {"name": NAME}},
                {"name": "targets", "emptyDir": {}},
                {"name": "data", "emptyDir": {}},
                {"name": "program", "persistentVolumeClaim": {"claimName": NAME, "readOnly": True}},
            ],
        }
