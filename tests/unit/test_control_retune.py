"""One tick over many deployments: who waits for whom."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.test_control_arms import sd
from tests.unit.test_control_capping import ON_TRIAL, POD, SCHEDULED, counters

from specpilot.api.vocabulary import Reason
from specpilot.cluster.errors import ClusterError
from specpilot.config import Config
from specpilot.control.conditions import Speculation
from specpilot.control.decided import Decided, Learnt, take_in
from specpilot.control.due import Due, due_of
from specpilot.control.faults import PASSING
from specpilot.control.live import Live, Parsed
from specpilot.control.retune import Retuner
from specpilot.control.step import Evidence, watch
from specpilot.control.step import settings as settings_of
from specpilot.control.store import Key, Store
from specpilot.control.telemetry import Telemetry
from specpilot.decide.arm import SCHEDULE, Arm, Kind
from specpilot.decide.arms import Turn
from specpilot.decide.arms_memory import ArmMemory
from specpilot.decide.caps_memory import CapMemory
from specpilot.decide.memory import Memory
from specpilot.estimate.counters import TrialCount
from specpilot.metrics.source import Metrics, PodReading, Reading
from specpilot_engine.protocol import Pairs

GOES = ArmMemory(next=(Arm(Kind.STATIC, 3), 0.1), reason="ArmChanged")


class Fleet(Retuner):
    """Six deployments, of which the writes of the first hang until told otherwise."""

    def __init__(self) -> None:
        nothing: Any = None
        super().__init__(
            nothing, nothing, Metrics(), nothing, nothing, Telemetry(), Config(workers=2), nothing
        )
        self.answered, self.done, self.most, self.now = asyncio.Event(), list[int](), 0, 0

    def _due(self) -> list[Due]:
        found: list[Any] = [SimpleNamespace(key=number, targets=[]) for number in range(6)]
        return found

    async def _one(self, due: Due, reading: Reading) -> None:
        assert not reading.pods
        number: Any = due.key
        self.now += 1
        self.most = max(self.most, self.now)
        if number == 0:
            await self.answered.wait()
        self.done.append(number)
        self.now -= 1


async def test_a_deployment_whose_writes_hang_keeps_no_other_waiting() -> None:
    fleet = Fleet()
    tick = asyncio.create_task(fleet.tick())
    await asyncio.wait_for(_until(lambda: len(fleet.done) == 5), 30)
    assert (fleet.done, fleet.most) == ([1, 2, 3, 4, 5], 2)
    assert not tick.done()
    fleet.answered.set()
    await tick
    assert fleet.done[-1] == 0


def test_ticks_come_at_the_longest_interval_where_a_longer_one_is_stored() -> None:
    live, store = Live("u"), Store()
    live.parsed = Parsed("1", sd(interval="10m"))
    meta = {"namespace": "ns", "name": "one-schedule", "resourceVersion": "1"}
    store.put({"kind": "ConfigMap", "metadata": meta, "data": {"schedule.json": SCHEDULED.dump()}})
    assert [due_of(store, ("ns", "one"), {}, live, now) is not None for now in (0, 299, 300)] == [
        True,
        False,
        True,
    ]


class Refused(Retuner):
    """One deployment under adaptive verification, whose schedule can be written only after `refusals` attempts."""

    def __init__(self, refusals: int) -> None:
        nothing: Any = None
        cluster: Any = self
        settings: Any = SimpleNamespace(settings=lambda _live, of, schedule: settings_of(of.spec, schedule))
        super().__init__(cluster, Store(), Metrics(), nothing, settings, Telemetry(), Config(), nothing)
        itself: Any = self
        self._publisher, self.left = itself, refusals

    async def get(self, *_: Any) -> None:
        return None

    async def apply(self, _body: Any) -> Any:
        raise ClusterError("no memory is kept here")

    async def publish(self, *_: Any) -> bool:
        self.left -= 1
        if self.left == 0:
            raise ClusterError("the webhook does not answer")
        return self.left < 0


async def test_the_end_of_a_trial_that_cannot_be_written_counts_once() -> None:
    of, live, told = sd("Always"), Live("u"), TrialCount(4, Pairs(30, -3.0, 0.303), running=False)
    live.persisted = Memory()
    schedule, retuner = replace(SCHEDULED, caps=ON_TRIAL), Refused(3)
    target: Any = SimpleNamespace(key=POD)
    for i in range(7):
        due = Due(("ns", "one"), {"metadata": {}}, of, live, schedule, [target])
        pods = {POD: PodReading(counters(30.0 * i, told), Reason.SCRAPING)}
        with suppress(ClusterError):
            await retuner._step(due, Reading(pods, {}))
        assert live.caps.fruitless == ({64: 1} if retuner.left < 0 else {})
        if retuner.left < 0:
            break
    assert retuner.left == -1
    assert [(b.edge, b.old, b.new) for b in live.caps.barred] == [(64, 7, 3)]


def test_deciding_alone_changes_nothing_that_is_known() -> None:
    of, live = sd("Always"), Live("u")
    retuner, known = Refused(0), replace(live)
    target: Any = SimpleNamespace(key=POD)
    due = Due(("ns", "one"), {"metadata": {}}, of, live, SCHEDULED, [target])
    decided = retuner._decide(due, Reading({POD: PodReading(counters(30.0), Reason.SCRAPING)}, {}))
    assert decided.learnt.metrics is not None
    assert live == known
    take_in(live, decided)
    assert live.metrics == decided.learnt.metrics
    assert live.evidence == decided.taken.evidence
    assert live.tuning is None


class Turning(Retuner):
    """One deployment whose engines are to restart into another arm, beside a change of depths; `fails` says which
    of the writes that takes is refused."""

    def __init__(self, live: Live, fails: str) -> None:
        nothing: Any = None
        itself: Any = self
        reconciler: Any = SimpleNamespace(lives={("ns", "one"): live})
        super().__init__(itself, Store(), Metrics(), itself, reconciler, Telemetry(), Config(), nothing)
        self._publisher, self.live, self.fails = itself, live, fails
        self.said = list[str]()

    def _decide(self, due: Due, _: Reading) -> Decided:
        to = settings_of(due.sd.spec, due.schedule)
        taken = replace(watch(Evidence(), {}, to, None), schedule=SCHEDULED)
        turn = Turn(Reason.ARM_CHANGED, "another is better", 0.1)
        learnt = Learnt(Memory(), None, Speculation(), 0, 0.0, None)
        return Decided("Apply", SCHEDULE, True, taken, GOES, turn, CapMemory(), None, learnt)

    async def publish(self, *_: Any) -> bool:
        if self.fails == "schedule":
            raise ClusterError("the schedule is refused")
        return True

    async def apply(self, body: Any) -> Any:
        assert "arms.json" in body["data"]
        assert self.live.arms == ArmMemory()  # a reconcile meanwhile restarts nothing
        if self.fails == "memory":
            raise ClusterError("the memory is refused")
        return body

    async def get(self, *_: Any) -> None:
        return None

    async def say(self, _body: Any, _kind: str, reason: str, *_: Any) -> None:
        self.said.append(reason)


@pytest.mark.parametrize("fails", ["schedule", "memory", ""])
async def test_a_change_of_arm_counts_and_is_told_once_it_is_kept_and_not_at_all_before(fails: str) -> None:
    live = Live("u", evidence=Evidence())
    retuner = Turning(live, fails)
    with suppress(ClusterError):
        await retuner._step(Due(("ns", "one"), {"metadata": {}}, sd(), live, SCHEDULED, []), Reading({}, {}))
    told = live.decision and live.decision.reason
    if fails:
        assert (live.arms, told, retuner.said) == (ArmMemory(), None, [])
    else:
        assert (live.arms, told, retuner.said) == (GOES, "ArmChanged", ["ArmChanged"])


class Failing(Turning):
    """The same, with all that a whole tick does besides."""

    def __init__(self, live: Live, fails: str) -> None:
        super().__init__(live, fails)
        self.changes = list[Key]()
        self._changed = self.changes.extend
        reconciler: Any = SimpleNamespace(acknowledgements=SimpleNamespace(follow=lambda _: None))
        self._reconciler = reconciler


@pytest.mark.parametrize("fails", ["schedule", "memory"])
async def test_what_cannot_be_written_tick_after_tick_is_told_until_it_can(fails: str) -> None:
    live = Live("u", evidence=Evidence())
    retuner = Failing(live, fails)
    due = Due(("ns", "one"), {"metadata": {}}, sd(), live, SCHEDULED, [])
    for attempt in range(1, PASSING + 3):
        await retuner._one(due, Reading({}, {}))
        assert (live.fault is not None) == (attempt > PASSING)
    assert live.fault is not None
    assert live.fault.reason is Reason.APPLY_FAILED
    assert f"the {fails} is refused" in live.fault.message
    assert retuner.changes == [due.key], "what was told already is no news"
    retuner.fails = ""
    await retuner._one(due, Reading({}, {}))
    assert live.fault is None
    retuner.fails, live.arms = fails, ArmMemory()
    await retuner._one(due, Reading({}, {}))
    assert live.fault is None, "counted anew"


async def _until(holds: Any) -> None:
    while not holds():
        await asyncio.sleep(0)
