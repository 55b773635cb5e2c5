"""Status, written by server-side apply on /status and only when it differs."""

from __future__ import annotations

import time
from typing import Any

from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import Invalid
from specpilot.cluster.missing import Missing

Body = dict[str, Any]


def differs(observed: Body, status: Body) -> bool:
    """Whether `status` says something else than the object's, conditions of other authors aside."""
    present = dict(observed.get("status") or {})
    ours = {c["type"] for c in status.get("conditions") or []}
    conditions = [c for c in present.get("conditions") or [] if c.get("type") in ours]
    return _sorted({**present, "conditions": conditions}) != _sorted(status)


async def write_status(cluster: Cluster, observed: Body, status: Body) -> Body | None:
    """The object as written, or None where nothing had to be. Raises ClusterError.

    A field that the cluster's CRD does not have yet is left out: the rest is worth saying.
    """
    meta, missing = observed["metadata"], cluster.missing.setdefault(observed["kind"], Missing())
    while differs(observed, said := missing.without(status, time.monotonic())):
        body = {
            "apiVersion": observed["apiVersion"],
            "kind": observed["kind"],
            # The uid keeps a status of a deleted object from being given to its successor.
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "status": said,
        }
        try:
            written = await cluster.apply(body, subresource="status")
        except Invalid as e:
            if not missing.learn(e.message, said, time.monotonic()):
                raise
            continue
        missing.forget(said)
        return written
    return None


def older_crd(cluster: Cluster, kind: str) -> str:
    """What to do about a CRD without fields of this operator's status; "" where none is known to be missing."""
    missing = cluster.missing.get(kind)
    if missing is None or not missing.until:
        return ""
    fields = ", ".join(f"status.{'.'.join(path)}" for path in sorted(missing.until))
    return (
        f"the cluster's CustomResourceDefinition is of another version and has no {fields}: install this operator's"
        " with `specpilot crd | kubectl apply --server-side -f -`"
    )


def _sorted(status: Body) -> Body:
    conditions = sorted(status.get("conditions") or [], key=lambda c: str(c.get("type")))
    return {**status, "conditions": conditions}
