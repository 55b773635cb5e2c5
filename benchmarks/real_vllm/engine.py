"""The real engine of a run: its counters, its schedule, its load, and the profile that is measured beforehand."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.real_vllm.scenario import Phase
from deploy.console import TroubleError
from tests.engine.server import ROOT, Server, free_port
from tests.setup import vllm

from specpilot.estimate.counters import Counters
from specpilot.local.load import Load, hold
from specpilot.metrics.http import MetricsError
from specpilot.metrics.scrape import Target
from specpilot.metrics.source import Metrics
from specpilot_engine import protocol
from specpilot_engine.protocol import ProfilePoint, ProfileRequest, Schedule, StepSample

PROMPT, ANSWER = 16, 256  # tokens of a request: one step in some hundred is a prefill
PATIENCE = 60.0  # seconds until as many requests run as there are clients


class Engine:
    """A vLLM server with the engine package in it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._metrics = Metrics()
        self._target = Target(
            namespace="",
            pod="one",
            life="one",
            ip="127.0.0.1",
            source="Scrape",
            engine_port=server.own_port,
            http_port=server.port,
            profiler_port=free_port(),
        )

    async def close(self) -> None:
        await self._metrics.aclose()

    async def use(self, schedule: Schedule) -> None:
        """Put a schedule in force, and wait until it is."""
        self._server.put(schedule)
        await asyncio.to_thread(self._server.acknowledged, schedule)

    async def counters(self) -> Counters:
        reading = (await self._metrics.read([self._target])).pods[self._target.key]
        if reading.counters is None or reading.counters.generated is None:
            raise TroubleError(
                f"The engine cannot be read ({reading.message}): run it again, and it goes on."
            )
        return reading.counters

    async def steps(self, since: int) -> list[StepSample]:
        """The clean steps later than number `since`, of the last four thousand."""
        rows = await asyncio.to_thread(self._server.steps, since)
        return [StepSample(int(n), int(tokens), int(batch), *rest) for n, tokens, batch, *rest in rows]

    async def last_step(self) -> int:
        """The number of the latest clean step."""
        return max((step.seq for step in await self.steps(0)), default=0)

    @asynccontextmanager
    async def loaded(self, phase: Phase, seed: int) -> AsyncIterator[None]:
        """With the requests of a phase, all of them begun anew: none has been drafted for by another arm, and with
        one `seed` all arms answer the same prompts.

        Raises TroubleError where requests failed.
        """
        before = await self.counters()
        load = Load(
            [self._server.url],
            phase.clients,
            model="m",
            prompt_tokens=PROMPT,
            max_tokens=ANSWER,
            temperature=phase.temperature,
            seed=seed,
        )
        stop = asyncio.Event()
        sending = asyncio.create_task(hold(load, stop))
        try:
            await self._running(phase.clients, before)
            yield
        finally:
            stop.set()
            await sending
        if load.errors:
            raise TroubleError(f"Requests failed ({load.last_error}): run it again, and it goes on.")

    async def _running(self, requests: int, before: Counters) -> None:
        """Wait until exactly so many requests run; an engine that does not step says what ran last."""
        end = time.monotonic() + PATIENCE
        while (now := await self.counters()).generated == before.generated or now.running != requests:
            if time.monotonic() > end:
                raise TroubleError(
                    f"{now.running} requests run instead of {requests}: end what else uses this machine and run"
                    " it again, and it goes on."
                )
            await asyncio.sleep(0.1)

    async def profile(self, request: ProfileRequest) -> tuple[ProfilePoint, ...]:
        """Step times, measured by the product's own profiler within the request's budget.

        Raises TroubleError where there is not one.
        """
        environment = {**os.environ, **vllm.ENVIRONMENT, "PYTHONPATH": "serving"} | {
            protocol.ENV_PROFILE: request.dump(),
            protocol.ENV_PROFILE_FILE: str(self._folder / "points.jsonl"),
            protocol.ENV_PROFILER_PORT: str(self._target.profiler_port),
            protocol.ENV_ENGINE_URL: self._server.url,
            protocol.ENV_PORT: str(self._server.own_port),
            protocol.ENV_OVERRIDE_FILE: str(self._server.override),
        }
        command = [str(vllm.provide().python), "-m", "specpilot_engine.profiler"]
        with (self._folder / "profiler.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            return await self._profiled(process, request)
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, 30)
            self._server.override.unlink(missing_ok=True)

    async def _profiled(
        self, process: subprocess.Popen[bytes], request: ProfileRequest
    ) -> tuple[ProfilePoint, ...]:
        end = time.monotonic() + request.budget + PATIENCE
        points: tuple[ProfilePoint, ...] = ()
        while process.poll() is None and time.monotonic() < end:
            await asyncio.sleep(0.5)
            try:
                answer = await self._metrics.profile(self._target, len(points))
            except MetricsError:
                continue  # it is starting
            points = answer.points
            if answer.finished:
                return points
        if not points:
            raise TroubleError("No step time could be measured: run it again, or give --no-profile.")
        return points
