"""Kubernetes events about our objects, said once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any, Literal

import structlog

from specpilot.api.base import timestamp
from specpilot.api.vocabulary import MANAGER
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import ClusterError, Conflict

log = structlog.get_logger(__name__)

REPEAT_AFTER = 3600.0  # seconds before the same event of the same object is worth saying again
REMEMBERED = 4096  # events; the oldest are forgotten first
MESSAGE_LIMIT = 1024  # characters; the API server refuses more

Body = dict[str, Any]


class Events:
    """Best effort: an event that cannot be written is logged and never fails the work it tells of."""

    def __init__(self, cluster: Cluster, instance: str) -> None:
        self._cluster = cluster
        self._instance = instance
        self._said: OrderedDict[tuple[str, ...], float] = OrderedDict()

    async def say(
        self, about: Body, kind: Literal["Normal", "Warning"], reason: str, message: str, now: float
    ) -> None:
        """`about` is the object's body, `now` epoch seconds."""
        meta = about["metadata"]
        key = (meta["uid"], kind, reason, message)
        if now - self._said.get(key, -REPEAT_AFTER) < REPEAT_AFTER:
            return
        self._said[key] = now
        self._said.move_to_end(key)
        while len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        try:
            await self._cluster.create(self._body(about, kind, reason, message, now))
        except Conflict:
            return
        except ClusterError as e:
            log.warning("event not written", name=meta["name"], reason=reason, error=e.message)

    def _body(self, about: Body, kind: str, reason: str, message: str, now: float) -> Body:
        meta = about["metadata"]
        at = timestamp(now)
        tail = hashlib.sha256(f"{meta['uid']}{reason}{message}{now}".encode()).hexdigest()[:16]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{tail}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
                "resourceVersion": meta.get("resourceVersion", ""),
            },
            "type": kind,
            "reason": reason,
            "message": message[:MESSAGE_LIMIT],
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "reportingInstance": self._instance,
        }
