"""One replica works, the others wait with warm caches: a Lease of our own.

The client library's elector is not used: its Lease lock cannot create the Lease, and it runs on when the
lease is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import ClusterError, Conflict
from specpilot.cluster.kinds import LEASE

log = structlog.get_logger(__name__)
Body = dict[str, Any]
STOPPING = 2.0  # seconds that cancelled work may take, of those between renew deadline and expiry


class LeaseLost(Exception):
    """The Lease could not be renewed in time; another replica may be working by now."""


class Leader:
    """Times are seconds on this machine's monotonic clock: other machines' clocks may be wrong, so a
    Lease counts as expired when it has not changed for its duration as seen from here."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        identity: str,
        duration: float = 15,
        renew_deadline: float = 10,
        retry_period: float = 2,
    ) -> None:
        self._cluster, self._namespace, self._name, self._identity = cluster, namespace, name, identity
        self._duration, self._deadline, self._period = duration, renew_deadline, retry_period
        self._seen: tuple[str, str] = ("", "")  # holder and renewTime
        self._seen_at = float("-inf")
        self._lease: Body | None = None
        self.leading = False

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then run `work` while it is held; cancelled, it gives the Lease back.

        Raises LeaseLost after `work` has been cancelled, and whatever `work` raises.
        """
        while not await self._try():
            await asyncio.sleep(self._period * (1 + 0.2 * random.random()))
        log.info("leading", lease=f"{self._namespace}/{self._name}", identity=self._identity)
        self.leading = True
        task = asyncio.ensure_future(work())
        try:
            await self._hold(task)
        finally:
            self.leading = False
            task.cancel()
            await asyncio.wait([task], timeout=STOPPING)
            if task.done():  # else it may still write, and the next one waits for the expiry
                with contextlib.suppress(Exception):
                    await self._give_back()
        if task.done() and not task.cancelled():
            task.result()

    async def _hold(self, task: asyncio.Future[None]) -> None:
        renewed = started = time.monotonic()
        while not task.done():
            # From start to start: after an attempt that took long the next is due.
            await asyncio.wait([task], timeout=max(0.0, started + self._period - time.monotonic()))
            if task.done():
                return
            started = time.monotonic()
            left = max(renewed + self._deadline - started, 0.1)
            # One request whose answer is lost must leave time for another; that one has to read first.
            if await self._try(within=left if self._lease is None else min(left, self._deadline / 2)):
                renewed = started
            elif time.monotonic() - renewed >= self._deadline:
                log.error("lease lost", lease=f"{self._namespace}/{self._name}")
                raise LeaseLost(f"Lease {self._namespace}/{self._name} could not be renewed in time.")

    async def _try(self, within: float = 10.0) -> bool:
        """Acquire or renew once. Whatever goes wrong is a False: the caller knows what time it is."""
        try:
            async with asyncio.timeout(within):
                return await self._acquire()
        except Conflict:
            self._lease = None
        except TimeoutError:
            log.warning("lease: the API server does not answer in time", within=round(within, 1))
        except ClusterError as e:
            log.warning("lease", error=e.message)
        except Exception:
            log.exception("lease")
        return False

    async def _acquire(self) -> bool:
        lease = self._lease or await self._cluster.get(LEASE, self._namespace, self._name)
        if lease is None:
            self._lease = await self._cluster.create(self._body({}, transitions=0))
            return True
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        record = (holder, str(spec.get("renewTime")))
        if record != self._seen:
            self._seen, self._seen_at = record, time.monotonic()
        theirs = float(spec.get("leaseDurationSeconds") or self._duration)
        if holder not in ("", self._identity) and time.monotonic() - self._seen_at < theirs:
            self._lease = None
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (holder != self._identity)
        self._lease = None  # read anew after a failure
        self._lease = await self._cluster.replace(self._body(lease, transitions))
        return True

    async def _give_back(self) -> None:
        """So that the next replica need not wait for the expiry."""
        if self._lease is None:
            return
        body = self._body(self._lease, int(self._lease["spec"].get("leaseTransitions") or 0))
        body["spec"]["holderIdentity"] = ""
        async with asyncio.timeout(STOPPING):
            await self._cluster.replace(body)
        log.info("lease given back")

    def _body(self, lease: Body, transitions: int) -> Body:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        meta = {"name": self._name, "namespace": self._namespace}
        if "metadata" in lease:
            meta["resourceVersion"] = lease["metadata"]["resourceVersion"]
        before = lease.get("spec") or {}
        held = before.get("holderIdentity") == self._identity
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": meta,
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": math.ceil(self._duration),
                "acquireTime": before["acquireTime"] if held and before.get("acquireTime") else now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }
