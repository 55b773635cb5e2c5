"""The one thing we change on running pods: an annotation that makes the kubelet sync their volumes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from specpilot.api.vocabulary import ANNOTATION_NUDGE
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import ClusterError, NotFound
from specpilot.cluster.kinds import POD

PARALLEL = 32  # patches under way at once


async def nudge(cluster: Cluster, pods: Collection[tuple[str, str]], value: str) -> list[ClusterError]:
    """Set the annotation of (namespace, name) pods to `value`; pods that are gone are passed over.

    Returns the errors of the others. A kubelet syncs a changed ConfigMap within a second of such a
    change, and within a minute or more without.
    """
    limit = asyncio.Semaphore(PARALLEL)
    patch = {"metadata": {"annotations": {ANNOTATION_NUDGE: value}}}

    async def one(namespace: str, name: str) -> ClusterError | None:
        async with limit:
            try:
                await cluster.merge(POD, namespace, name, patch)
            except NotFound:
                return None
            except ClusterError as e:
                return e
        return None

    results = await asyncio.gather(*(one(*pod) for pod in pods))
    return [error for error in results if error is not None]
