"""Nodes: what a pod runs on, and whether one more pod would find what it asks for."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

import structlog
from kubernetes.utils.quantity import parse_quantity

from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import ClusterError, Forbidden
from specpilot.cluster.kinds import NODE, POD

log = structlog.get_logger(__name__)
Body = dict[str, Any]
Amounts = dict[str, Decimal]  # by resource

PLENTY = 1_000_000  # pods
REMEMBERED = 4096  # nodes; the first that were asked for are forgotten first
UNNAMED = 60.0  # seconds before a node that says no device is asked again: new ones are labelled later
_PODS = "pods"  # of which a node takes so many, whatever they ask for
_DIGITS = 30  # more than Kubernetes knows numbers of
# Written by the vendors' feature discovery.
_PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")


class Nodes:
    """Asks the API server when it is asked: nodes and other people's pods are not worth a cache."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # With the time (monotonic) until which each is taken for granted.
        self._names: OrderedDict[tuple[str, bool], tuple[str, float]] = OrderedDict()

    async def device(self, node: str, accelerated: bool) -> str:
        """What a pod on `node` computes with: the GPU's product name, or the kind and number of CPUs.

        "" where the node does not say, or where the operator may not look.
        """
        name, until = self._names.get((node, accelerated), ("", 0.0))
        if time.monotonic() < until:
            return name
        try:
            name = _name(await self._cluster.get(NODE, None, node) or {}, accelerated)
        except ClusterError as e:
            log.info("device unknown", node=node, error=e.message)
            if not isinstance(e, Forbidden):
                return ""
        self._names[node, accelerated] = name, math.inf if name else time.monotonic() + UNNAMED
        if len(self._names) > REMEMBERED:
            self._names.popitem(last=False)
        return name

    async def room(self, pod: Body) -> int:
        """How many more pods that ask for what this one does would fit at this moment; 0 where the operator
        may not look. Who asks for nothing always fits."""
        wanted = requested(pod)
        if not wanted:
            return PLENTY
        try:
            nodes, _ = await self._cluster.list(NODE)
            pods, _ = await self._cluster.list(POD, fields="status.phase!=Succeeded,status.phase!=Failed")
        except ClusterError as e:
            log.info("room unknown", error=e.message)
            return 0
        wanted = {**wanted, _PODS: Decimal(1)}
        free = {n["metadata"]["name"]: _allocatable(n, wanted) for n in nodes if _usable(n)}
        for one in pods:
            left = free.get((one.get("spec") or {}).get("nodeName"))
            if left is not None:
                for resource, amount in {**requested(one), _PODS: Decimal(1)}.items():
                    left[resource] = left.get(resource, Decimal()) - amount
        return sum(
            max(0, min(int(left[resource] / amount) for resource, amount in wanted.items()))
            for left in free.values()
        )


def requested(pod: Body) -> Amounts:
    """What a pod holds of each resource, zeros left out, as the scheduler counts it: the sum of its containers and
    sidecars, or what one of its init containers needs before them; and its overhead."""
    spec = pod.get("spec") or {}
    total: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or []:
        mine = _asked(container)
        if container.get("restartPolicy") == "Always":
            total = _sum(total, mine)
            mine = {}
        most = _max(most, _sum(total, mine))
    for container in spec.get("containers") or []:
        total = _sum(total, _asked(container))
    whole = _sum(_max(total, most), _amounts(spec.get("overhead") or {}))
    return {resource: amount for resource, amount in whole.items() if amount > 0}


def _asked(container: Body) -> Amounts:
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return {name: one.get(name, Decimal()) + other.get(name, Decimal()) for name in {**one, **other}}


def _max(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, Decimal()), other.get(name, Decimal())) for name in {**one, **other}}


def _amounts(quantities: Mapping[str, Any]) -> Amounts:
    """Those that are none, which the API server will refuse, count as nothing."""
    found = {}
    for name, text in quantities.items():
        with suppress(ValueError, ArithmeticError):
            if (amount := parse_quantity(text)).is_finite() and amount.adjusted() < _DIGITS:
                found[name] = amount
    return found


def _name(node: Body, accelerated: bool) -> str:
    if accelerated:
        labels = node.get("metadata", {}).get("labels") or {}
        return next((labels[label] for label in _PRODUCT_LABELS if labels.get(label)), "")
    status = node.get("status") or {}
    architecture = (status.get("nodeInfo") or {}).get("architecture", "")
    return f"cpu-{architecture}-{(status.get('capacity') or {}).get('cpu', '')}" if architecture else ""


def _usable(node: Body) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and not (node.get("spec") or {}).get("unschedulable")


def _allocatable(node: Body, wanted: Amounts) -> Amounts:
    allocatable = _amounts(node["status"].get("allocatable") or {})
    return {name: allocatable.get(name, Decimal()) for name in wanted}
