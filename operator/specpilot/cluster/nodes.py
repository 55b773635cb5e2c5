"""Nodes and their devices: what a pod runs on, and whether one more pod would find its devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import ClusterError
from specpilot.cluster.kinds import NODE, POD

log = structlog.get_logger(__name__)
Body = dict[str, Any]

# Written by the vendors' feature discovery.
_PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")


class Devices:
    """Asks the API server when it is asked: nodes and other people's pods are not worth a cache."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: dict[tuple[str, bool], str] = {}

    async def name(self, node: str, accelerated: bool) -> str:
        """What a pod on `node` computes with: the GPU's product name, or the kind and number of CPUs.

        "" where the node does not say, or where the operator may not look.
        """
        if (node, accelerated) not in self._names:
            try:
                body = await self._cluster.get(NODE, None, node)
            except ClusterError as e:
                log.info("device unknown", node=node, error=e.message)
                return ""
            self._names[node, accelerated] = _name(body or {}, accelerated)
        return self._names[node, accelerated]

    async def room(self, wanted: Mapping[str, int]) -> int:
        """How many more pods that each want these devices would fit at this moment; 0 where the operator
        may not look."""
        if not wanted:
            return 0
        try:
            nodes, _ = await self._cluster.list(NODE)
            pods, _ = await self._cluster.list(POD, fields="status.phase!=Succeeded,status.phase!=Failed")
        except ClusterError as e:
            log.info("free devices unknown", error=e.message)
            return 0
        free = {n["metadata"]["name"]: _allocatable(n, wanted) for n in nodes if _usable(n)}
        for pod in pods:
            node = (pod.get("spec") or {}).get("nodeName")
            if node in free:
                for device, amount in requested(pod, wanted).items():
                    free[node][device] -= amount
        return sum(
            max(0, min(left[device] // amount for device, amount in wanted.items())) for left in free.values()
        )


def requested(pod: Body, wanted: Mapping[str, int]) -> dict[str, int]:
    """Devices of the `wanted` kinds that a pod holds: the sum of its containers and sidecars, or what one
    of its init containers needs before them."""
    spec = pod.get("spec") or {}
    total = dict.fromkeys(wanted, 0)
    most = dict.fromkeys(wanted, 0)
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        limits = (container.get("resources") or {}).get("limits") or {}
        first = container in (spec.get("initContainers") or []) and container.get("restartPolicy") != "Always"
        for device in wanted:
            amount = _count(limits.get(device, 0))
            if first:
                most[device] = max(most[device], total[device] + amount)
            else:
                total[device] += amount
    return {device: max(total[device], most[device]) for device in wanted}


def _name(node: Body, accelerated: bool) -> str:
    if accelerated:
        labels = node.get("metadata", {}).get("labels") or {}
        return next((labels[label] for label in _PRODUCT_LABELS if labels.get(label)), "")
    status = node.get("status") or {}
    architecture = (status.get("nodeInfo") or {}).get("architecture", "")
    return f"cpu-{architecture}-{(status.get('capacity') or {}).get('cpu', '')}" if architecture else ""


def _usable(node: Body) -> bool:
    ready = any(
        c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or []
    )
    return ready and not (node.get("spec") or {}).get("unschedulable")


def _allocatable(node: Body, wanted: Mapping[str, int]) -> dict[str, int]:
    allocatable = node["status"].get("allocatable") or {}
    return {device: _count(allocatable.get(device, 0)) for device in wanted}


def _count(text: Any) -> int:
    return int(text) if str(text).isdigit() else 0
