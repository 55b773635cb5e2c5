"""All loops of a leading operator, and how they share caches and queue."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import ClusterError
from specpilot.cluster.events import Events
from specpilot.cluster.kinds import Kind
from specpilot.cluster.nodes import Nodes
from specpilot.config import Config
from specpilot.control import read
from specpilot.control.acknowledge import Acknowledgements
from specpilot.control.faults import unstored
from specpilot.control.live import Live, Measurement
from specpilot.control.profile_choice import keys_of
from specpilot.control.profiles import Profiles, profiler_runs
from specpilot.control.queue import Refusal, Retry, WorkQueue
from specpilot.control.reconcile import Reconciler
from specpilot.control.retune import Retuner
from specpilot.control.rollout import life_of
from specpilot.control.store import Key, Store
from specpilot.control.sync import first_sync, resync
from specpilot.control.telemetry import Telemetry
from specpilot.metrics.source import Metrics
from specpilot.plan.fingerprint import fingerprint
from specpilot.plan.inputs import OperatorFacts
from specpilot.plan.names import profile_job

log = structlog.get_logger(__name__)

PROFILE_PERIOD = 1.0  # seconds between two looks at profilers that measure
UNSTORED_REST = 10.0  # seconds before a profile that could not be written is tried again


class Controller:
    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        metrics: Metrics,
        config: Config,
        facts: OperatorFacts,
        kinds: tuple[Kind, ...],
        telemetry: Telemetry,
    ) -> None:
        self._cluster, self._store, self._metrics, self._config = cluster, store, metrics, config
        self._kinds, self._telemetry = kinds, telemetry
        self.queue: WorkQueue[Key] = WorkQueue()
        events = Events(cluster, config.identity)
        self._reconciler = Reconciler(cluster, store, events, Nodes(cluster), facts, telemetry)
        self._acknowledgements = Acknowledgements(
            cluster, metrics, config.acknowledgement, telemetry, self._reconciler.look, self.queue.add
        )
        self._reconciler.acknowledgements = self._acknowledgements
        self._retuner = Retuner(
            cluster, store, metrics, events, self._reconciler, telemetry, config, self.changed
        )
        self._profiles = Profiles(cluster, metrics, store, self.changed)

    def changed(self, keys: set[Key]) -> None:
        """Something that these objects depend on is another now."""
        for key in keys:
            self.queue.add(key)

    async def work(self) -> None:
        """Everything that writes; runs until cancelled, and only while this replica leads."""
        # The leader before may have written what the watches have not brought here yet.
        await first_sync(self._cluster, self._store, self._kinds, self._config.watch_namespaces)
        self._telemetry.leading.set(1)
        self.changed(set(self._store.mains()))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.queue.run(self._reconcile, self._config.workers))
                group.create_task(self._every(self._config.tick, self._tick, "retune"))
                group.create_task(self._every(PROFILE_PERIOD, self._read_profiles, "profile"))
        finally:
            await self._acknowledgements.aclose()
            self._telemetry.leading.set(0)

    async def keep_in_step(self) -> None:
        """Compare the caches with full lists now and then; standbys do it too."""
        await asyncio.sleep(self._config.resync)
        await self._every(self._config.resync, self._resync, "resync")

    async def _every(self, period: float, do: Callable[[], Awaitable[None]], what: str) -> None:
        """Start to start, so that a slow round does not stretch the next; an error ends one round only."""
        while True:
            started = time.monotonic()
            try:
                await do()
            except ClusterError as e:
                self._telemetry.errors.labels(what).inc()
                log.warning(what, error=e.message)
            except Exception:
                self._telemetry.errors.labels(what).inc()
                log.exception(what)
            await asyncio.sleep(max(0.0, started + period - time.monotonic()))

    async def _reconcile(self, key: Key) -> None:
        try:
            await self._reconciler.reconcile(key)
        except Refusal:
            self._telemetry.reconciles.labels("refused").inc()
            raise
        except Retry:
            self._telemetry.reconciles.labels("retried").inc()
            raise
        except Exception:
            self._telemetry.reconciles.labels("failed").inc()
            raise
        self._telemetry.reconciles.labels("ok").inc()

    async def _tick(self) -> None:
        pods = self._store.all_pods()
        self._telemetry.objects.set(len(self._store.mains()))
        self._acknowledgements.keep({life_of(pod) for pod in pods})
        self._metrics.keep({(p["metadata"]["namespace"], p["metadata"]["name"]) for p in pods})
        await self._retuner.tick()

    async def _read_profiles(self) -> None:
        """All at once: a round lasts as long as its slowest, which a timeout ends."""
        await asyncio.gather(*(self._read_profile(*one) for one in list(self._reconciler.lives.items())))

    async def _read_profile(self, key: Key, live: Live) -> None:
        if live.choice is None or not live.choice.active:
            live.measurement, live.unread = None, ""
            return
        if time.monotonic() < live.unstored_until:
            return
        try:
            finished = await self._measured(key, live)
            live.unstored = 0
            trouble = live.measurement.trouble if live.measurement else ""
        except ClusterError as e:
            self._telemetry.errors.labels("profile").inc()
            log.warning("profile not written", namespace=key[0], name=key[1], error=e.message)
            live.unstored += 1
            live.unstored_until = time.monotonic() + UNSTORED_REST
            finished, trouble = False, unstored(e, live.unstored) or live.unread
        except Exception as e:
            finished, trouble = False, self._reconciler.fault(key, e).message
        if finished or trouble != live.unread:
            live.unread = trouble
            self.queue.add(key)
        if finished:
            live.measurement = None

    async def _measured(self, key: Key, live: Live) -> bool:
        """Take in what one object's profilers measured; whether that is all. Raises ClusterError."""
        sd = live.parsed.sd if live.parsed else None
        if sd is None or live.identity is None:
            return False
        # A tag may have moved: only pods with the very image that the fingerprint names measure it.
        image = live.identity.image_digest
        running = (pod for pod in self._store.pods(key) if profiler_runs(pod))
        pods = [pod for pod in running if read.engine_image(pod)[1] == image]
        if not pods:
            live.measurement = None  # those that come are given their time to answer
            return False
        measurement = live.measurement = live.measurement or Measurement()
        of, keys = fingerprint(sd.spec, image, live.identity.gpu), keys_of(sd, *self._made(key))
        return await self._profiles.read(sd, pods, of, keys, measurement, time.time())

    def _made(self, key: Key) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """An object's Deployment and profiling Job."""
        return self._store.get("Deployment", *key), self._store.get("Job", key[0], profile_job(key[1]))

    async def _resync(self) -> None:
        self.changed(await resync(self._cluster, self._store, self._kinds, self._config.watch_namespaces))
