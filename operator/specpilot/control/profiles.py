"""Points that profilers have measured, read from their pods and kept in CostProfiles."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import structlog
from pydantic import ValidationError

from specpilot.api import status as api
from specpilot.api.base import API_VERSION, timestamp
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.profile import MAX_POINTS, CostProfileSpec, CostProfileStatus, Fingerprint, Point
from specpilot.api.vocabulary import PROFILER_CONTAINER, Reason
from specpilot.api.vocabulary import Condition as Type
from specpilot.cluster.client import Cluster
from specpilot.cluster.status import write_status
from specpilot.control.acknowledge import target_of
from specpilot.control.live import Measurement
from specpilot.control.store import PROFILE, Key, Store
from specpilot.metrics.http import MetricsError
from specpilot.metrics.scrape import ProfileAnswer
from specpilot.metrics.source import Metrics
from specpilot.plan.fingerprint import key as fingerprint_key
from specpilot.plan.labels import PROFILING, labels
from specpilot.plan.names import cost_profile

log = structlog.get_logger(__name__)
Body = dict[str, Any]

BATCH_SECONDS = 5.0  # between two writes of one profile that grows


class Profiles:
    """Reads measuring pods, of one SpeculativeDeployment with each call; keeps nothing that matters in memory.

    `changed` hears of every object that a profile which grew may concern: the watch will bring only what the
    store has already.
    """

    def __init__(
        self, cluster: Cluster, metrics: Metrics, store: Store, changed: Callable[[set[Key]], None]
    ) -> None:
        self._cluster, self._metrics, self._store, self._changed = cluster, metrics, store, changed

    async def read(
        self,
        sd: SpeculativeDeployment,
        pods: Sequence[Body],
        of: Fingerprint,
        keys: Collection[str],
        measurement: Measurement,
        now: float,
    ) -> bool:
        """Ask each of `pods`, in which a profiler runs, and write what is new. True once nothing more will come.

        `of` is the fingerprint with image digest and device; what is measured under none of `keys` is of
        another engine, and left out. Raises ClusterError.
        """
        answers = {pod: a for pod, a in (await self._ask(pods, measurement)).items() if a.key in keys}
        if not answers:
            return False
        name = cost_profile(sd.metadata.name, fingerprint_key(of))
        body = self._store.get(PROFILE, sd.metadata.namespace, name)
        stored = _points(body)
        points, left_out = merged(stored, answers.values())
        finished = all(answer.finished for answer in answers.values())
        due = finished or time.monotonic() - measurement.written_at >= BATCH_SECONDS
        if due and (len(points) > len(stored) or (finished and body is None)):
            total = max(answer.total for answer in answers.values())
            body = await self._write(sd, name, of, points, total, min(answers))
            measurement.written_at, stored = time.monotonic(), points
        if body is None or len(stored) < len(points):
            return False
        measurement.seen.update({pod: len(answer.points) for pod, answer in answers.items()})
        errors = {answer.error for answer in answers.values() if answer.error}
        error = "; ".join(sorted({*errors, left_out} - {""}))
        await self._tell(body, outcome(len(stored), body["spec"].get("total", 0), finished, error), now)
        if finished:
            await self._ask(pods, measurement)  # they hear that everything is stored, and may end
        return finished

    async def _ask(self, pods: Sequence[Body], measurement: Measurement) -> dict[str, ProfileAnswer]:
        answers: dict[str, ProfileAnswer] = {}

        async def ask(pod: Body) -> None:
            name, target = pod["metadata"]["name"], target_of(pod)
            if target is None:
                return
            try:
                answers[name] = await self._metrics.profile(target, measurement.seen.get(name, 0))
                measurement.answered_at, measurement.error = time.monotonic(), ""
            except MetricsError as e:
                measurement.error = e.message

        await asyncio.gather(*map(ask, pods))
        return answers

    async def _write(
        self,
        sd: SpeculativeDeployment,
        name: str,
        of: Fingerprint,
        points: Sequence[Point],
        total: int,
        pod: str,
    ) -> Body:
        namespace = sd.metadata.namespace
        spec = CostProfileSpec(
            key=fingerprint_key(of),
            fingerprint=of,
            total=total,
            measured_on=f"pod {namespace}/{pod}",
            points=list(points),
        )
        # No owner: a profile outlives the deployment that it was measured for.
        meta = {"name": name, "namespace": namespace, "labels": labels(sd, PROFILING)}
        body = await self._cluster.apply(
            {"apiVersion": API_VERSION, "kind": PROFILE, "metadata": meta, "spec": spec.to_json()}
        )
        self._changed(self._store.put(body))
        log.info("profile grows", namespace=namespace, name=name, points=len(points), total=total)
        return body

    async def _tell(self, body: Body, succeeded: api.Condition, now: float) -> None:
        """Status of a CostProfile: for people, and for whoever asks whether it is finished."""
        before = CostProfileStatus.model_validate(body.get("status") or {})
        known = next((c for c in before.conditions if c.type == Type.SUCCEEDED), None)
        same = known is not None and known.status == succeeded.status
        progress = f"{len(_points(body))}/{body['spec'].get('total', 0)}"
        condition = succeeded.model_copy(
            update={
                "observed_generation": body["metadata"].get("generation", 0),
                "last_transition_time": known.last_transition_time if known and same else timestamp(now),
            }
        )
        status = CostProfileStatus(
            conditions=[condition],
            progress=progress,
            measured_at=before.measured_at if before.progress == progress else timestamp(now),
        )
        written = await write_status(self._cluster, body, status.to_json())
        if written is not None:
            self._changed(self._store.put(written))


def outcome(stored: int, total: int, finished: bool, error: str) -> api.Condition:
    """The condition Succeeded of a profile with `stored` of `total` points."""
    if not finished:
        status, reason = "Unknown", Reason.PROFILING
    elif stored >= total > 0:
        status, reason = "True", Reason.MEASURED
    else:
        status, reason = "False", Reason.PROFILE_INCOMPLETE if stored else Reason.PROFILE_FAILED
    message = error if finished else ""
    return api.Condition.model_validate(
        {"type": Type.SUCCEEDED, "status": status, "reason": reason, "message": message}
    )


def merged(stored: Sequence[Point], answers: Iterable[ProfileAnswer]) -> tuple[list[Point], str]:
    """Points by (depth, batch, context), and why some that were measured are not among them ("").

    The API server refuses a profile that changes or loses a point, or has more than MAX_POINTS: what is
    stored stays whatever else comes, and of the new ones those that were answered first, most telling first.
    """
    found = {_place(p): p for p in stored}
    wrong = beyond = 0
    for answer in answers:
        for p in answer.points:
            try:
                point = Point.model_validate(p.as_json())
            except ValidationError:
                wrong += 1
                continue
            if _place(point) in found:
                continue
            if len(found) < MAX_POINTS:
                found[_place(point)] = point
            else:
                beyond += 1
    reasons = []
    if beyond:
        reasons.append(f"a CostProfile holds {MAX_POINTS} points: delete it to have others measured")
    if wrong:
        reasons.append(f"{wrong} measured points are beyond what a CostProfile may say")
    return [found[place] for place in sorted(found)], "; ".join(reasons)


def _place(p: Point) -> tuple[int, int, int]:
    return p.tokens, p.batch_size, p.context_length


def profiler_runs(pod: Body) -> bool:
    """Whether a pod has a profiler container that can be asked."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any(c["name"] == PROFILER_CONTAINER and "running" in (c.get("state") or {}) for c in statuses)


def _points(body: Body | None) -> list[Point]:
    return [Point.model_validate(p) for p in ((body or {}).get("spec") or {}).get("points") or []]
