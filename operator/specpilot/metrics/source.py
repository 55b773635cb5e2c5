"""Where measurements come from: the operator's Prometheus, the pods themselves, or the one for the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from specpilot.api.vocabulary import Reason
from specpilot.estimate.counters import Counters
from specpilot.metrics.http import MetricsError, Problem
from specpilot.metrics.prometheus import Endpoint, Prometheus, Snapshot
from specpilot.metrics.scrape import PodKey, Pods, ProfileAnswer, StateAnswer, Target

T = TypeVar("T")
PATIENCE = 2  # reads missed in a row until metrics count as unavailable and Auto begins to scrape


@dataclass(frozen=True, slots=True)
class PodReading:
    """Counters of one pod, or why there are none.

    `reason` is one of Prometheus, Scraping, FallbackScraping, MetricsUnavailable, UnknownEndpoint;
    `missed` counts the reads in a row without counters.
    """

    counters: Counters | None
    reason: Reason
    message: str = ""
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """One tick's measurements: every target by (namespace, pod), every endpoint asked with its error."""

    pods: Mapping[PodKey, PodReading]
    endpoints: Mapping[str, MetricsError | None]


@dataclass(frozen=True, slots=True)
class Availability:
    """The condition MetricsAvailable of one deployment."""

    available: bool
    reason: Reason
    message: str


def availability(pods: Iterable[PodReading], patience: int = PATIENCE) -> Availability | None:
    """What the readings of one deployment's pods amount to; None without pods.

    Unavailable only when every pod has missed `patience` reads: one missed read is noise.
    """
    readings = list(pods)
    if not readings:
        return None
    read = [r for r in readings if r.missed < patience]
    if not read:
        return Availability(False, readings[0].reason, readings[0].message)
    # The fallback is what a person wants to hear of; then whatever is read well.
    order = (Reason.FALLBACK_SCRAPING, Reason.PROMETHEUS, Reason.SCRAPING)
    told = min(read, key=lambda r: order.index(r.reason) if r.reason in order else len(order))
    message = told.message
    if len(read) < len(readings):
        lost = next(r for r in readings if r.missed >= patience)
        message = f"{len(read)} of {len(readings)} pods can be read; {lost.message}"
    return Availability(True, told.reason, message)


