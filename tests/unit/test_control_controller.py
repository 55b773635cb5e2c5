"""Loops over all objects: what one of them has or lacks is no other's concern."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.test_control_arms import SCHEDULED, sd

from specpilot.api.vocabulary import Reason
from specpilot.config import Config
from specpilot.control.controller import Controller
from specpilot.control.due import Due
from specpilot.control.live import Live, Measurement, Parsed
from specpilot.control.profile_choice import Choice, Identity
from specpilot.control.queue import Refusal, Retry
from specpilot.control.retune import Retuner
from specpilot.control.store import Key, Store
from specpilot.control.telemetry import Telemetry
from specpilot.metrics.http import MetricsError, Problem
from specpilot.metrics.scrape import Target
from specpilot.metrics.source import Metrics, Reading
from specpilot.plan.inputs import OperatorFacts, Profiling

MEASURES = Choice(Profiling(), None, active=True)
NOTHING: Any = None


class NoAnswers(Metrics):
    """Every profiler refuses connections, and who was asked is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def profile(self, target: Target, stored: int) -> Any:
        assert stored == 0
        self.asked.append(target.pod)
        raise MetricsError(Problem.UNREACHABLE, "nobody listens")


def controller(metrics: Metrics) -> Controller:
    facts = OperatorFacts("operator:1")
    return Controller(NOTHING, Store(), metrics, Config(), facts, (), Telemetry())


def pod(owner: str, *statuses: dict[str, Any]) -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": owner}
    containers = [{"name": "vllm", "image": "vllm:v0.33.0"}]
    return {
        "kind": "Pod",
        "metadata": {"namespace": "ns", "name": f"{owner}-1", "resourceVersion": "1", "labels": labels},
        "spec": {"containers": containers},
        "status": {"podIP": "10.0.0.1", "containerStatuses": list(statuses)},
    }


def measuring(of: Controller, name: str, pod: dict[str, Any]) -> Live:
    live = of._reconciler.lives["ns", name] = Live(name, choice=MEASURES, identity=Identity("sha256:aa"))
    live.parsed = Parsed("1", sd())
    of._store.put(pod)
    return live


SERVES = {"name": "vllm", "imageID": "vllm@sha256:aa"}
PROFILES = {"name": "specpilot-profiler", "state": {"running": {}}}


async def test_a_bug_that_one_objects_profile_meets_is_told_there_and_keeps_no_other_from_being_read() -> (
    None
):
    metrics = NoAnswers()
    of = controller(metrics)
    unlucky = measuring(of, "unlucky", pod("unlucky", {"imageID": "of a container without a name"}))
    fine = measuring(of, "well", pod("well", SERVES, PROFILES))
    await of._read_profiles()
    assert (metrics.asked, fine.unread) == (["well-1"], "")
    assert "the operator has a bug that this object meets (KeyError" in unlucky.unread


class Hangs(NoAnswers):
    """The first profiler that is asked answers once another was."""

    def __init__(self) -> None:
        super().__init__()
        self.another = asyncio.Event()

    async def profile(self, target: Target, stored: int) -> Any:
        if self.asked:
            self.another.set()
        try:
            await super().profile(target, stored)
        finally:
            await self.another.wait()


async def test_a_profiler_that_does_not_answer_keeps_no_other_object_from_being_read() -> None:
    metrics = Hangs()
    of = controller(metrics)
    for name in ("one", "other"):
        measuring(of, name, pod(name, SERVES, PROFILES))
    async with asyncio.timeout(5):
        await of._read_profiles()
    assert sorted(metrics.asked) == ["one-1", "other-1"]


async def test_profilers_are_given_their_time_to_answer_whatever_the_measurement_before_them_met() -> None:
    of = controller(NoAnswers())
    live = measuring(of, "one", pod("one", SERVES, PROFILES))
    long_ago = Measurement(answered_at=float("-inf"))
    live.measurement = long_ago
    await of._read_profiles()
    assert live.unread == "nobody listens"
    live.choice = Choice(Profiling(done=True), None)
    await of._read_profiles()
    live.choice = MEASURES
    await of._read_profiles()
    assert (live.unread, live.measurement is long_ago) == ("", False)


@pytest.mark.parametrize(
    ("raises", "result"),
    [
        (None, "ok"),
        (Refusal("a quota", 120.0), "refused"),
        (Retry("not now"), "retried"),
        (KeyError("a bug"), "failed"),
    ],
    ids=["ok", "refused", "retried", "failed"],
)
async def test_every_reconcile_is_counted_by_its_result(raises: Exception | None, result: str) -> None:
    of = controller(Metrics())

    async def reconcile(_: Key) -> None:
        if raises is not None:
            raise raises

    reconciler: Any = SimpleNamespace(reconcile=reconcile)
    of._reconciler = reconciler
    with suppress(Retry, KeyError):
        await of._reconcile(("ns", "one"))
    counted = {
        s.labels["result"]: s.value
        for metric in of._telemetry.registry.collect()
        for s in metric.samples
        if s.name == "specpilot_operator_reconciles_total"
    }
    assert counted == {result: 1}


class Noting(Retuner):
    stepped: list[str]

    async def _one(self, due: Due, _: Reading) -> None:
        self.stepped.append(due.key[1])


async def test_a_bug_before_one_objects_step_is_told_there_and_keeps_no_other_from_its_step() -> None:
    of = controller(Metrics())
    changed: list[Key] = []
    retuner = Noting(
        NOTHING, of._store, Metrics(), NOTHING, of._reconciler, Telemetry(), Config(), changed.extend
    )
    retuner.stepped = []
    broken = pod("first")
    broken["metadata"]["labels"]["app.kubernetes.io/component"] = "serving"
    broken["status"]["conditions"] = [{"status": "of a condition without a type"}]
    of._store.put(broken)
    for name in ("first", "second"):
        meta = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"}
        of._store.put({"kind": "SpeculativeDeployment", "metadata": meta, "spec": _spec()})
        schedule = {**meta, "name": f"{name}-schedule"}
        data = {"schedule.json": SCHEDULED.dump()}
        of._store.put({"kind": "ConfigMap", "metadata": schedule, "data": data})
    await retuner.tick()
    assert (retuner.stepped, changed) == (["second"], [("ns", "first")])
    fault = of._reconciler.lives["ns", "first"].fault
    assert fault is not None
    assert fault.reason is Reason.INTERNAL_ERROR


def _spec() -> dict[str, Any]:
    spec: dict[str, Any] = sd().spec.to_json()
    return spec
