"""Full lists into the caches: at the start, so that nothing is decided on half of the facts, and now and
then after, because a watch that was interrupted for too long does not tell what was deleted meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from specpilot.api.vocabulary import LABEL_MANAGED_BY, MANAGER
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import ClusterError, NotFound
from specpilot.cluster.kinds import (
    CHILDREN,
    CONFIG_MAP,
    COST_PROFILE,
    NETWORK_POLICY,
    POD,
    POD_MONITOR,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from specpilot.control.store import Key, Store
from specpilot.plan.names import schedule_config_map

log = structlog.get_logger(__name__)
OURS = f"{LABEL_MANAGED_BY}={MANAGER}"
INSTALL_CRDS = "install the CRDs with `specpilot crd | kubectl apply --server-side -f -`"
RETRY = 3.0  # seconds between attempts of the first list


def watched(network_policy: bool, pod_monitor: bool) -> tuple[Kind, ...]:
    """What to keep in the caches: our resources, and of the others those that carry our label."""
    optional = [
        kind for kind, wanted in ((NETWORK_POLICY, network_policy), (POD_MONITOR, pod_monitor)) if wanted
    ]
    return (SPECULATIVE_DEPLOYMENT, COST_PROFILE, POD, *CHILDREN, *optional)


def selector(kind: Kind) -> str:
    """Label selector for lists and watches of a kind."""
    return "" if kind in (SPECULATIVE_DEPLOYMENT, COST_PROFILE) else OURS


async def resync(
    cluster: Cluster, store: Store, kinds: Sequence[Kind], namespaces: Sequence[str]
) -> set[Key]:
    """List everything; the SpeculativeDeployments that something new was learnt about.

    Without `namespaces` over the whole cluster. Raises ClusterError.
    """
    concerned: set[Key] = set()
    for kind in kinds:
        for namespace in namespaces or [""]:
            bodies, version = await cluster.list(kind, namespace or None, labels=selector(kind))
            concerned |= store.replace(kind.name, bodies, version, namespace)
    return concerned


async def reread(cluster: Cluster, store: Store, key: Key) -> None:
    """The schedule's ConfigMap into the cache: the answer to a write of ours got lost, or an operator whose Lease
    has run out wrote it, and the watch has not told yet. Raises ClusterError."""
    body = await cluster.get(CONFIG_MAP, key[0], schedule_config_map(key[1]))
    if body is not None:
        store.put(body)


async def first_sync(
    cluster: Cluster, store: Store, kinds: Sequence[Kind], namespaces: Sequence[str]
) -> None:
    """`resync` before anything else, until it works: an API server that is away, or CRDs that come later,
    are waited for."""
    said = ""
    while True:
        try:
            await resync(cluster, store, kinds, namespaces)
            return
        except NotFound as e:
            message = f"{e.message}: {INSTALL_CRDS}"
        except ClusterError as e:
            message = e.message
        if message != said:
            log.warning("waiting for the cluster", error=message)
            said = message
        await asyncio.sleep(RETRY)
