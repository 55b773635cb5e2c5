"""What a pod says about itself over HTTP: its counters, the schedule it runs, the points it measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx

from specpilot.api.vocabulary import PORT_HTTP
from specpilot.estimate.counters import Counters
from specpilot.metrics.http import Answer, MetricsError, Problem, ask, base_url, json_object
from specpilot.metrics.parse import parse_text, to_counters
from specpilot_engine.protocol import (
    METRICS_PATH,
    PORT,
    PROFILE_PATH,
    PROFILER_PORT,
    STATE_PATH,
    ProfilePoint,
    Step,
    parse_point,
)

PodKey = tuple[str, str]  # namespace, name
TIMEOUT = 5.0  # seconds; an engine in a long prefill still answers from another thread
CONCURRENT = 64  # pods asked at once
LARGEST = 16 << 20  # bytes of an answer; vLLM's metrics are a fiftieth of that
STEP = 1.0  # seconds by which the clock went on by itself; less makes no window much longer
_ADVICE = "check that the pod runs and that no NetworkPolicy keeps the operator from its port"


@dataclass(frozen=True, slots=True)
class Target:
    """One pod to measure, and how its deployment wants it measured.

    `life` must change whenever the pod's counters may start again: pod uid and container start.
    `endpoint` and `labels` are spec.metrics.prometheus and spec.metrics.labels.
    """

    namespace: str
    pod: str
    life: str
    ip: str
    source: Literal["Auto", "Prometheus", "Scrape"] = "Auto"
    endpoint: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    engine_port: int = PORT
    http_port: int = PORT_HTTP
    profiler_port: int = PROFILER_PORT

    @property
    def key(self) -> PodKey:
        return self.namespace, self.pod


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """What GET STATE_PATH says: the schedule that the engine's next step uses.

    `live` False with a `reason` is an engine that runs as stock vLLM. `file_error` names what is
    wrong with the schedule on disk while the one before stays in force.
    """

    live: bool
    reason: str = ""
    generation: int | None = None
    hash: str | None = None
    schedule: tuple[Step, ...] = ()
    file_error: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProfileAnswer:
    """What GET PROFILE_PATH says: the points measured so far under `key`, of `total` planned."""

    key: str
    points: tuple[ProfilePoint, ...]
    total: int
    finished: bool
    error: str = ""


class Pods:
    """Asks pods directly, at most CONCURRENT at once."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        # trust_env off: a proxy for the internet must not get requests to pods.
        limits = httpx.Limits(max_connections=2 * CONCURRENT, max_keepalive_connections=0)
        self._client = httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False)
        self._whole = 2 * timeout  # to connect and to answer
        self._slots = asyncio.Semaphore(CONCURRENT)
        # What is read is dated by a clock that never goes back: windows are differences.
        self._epoch = time.time() - time.monotonic()
        self._steps = 0  # of the clock

    async def aclose(self) -> None:
        await self._client.aclose()

    async def counters(self, target: Target) -> Counters:
        """Both of a pod's /metrics as one. Raises MetricsError when neither can be read.

        vLLM's own may be missing (a gateway in front of it asks for a key): the engine package's
        suffice to decide, so its absence is not an error.
        """
        async with self._slots:
            ports = (target.engine_port, target.http_port)
            answers = await asyncio.gather(
                *(self._get(target, port, METRICS_PATH) for port in ports), return_exceptions=True
            )
        at, clock = self._now()
        samples, errors = [], []
        for answer, port in zip(answers, ports, strict=True):
            if isinstance(answer, MetricsError):
                errors.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                try:
                    samples += parse_text(answer.content.decode("utf-8", "replace"))
                except ValueError as e:
                    errors.append(_malformed(target, port, METRICS_PATH, str(e)))
        counters = to_counters(target.life, at, samples)
        if counters is None:
            raise errors[0] if errors else _malformed(target, ports[0], METRICS_PATH, "none of our series")
        return replace(counters, clock=clock)

    async def state(self, target: Target) -> StateAnswer:
        """The acknowledgement. Raises MetricsError."""
        async with self._slots:
            doc = await self._json(target, target.engine_port, STATE_PATH)
        try:
            return StateAnswer(
                live=bool(doc["live"]),
                reason=str(doc["reason"]),
                generation=None if doc["generation"] is None else int(doc["generation"]),
                hash=None if doc["hash"] is None else str(doc["hash"]),
                schedule=tuple(Step(int(s["upTo"]), int(s["tokens"])) for s in doc["schedule"] or ()),
                file_error=str(doc["fileError"]),
                versions={str(k): str(v) for k, v in doc["versions"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
            raise _malformed(target, target.engine_port, STATE_PATH, repr(e)) from None

    async def profile(self, target: Target, seen: int) -> ProfileAnswer:
        """The points measured so far; `seen` tells the profiler how many have been stored for good.

        Raises MetricsError.
        """
        async with self._slots:
            doc = await self._json(target, target.profiler_port, f"{PROFILE_PATH}?seen={seen}")
        try:
            return ProfileAnswer(
                key=str(doc["key"]),
                points=tuple(parse_point(p) for p in doc["points"]),
                total=int(doc["total"]),
                finished=bool(doc["finished"]),
                error=str(doc["error"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as e:
            raise _malformed(target, target.profiler_port, PROFILE_PATH, repr(e)) from None

    async def answers(self, target: Target, port: int, path: str) -> bool:
        """Whether a probe of this kind succeeds, as a kubelet's would."""
        try:
            await self._get(target, port, path)
        except MetricsError:
            return False
        return True

    def _now(self) -> tuple[float, int]:
        """When a reading is of, and by which clock.

        Where the clock goes on by itself (it is set, or the machine was suspended) it is followed, as what is read is
        compared with other clocks. A window that spans this may be longer than it was: there is none.
        """
        epoch = time.time() - time.monotonic()
        self._steps += epoch - self._epoch > STEP
        self._epoch = max(self._epoch, epoch)
        return self._epoch + time.monotonic(), self._steps

    async def _get(self, target: Target, port: int, path: str) -> Answer:
        who = f"pod {target.namespace}/{target.pod} port {port}"
        url = base_url(target.ip, port) + path
        answer = await ask(self._client, "GET", url, who, _ADVICE, self._whole, LARGEST)
        if answer.status != 200:
            problem = Problem.REFUSED if answer.status < 500 else Problem.FAILED
            raise MetricsError(problem, f"{who} answered {path} with HTTP {answer.status}: {_ADVICE}")
        return answer

    async def _json(self, target: Target, port: int, path: str) -> dict[str, Any]:
        answer = await self._get(target, port, path)
        return json_object(answer, f"pod {target.namespace}/{target.pod} port {port}", _ADVICE)


def _malformed(target: Target, port: int, path: str, detail: str) -> MetricsError:
    return MetricsError(
        Problem.MALFORMED,
        f"pod {target.namespace}/{target.pod} port {port} answered {path} with something else than this"
        f" operator's engine package does ({detail}): check that nothing else listens there",
    )
