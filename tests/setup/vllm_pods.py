"""The real vLLM in pods: this machine's environment mounted at its own path.

Pods under restricted security may not mount host paths, but may claim volumes: the volumes are made here,
and the image `vllm-cpu` finds the environment on its PATH.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deploy.console import cache
from tests.setup.cluster import Cluster
from tests.setup.vllm import Vllm

CONTAINER = "vllm"


def pod_template(cluster: Cluster, namespace: str, vllm: Vllm) -> dict[str, Any]:
    """Make volumes and claims in `namespace`; answers the podTemplate that mounts them into the engine.

    Mounted, read-only, each at its own path: the environment, the interpreter it was made from, and the
    cache's models.
    """
    folders = {"vllm": vllm.venv, "models": cache() / "models"}
    if vllm.interpreter != Path("/usr"):  # that one is in the image
        folders["interpreter"] = vllm.interpreter
    for name, folder in folders.items():
        mount(cluster, namespace, name, folder)
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in folders]
    mounts = [{"name": name, "mountPath": str(folder), "readOnly": True} for name, folder in folders.items()]
    return {"spec": {"volumes": volumes, "containers": [{"name": CONTAINER, "volumeMounts": mounts}]}}


def remove(cluster: Cluster, namespace: str) -> None:
    """Remove the volumes; their claims go with the namespace."""
    cluster.kubectl(
        "delete", "persistentvolume", "--selector", f"specpilot-tests={namespace}", "--wait=false"
    )


def mount(cluster: Cluster, namespace: str, claim: str, folder: Path) -> None:
    """Make a volume of a folder of this machine, and a claim on it that pods of `namespace` may mount."""
    cluster.apply(*_volume(f"{namespace}-{claim}", claim, namespace, folder))


def _volume(name: str, claim: str, namespace: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    size = {"storage": "20Gi"}
    common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {"specpilot-tests": namespace}},
        "spec": {
            **common,
            "capacity": size,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"name": claim, "namespace": namespace},
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }
    wanted = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim, "namespace": namespace},
        "spec": {**common, "resources": {"requests": size}, "volumeName": name},
    }
    return volume, wanted
