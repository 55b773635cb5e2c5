"""One replica: the processes of its pod, kept running and watched until they serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from specpilot.api import vocabulary as v
from specpilot.local.errors import LocalError
from specpilot.local.pod import Launch, LocalPod, Machine, Ports, loopback
from specpilot.local.points import renew
from specpilot.local.process import Process
from specpilot.metrics.scrape import Target
from specpilot.metrics.source import Metrics
from specpilot_engine.protocol import ENV_PROFILE_FILE, ENV_READY_FILE

HEALTH_PATH = "/health"
_LOOK = 0.25  # seconds between looks at a replica that is not ready
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds before a container that ended is started again
_STABLE = 60.0  # seconds after which an end is a new story
_ATTEMPTS = 3  # of a container that never served: then waiting helps nobody


class Phase(StrEnum):
    STARTING = "starting"
    PROFILING = "profiling"
    READY = "ready"
    RESTARTING = "restarting"


class Replica:
    """Runs `pod`; `say` is told, in one sentence, of whatever a person should hear."""

    def __init__(
        self,
        pod: LocalPod,
        namespace: str,
        ports: Ports,
        machine: Machine,
        metrics: Metrics,
        say: Callable[[str], None],
    ) -> None:
        self.pod, self.ports = pod, ports
        self.phase = Phase.STARTING
        self.failure: LocalError | None = None  # why this replica will never serve
        self.served = False
        self._machine, self._metrics, self._say = machine, metrics, say
        self._life = 0
        # Both are made by the profiler that runs beside the engine, if one does.
        self._may_serve, self._points = (
            next((Path(at) for launch in pod.launches if (at := launch.env.get(name))), None)
            for name in (ENV_READY_FILE, ENV_PROFILE_FILE)
        )
        self._processes: dict[str, Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._target = Target(
            namespace=namespace,
            pod=pod.name,
            life="",
            ip=loopback(machine.host),
            source="Scrape",
            engine_port=ports.engine,
            http_port=ports.http,
            profiler_port=ports.profiler,
        )

    @property
    def url(self) -> str:
        """Base URL of its OpenAI API."""
        host = loopback(self._machine.host)
        return f"http://[{host}]:{self.ports.http}" if ":" in host else f"http://{host}:{self.ports.http}"

    @property
    def target(self) -> Target:
        """How to measure the present life of its engine."""
        return replace(self._target, life=f"{self.pod.name}/{self._life}")

    def check(self) -> None:
        """Raises what keeps it from ever serving: LocalError where a person can do something about it."""
        if self.failure is not None:
            raise self.failure
        for task in self._tasks:
            if task.done():
                task.result()

    def start(self) -> None:
        """Start all containers and begin to watch them."""
        if self._may_serve is not None:
            self._may_serve.unlink(missing_ok=True)  # an earlier run's
        if self._points is not None:
            renew(self._points)
        for launch in self.pod.launches:
            log = self._machine.state / "logs" / f"{self.pod.name}-{launch.name}.log"
            process = self._processes[launch.name] = Process(launch.name, log)
            self._tasks.append(asyncio.create_task(self._keep(launch, process)))
        self._tasks.append(asyncio.create_task(self._watch()))

    async def stop(self) -> None:
        """End everything; running requests may finish first."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(p.stop() for p in self._processes.values()))

    async def _keep(self, launch: Launch, process: Process) -> None:
        """What the kubelet does: start it again when it ends, ever later."""
        engine = launch.name == v.ENGINE_CONTAINER
        pause, attempts = _FIRST_PAUSE, 0
        while True:
            started = time.monotonic()
            if engine:
                self._life += 1
            try:
                await process.start(launch.command, launch.env)
            except (OSError, ValueError) as e:
                self.failure = LocalError(
                    f"{launch.name} of {self.pod.name} cannot be started ({e}): correct its arguments and"
                    " environment in the file, or what this machine lacks"
                )
                return
            status = await process.wait()
            if time.monotonic() - started > _STABLE:
                pause, attempts = _FIRST_PAUSE, 0
            attempts += 1
            words = f'"{process.last_words()}" (its log: {process.log})'
            if engine:
                self.phase = Phase.RESTARTING
                if not self.served and attempts >= _ATTEMPTS:
                    self.failure = LocalError(
                        f"{self.pod.name} ended {attempts} times before it served, last with status {status}:"
                        f" {words}; correct what that says and start again"
                    )
                    return
            self._say(f"{self.pod.name}: {launch.name} ended with status {status}, {words}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _watch(self) -> None:
        """Probe as the kubelet does; a replica is ready once all its containers are."""
        while True:
            if not await self._metrics.answers(self._target, self.ports.http, HEALTH_PATH):
                if self.phase is not Phase.RESTARTING:
                    self.phase = Phase.STARTING
            elif not self.served and self._may_serve is not None and not self._may_serve.exists():
                self.phase = Phase.PROFILING
            elif self.phase is not Phase.READY:
                self.phase, self.served = Phase.READY, True
                self._say(f"{self.pod.name} serves on {self.url}")
            await asyncio.sleep(_LOOK if self.phase is not Phase.READY else 1.0)