class Metrics:
    """All reading of measurements. Of earlier reads it keeps, per pod, the misses and the last counters."""

    def __init__(self, endpoints: Sequence[Endpoint] = (), patience: int = PATIENCE) -> None:
        self._endpoints = {e.name: Prometheus(e) for e in endpoints}
        self._default = endpoints[0].name if endpoints else None
        self._patience = patience
        self._pods = Pods()
        self._absent: dict[PodKey, int] = {}  # reads in a row that Prometheus did not have the pod
        self._missed: dict[PodKey, int] = {}  # reads in a row without counters from anywhere
        self._last: dict[PodKey, Counters] = {}

    async def aclose(self) -> None:
        for endpoint in self._endpoints.values():
            await endpoint.aclose()
        await self._pods.aclose()

    async def read(self, targets: Sequence[Target]) -> Reading:
        """Measure all pods: each endpoint once, and by scraping those that need it. Never raises.

        Source Auto means the endpoint that the deployment names, else the first configured; where
        that misses a pod `patience` times in a row the pod is scraped, until Prometheus has it again.
        """
        wanted: dict[str, list[Target]] = {}
        for t in targets:
            if (name := self._endpoint(t)) in self._endpoints and name is not None:
                wanted.setdefault(name, []).append(t)
        answers = dict(
            zip(wanted, await asyncio.gather(*map(self._ask, wanted, wanted.values())), strict=True)
        )
        pods: dict[PodKey, PodReading] = {}
        scrape: list[Target] = []
        for t in targets:
            name = self._endpoint(t)
            if name is None:
                scrape.append(t)
                continue
            found = _find(answers[name], name, t) if name in answers else _unknown(name)
            if isinstance(found, Counters):
                self._absent.pop(t.key, None)
                pods[t.key] = PodReading(found, Reason.PROMETHEUS, f"read from Prometheus {name}")
                continue
            self._absent[t.key] = self._absent.get(t.key, 0) + 1
            pods[t.key] = PodReading(None, _reason(found), found.message)
            if t.source == "Auto" and self._absent[t.key] >= self._patience:
                scrape.append(t)
        for t, scraped in zip(scrape, await _all(self._pods.counters, scrape), strict=True):
            pods[t.key] = _scraped(scraped, pods.get(t.key))
        errors = {name: a if isinstance(a, MetricsError) else None for name, a in answers.items()}
        return Reading(self._remember(pods), errors)

    def keep(self, pods: Collection[PodKey]) -> None:
        """Forget all other pods. A read names only those that are due, so it cannot tell who is gone."""
        for known in (self._absent, self._missed, self._last):
            for key in known.keys() - set(pods):
                del known[key]

    async def states(self, targets: Sequence[Target]) -> Mapping[PodKey, StateAnswer | MetricsError]:
        """What schedule each pod runs, or why it could not be asked. Never raises."""
        return dict(zip((t.key for t in targets), await _all(self._pods.state, targets), strict=True))

    async def profile(self, target: Target, seen: int) -> ProfileAnswer:
        """The profiler's points so far, telling it that the first `seen` are stored. Raises MetricsError."""
        return await self._pods.profile(target, seen)

    async def answers(self, target: Target, port: int, path: str) -> bool:
        """Whether GET `path` on a pod's port succeeds, for those who have no kubelet to probe."""
        return await self._pods.answers(target, port, path)

    def _endpoint(self, target: Target) -> str | None:
        """The endpoint to ask for a target; None: scrape it."""
        if target.source == "Scrape":
            return None
        return target.endpoint or self._default

    async def _ask(self, name: str, targets: Sequence[Target]) -> Snapshot | MetricsError:
        try:
            return await self._endpoints[name].read(t.namespace for t in targets)
        except MetricsError as e:
            return e

    def _remember(self, pods: Mapping[PodKey, PodReading]) -> dict[PodKey, PodReading]:
        """Count misses, and keep counters from going back in time, as they would from a scrape to an
        older sample of Prometheus."""
        told: dict[PodKey, PodReading] = {}
        for key, reading in pods.items():
            counters, before = reading.counters, self._last.get(key)
            if counters is None:
                self._missed[key] = self._missed.get(key, 0) + 1
            elif before is not None and before.life == counters.life and counters.at < before.at:
                counters = before
            if counters is not None:
                self._missed.pop(key, None)
                self._last[key] = counters
            told[key] = replace(reading, counters=counters, missed=self._missed.get(key, 0))
        return told


def _scraped(answer: Counters | MetricsError, prometheus: PodReading | None) -> PodReading:
    """A scrape's reading; `prometheus` is the failed one that it stands in for."""
    if isinstance(answer, MetricsError):
        message = f"{prometheus.message}; {answer.message}" if prometheus else answer.message
        return PodReading(None, prometheus.reason if prometheus else Reason.METRICS_UNAVAILABLE, message)
    if prometheus:
        return PodReading(
            answer, Reason.FALLBACK_SCRAPING, f"scraping the pods, because {prometheus.message}"
        )
    return PodReading(answer, Reason.SCRAPING, "scraping the pods")


def _find(answer: Snapshot | MetricsError, name: str, target: Target) -> Counters | MetricsError:
    if isinstance(answer, MetricsError):
        return answer
    counters = answer.counters(target.key, target.life, target.labels)
    if counters is not None:
        return counters
    having = "".join(f' {k}="{v}"' for k, v in sorted(target.labels.items()))
    return MetricsError(
        Problem.NO_SERIES,
        f'Prometheus {name} has no fresh series with namespace="{target.namespace}" pod="{target.pod}"{having}:'
        " let it scrape the pod's ports http and specpilot (a PodMonitor does)",
    )


def _unknown(name: str) -> MetricsError:
    return MetricsError(
        Problem.UNKNOWN_ENDPOINT,
        f"spec.metrics.prometheus names {name}, which the operator's configuration does not list: add it there"
        " or name another",
    )


def _reason(error: MetricsError) -> Reason:
    unknown = error.reason is Problem.UNKNOWN_ENDPOINT
    return Reason.UNKNOWN_ENDPOINT if unknown else Reason.METRICS_UNAVAILABLE


async def _all(ask: Callable[[Target], Awaitable[T]], targets: Sequence[Target]) -> list[T | MetricsError]:
    async def one(target: Target) -> T | MetricsError:
        try:
            return await ask(target)
        except MetricsError as e:
            return e

    return list(await asyncio.gather(*map(one, targets)))
