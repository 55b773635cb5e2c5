"""The operator's process: `specpilot operator`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from pathlib import Path

import kopf
import structlog
from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from specpilot import handlers, logs
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import ClusterError, Unavailable
from specpilot.cluster.kinds import POD_MONITOR, Kind
from specpilot.config import Config, ConfigError, load
from specpilot.control.controller import Controller
from specpilot.control.leader import Leader, LeaseLost
from specpilot.control.store import Store
from specpilot.control.sync import INSTALL_CRDS, RETRY, first_sync, watched
from specpilot.control.telemetry import Telemetry
from specpilot.metrics.prometheus import Endpoint
from specpilot.metrics.source import Metrics
from specpilot.plan.inputs import OperatorFacts

log = structlog.get_logger(__name__)

EXIT_OK, EXIT_FAILED, EXIT_CONFIG = 0, 1, 2
ENDING = 5.0  # seconds for each part to end, within Kubernetes' thirty


def operator_command(config_file: Path | None = None) -> int:
    """Run until a signal; the exit status: 0 after a signal, 1 for Kubernetes to start it again (a lost
    Lease), 2 for a configuration that cannot be used."""
    try:
        config = load(path=config_file)
    except ConfigError as e:
        for problem in e.problems:
            print(f"specpilot operator: {problem}", file=sys.stderr)
        return EXIT_CONFIG
    logs.configure(config.log_level)
    try:
        return asyncio.run(run(config))
    except ClusterError as e:
        print(f"specpilot operator: {e.message}", file=sys.stderr)
    except OSError as e:
        print(
            f"specpilot operator: {e.strerror or e}: free the port or set another one in ports.",
            file=sys.stderr,
        )
    return EXIT_FAILED


async def run(config: Config) -> int:
    """Serve health and metrics, fill the caches, then lead or stand by. Returns the exit status."""
    cluster = await Cluster.connect()
    store, telemetry, synced = Store(), Telemetry(), asyncio.Event()
    metrics = Metrics(_endpoints(config), config.missed_ticks)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(cluster.aclose)
        stack.push_async_callback(metrics.aclose)
        for port, app in (
            (config.ports.health, _health(synced)),
            (config.ports.metrics, _metrics(telemetry)),
        ):
            await stack.enter_async_context(_served(app, port))
        main = asyncio.create_task(_operate(cluster, store, metrics, telemetry, config, synced, stop))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([main, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if stop.is_set():
            log.info("stopping")
        main.cancel()
        try:
            await main
        except asyncio.CancelledError:
            return EXIT_OK
        except (LeaseLost, ClusterError) as e:
            log.error("ended", error=str(e))
        except Exception:
            log.exception("ended")
        return EXIT_FAILED


async def _operate(
    cluster: Cluster,
    store: Store,
    metrics: Metrics,
    telemetry: Telemetry,
    config: Config,
    synced: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    pod_monitor = await _has_pod_monitor(cluster)
    kinds = watched(config.network_policy, pod_monitor)
    await first_sync(cluster, store, kinds, config.watch_namespaces)
    synced.set()
    log.info("caches are filled", objects=len(store.mains()))
    facts = OperatorFacts(
        engine_image=config.engine_image,
        operator_namespace=config.namespace,
        pod_monitor=pod_monitor,
        network_policy=config.network_policy,
        pull_policy=config.pull_policy,
        scrape_namespaces=tuple(config.scrape_namespaces),
    )
    controller = Controller(cluster, store, metrics, config, facts, kinds, telemetry)
    # kopf cancels every task that began after it when it ends, so the leader is ended before it.
    await _until_one_ends(
        [
            asyncio.create_task(_lead(cluster, controller, config)),
            asyncio.create_task(controller.keep_in_step()),
            asyncio.create_task(_watch(kinds, store, controller, config, stop)),
        ]
    )


async def _until_one_ends(tasks: Sequence[asyncio.Task[None]]) -> None:
    """None of them ends by itself when all is well; the others are then ended in the given order."""
    done: set[asyncio.Task[None]] = set()
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
            await asyncio.wait([task], timeout=ENDING)
    for task in done:
        task.result()


async def _watch(
    kinds: Sequence[Kind], store: Store, controller: Controller, config: Config, stop: asyncio.Event
) -> None:
    """kopf in this event loop, with its signal handlers replaced by ours."""
    settings = handlers.settings()
    handlers.select(settings, kinds)
    ready = asyncio.Event()
    task = asyncio.create_task(
        kopf.operator(
            registry=handlers.registry(kinds, store, controller.changed),
            settings=settings,
            identity=config.identity,  # kopf would ask for a user's name, which a pod may not have
            clusterwide=not config.watch_namespaces,
            namespaces=config.watch_namespaces,
            ready_flag=ready,
        )
    )
    await asyncio.wait([task, asyncio.create_task(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await task
    except Exception as e:
        if getattr(e, "status", None) == HTTPStatus.NOT_FOUND:
            raise ClusterError(f"a kind is gone from the cluster: {INSTALL_CRDS}") from None
        raise
    raise RuntimeError("the watches ended")


async def _lead(cluster: Cluster, controller: Controller, config: Config) -> None:
    lease = config.lease
    if not lease.enabled:
        await controller.work()
        return
    leader = Leader(
        cluster,
        config.namespace,
        lease.name,
        config.identity,
        lease.duration,
        lease.renew_deadline,
        lease.retry_period,
    )
    await leader.run(controller.work)


async def _has_pod_monitor(cluster: Cluster) -> bool:
    while True:
        try:
            return await cluster.exists(POD_MONITOR)
        except Unavailable as e:  # without an API server there is nothing else to do either
            log.warning("waiting for the API server", error=e.message)
            await asyncio.sleep(RETRY)
        except ClusterError as e:
            log.warning("PodMonitor is left out until a restart", error=e.message)
            return False


def _endpoints(config: Config) -> list[Endpoint]:
    return [
        Endpoint(
            name=e.name,
            url=e.url,
            token_file=str(e.token_file) if e.token_file else None,
            ca_file=str(e.ca_file) if e.ca_file else None,
            headers=e.headers,
            header_files={name: str(file) for name, file in e.header_files.items()},
            insecure=e.insecure_skip_verify,
            timeout=e.timeout,
            window=e.window,
        )
        for e in config.prometheus
    ]


def _health(synced: asyncio.Event) -> web.Application:
    """/healthz answers while the event loop turns, whatever the API server does: a restart would not help."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if synced.is_set():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the caches are not filled yet\n")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


def _metrics(telemetry: Telemetry) -> web.Application:
    async def show(_: web.Request) -> web.Response:
        body = generate_latest(telemetry.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", show)
    return app


@contextlib.asynccontextmanager
async def _served(app: web.Application, port: int) -> AsyncIterator[None]:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    sys.exit(operator_command(None))
