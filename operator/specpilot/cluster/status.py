"""Status, written by server-side apply on /status and only when it differs."""

from __future__ import annotations

from typing import Any

from specpilot.cluster.client import Cluster

Body = dict[str, Any]


def differs(observed: Body, status: Body) -> bool:
    """Whether `status` says something else than the object's, conditions of other authors aside."""
    present = dict(observed.get("status") or {})
    ours = {c["type"] for c in status.get("conditions") or []}
    conditions = [c for c in present.get("conditions") or [] if c.get("type") in ours]
    return _sorted({**present, "conditions": conditions}) != _sorted(status)


async def write_status(cluster: Cluster, observed: Body, status: Body) -> Body | None:
    """The object as written, or None where nothing had to be. Raises ClusterError."""
    if not differs(observed, status):
        return None
    meta = observed["metadata"]
    body = {
        "apiVersion": observed["apiVersion"],
        "kind": observed["kind"],
        # The uid keeps a status of a deleted object from being given to its successor.
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
        "status": status,
    }
    return await cluster.apply(body, subresource="status")


def _sorted(status: Body) -> Body:
    conditions = sorted(status.get("conditions") or [], key=lambda c: str(c.get("type")))
    return {**status, "conditions": conditions}
