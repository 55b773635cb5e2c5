"""One tick over all SpeculativeDeployments that are due: measurements → step → schedule."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Literal

import structlog

from specpilot.api.base import timestamp
from specpilot.api.vocabulary import Reason
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import ClusterError
from specpilot.cluster.events import Events
from specpilot.config import Config
from specpilot.control import arms, capping, read
from specpilot.control.conditions import Finding
from specpilot.control.decided import Decided, Learnt, take_in
from specpilot.control.due import Due, due_of
from specpilot.control.faults import unwritten
from specpilot.control.keep import keep
from specpilot.control.live import Live
from specpilot.control.observe import drafting, from_profile, tuning
from specpilot.control.publish import Publisher, recommend
from specpilot.control.reconcile import Reconciler
from specpilot.control.rollout import Trouble
from specpilot.control.step import Evidence, forget, step, watch
from specpilot.control.store import Key, Store
from specpilot.control.telemetry import Telemetry
from specpilot.decide.arm import Kind
from specpilot.decide.memory import Memory
from specpilot.decide.settings import Settings
from specpilot.estimate.counters import Counters
from specpilot.metrics.scrape import PodKey
from specpilot.metrics.source import Metrics, Reading, availability
from specpilot.plan.arguments import live_support
from specpilot_engine.protocol import ProfilePoint

log = structlog.get_logger(__name__)
_READ = (Reason.PROMETHEUS, Reason.SCRAPING, Reason.FALLBACK_SCRAPING)


class Retuner:
    """`changed` hears of every object whose status may have to say something else."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        metrics: Metrics,
        events: Events,
        reconciler: Reconciler,
        telemetry: Telemetry,
        config: Config,
        changed: Callable[[set[Key]], None],
    ) -> None:
        self._cluster, self._store, self._metrics, self._events = cluster, store, metrics, events
        self._reconciler, self._telemetry = reconciler, telemetry
        self._config, self._changed = config, changed
        self._publisher = Publisher(cluster, store, events, reconciler, telemetry)
        self._turns = asyncio.Semaphore(config.workers)

    async def tick(self) -> None:
        """Read all measurements that are due at once, then take each object's step."""
        with self._telemetry.tick_seconds.time():
            due = self._due()
            if due:
                reading = await self._metrics.read([target for one in due for target in one.targets])
                await asyncio.gather(*(self._in_turn(one, reading) for one in due))
        self._telemetry.ticks.inc()

    async def _in_turn(self, due: Due, reading: Reading) -> None:
        """A few at a time: a fleet's steps must not keep health checks waiting, nor one whose writes hang (a webhook
        of its namespace, perhaps) all the others."""
        async with self._turns:
            await self._one(due, reading)
            await asyncio.sleep(0)

    def _due(self) -> list[Due]:
        found = []
        for key in self._store.mains():
            body = self._store.main(key)
            if body is None or body["metadata"].get("deletionTimestamp"):
                continue
            live = self._reconciler.live(key, body)
            try:
                one = due_of(self._store, key, body, live, time.monotonic())
            except Exception as e:
                live.fault = _of(self._reconciler.fault(key, e))
                self._changed({key})
            else:
                found += [one] if one else []
        return found

    async def _one(self, due: Due, reading: Reading) -> None:
        live, news = due.live, False
        shown = (live.tuning, live.metrics, live.speculation)
        try:
            news = await self._step(due, reading)
            fault, live.unwritten = None, 0
        except ClusterError as e:
            # What was learnt is kept, the schedule holds, and the next tick decides anew.
            live.unwritten += 1
            fault = unwritten(e, live.unwritten) or live.fault
            self._telemetry.errors.labels("retune").inc()
            log.warning("not written", namespace=due.key[0], name=due.key[1], error=e.message)
        except Exception as e:
            fault = _of(self._reconciler.fault(due.key, e))
        news |= fault != live.fault or shown != (live.tuning, live.metrics, live.speculation)
        live.fault = fault
        if news or live.decision is not None:
            self._changed({due.key})
        self._reconciler.acknowledgements.follow(due.key)

    async def _step(self, due: Due, reading: Reading) -> bool:
        """Whether there is news of arms. Raises ClusterError: what is not written is decided anew, not remembered."""
        live, decided = due.live, self._decide(due, reading)
        take_in(live, decided)
        taken = decided.taken
        written = True
        if taken.schedule is not None:
            async with live.lock:
                written = await self._publisher.publish(due, decided)
        elif decided.tuned and decided.mode == "Recommend" and taken.decision.steps_changed:
            recommend(due, taken.decision)
        if written:
            live.caps = decided.caps
        self._telemetry.learned(due.key, taken.decision.predicted_gain, decided.learnt.explored)
        await keep(self._cluster, self._store, due.sd, live, decided.arms, self._config.persist)
        return await self._turn(due, decided)

    def _decide(self, due: Due, reading: Reading) -> Decided:
        """Changes nothing."""
        live, sd = due.live, due.sd
        mode = sd.spec.tuning.mode if live_support(sd.spec)[0] else "Observe"
        to = self._reconciler.settings(live, sd, due.schedule)
        counters, metrics = self._counters(due, reading)
        points = live.choice.points if live.choice else ()
        evidence, persisted = _noted(live, points, to)
        before = forget(evidence, [target.key for target in due.targets])
        deployment = self._store.get("Deployment", *due.key)
        engines = arms.engines(sd, deployment, read.serving(self._store.pods(due.key)))
        arm, rollout = engines.arm, engines.rollout
        mixed, tuned = arms.mixed(live.arms, rollout), arms.tuned(sd, live.arms, arm, rollout)
        capped, caps, now = arm.capped and not mixed, live.caps, time.time()
        if tuned:
            taken = step(before, counters, points, to, mode == "Apply", now)
        elif capped:
            taken, caps = capping.tick(sd, live, arm, rollout, before, counters, points, to, now)
        else:
            taken = watch(before, counters, to, None if mixed else arm.kind is Kind.STATIC)
        speculation, undrafted = live.speculation, live.undrafted
        if not mixed:
            drafted = arms.drafted(arm, due.schedule)
            speculation, undrafted = drafting(live, taken, drafted, counters if tuned else {})
        memory, turn, arms_due = live.arms, None, live.arms_due
        if arms.due(sd, live, arm, time.monotonic()):
            memory, turn = arms.look(sd, live, engines, taken, to, now)
            arms_due = time.monotonic() + arms.LOOK * sd.spec.tuning.period
        if tuned:
            last = Finding(Reason.WAITING_FOR_EVIDENCE) if live.arms_spoke else live.tuning
            found = tuning(mode, taken, last)
        elif capped:
            found = capping.finding(sd, live, memory, arm, taken.schedule or due.schedule, counters)
        else:
            found = arms.finding(sd, memory, arm, mixed)
        if tuned and mode == "Apply" and taken.schedule is None:
            taken = from_profile(taken, live.choice, to)
        explored = [c.exploration_share for c in counters.values() if c.exploration_share is not None]
        cost = fmean(explored) if explored else None
        learnt = Learnt(persisted, metrics, speculation, undrafted, arms_due, cost)
        return Decided(mode, arm, tuned, taken, memory, turn, caps, found, learnt)

    async def _turn(self, due: Due, decided: Decided) -> bool:
        """What was decided of arms is kept, so that it counts and is told; the reconcile that follows restarts pods
        for it. Whether it is news."""
        live, turn, told = due.live, decided.turn, due.live.arms.told
        live.arms = decided.arms
        live.tuning, live.arms_spoke = decided.tuning, not decided.tuned
        if turn is None:
            return live.arms.next is not None or told != live.arms.told
        now = time.time()
        if turn.reason is not Reason.ARM_RECOMMENDED:
            live.decision = arms.decision(turn, timestamp(now))
        log.info("arm", namespace=due.key[0], name=due.key[1], reason=turn.reason, why=turn.message)
        kind: Literal["Normal", "Warning"] = "Warning" if turn.reason is Reason.ARM_FAILED else "Normal"
        await self._events.say(due.body, kind, turn.reason, turn.message, now)
        return True

    def _counters(self, due: Due, reading: Reading) -> tuple[Mapping[PodKey, Counters], Finding | None]:
        """What was read of one object's pods, and the word on MetricsAvailable."""
        pods = {t.key: reading.pods[t.key] for t in due.targets if t.key in reading.pods}
        available = availability(pods.values(), self._config.missed_ticks)
        # A read that was missed for the first time says nothing yet.
        said = available is not None and available.available == (available.reason in _READ)
        found = Finding(available.reason, available.message) if available and said else due.live.metrics
        return {key: pod.counters for key, pod in pods.items() if pod.counters is not None}, found


def _noted(live: Live, points: Sequence[ProfilePoint], to: Settings) -> tuple[Evidence, Memory]:
    """The evidence, and the memory that counts as kept. At first it learns what is in force: an operator that died
    between writing a schedule and keeping its memory must not come back with something to write."""
    evidence = live.evidence or Evidence()
    if live.persisted is not None:
        return evidence, live.persisted
    evidence = step(evidence, {}, points, to, False, time.time()).evidence
    return evidence, evidence.memory


def _of(bug: Trouble) -> Finding:
    return Finding(bug.reason, bug.message)
