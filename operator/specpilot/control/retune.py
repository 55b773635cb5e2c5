"""One tick over all SpeculativeDeployments that are due: measurements → step → schedule."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

import structlog

from specpilot.api.base import seconds
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.status import LastDecision
from specpilot.api.vocabulary import Reason
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import ClusterError, Conflict
from specpilot.cluster.events import Events
from specpilot.config import Config
from specpilot.control import arms, capping, read
from specpilot.control.acknowledge import target_of
from specpilot.control.clock import timestamp
from specpilot.control.conditions import Finding
from specpilot.control.faults import unwritten
from specpilot.control.keep import keep
from specpilot.control.live import Live
from specpilot.control.observe import drafting, from_profile, tuning
from specpilot.control.reconcile import Reconciler
from specpilot.control.status import summary
from specpilot.control.step import Evidence, Taken, forget, step, watch
from specpilot.control.store import Key, Store
from specpilot.control.sync import reread
from specpilot.control.telemetry import Telemetry
from specpilot.decide.arm import Arm, Kind
from specpilot.decide.decision import Decision
from specpilot.decide.settings import Settings
from specpilot.estimate.counters import Counters
from specpilot.metrics.scrape import PodKey, Target
from specpilot.metrics.source import Metrics, Reading, availability
from specpilot.plan import names
from specpilot.plan.arguments import live_support
from specpilot_engine.protocol import ProfilePoint, Schedule

log = structlog.get_logger(__name__)
_READ = (Reason.PROMETHEUS, Reason.SCRAPING, Reason.FALLBACK_SCRAPING)
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Due:
    """One object of this tick, with its ready pods as targets."""

    key: Key
    body: Body
    sd: SpeculativeDeployment
    live: Live
    schedule: Schedule
    targets: Sequence[Target]


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
        now = time.monotonic()
        found = []
        for key in self._store.mains():
            body = self._store.main(key)
            if body is None or body["metadata"].get("deletionTimestamp"):
                continue
            live = self._reconciler.live(key, body)
            sd = live.parsed.sd if live.parsed else None
            config_map = self._store.get("ConfigMap", key[0], names.schedule_config_map(key[1]))
            schedule = read.schedule_in(config_map)
            if now < live.due_at or sd is None or schedule is None:
                continue
            live.due_at = now + seconds(sd.spec.tuning.interval)
            found.append(Due(key, body, sd, live, schedule, self._targets(key, sd)))
        return found

    def _targets(self, key: Key, sd: SpeculativeDeployment) -> list[Target]:
        metrics = sd.spec.metrics
        targets = (
            target_of(pod, source=metrics.source, endpoint=metrics.prometheus, labels=metrics.labels)
            for pod in read.ready(self._store.pods(key))
        )
        return [target for target in targets if target is not None]

    async def _one(self, due: Due, reading: Reading) -> None:
        live, news = due.live, False
        shown = (live.tuning, live.metrics, live.speculation)
        try:
            news = await self._step(due, reading)
            fault = None
        except ClusterError as e:
            # What was learnt is kept, the schedule holds, and the next tick decides anew.
            fault = unwritten(e) or live.fault
            self._telemetry.errors.labels("retune").inc()
            log.warning("not written", namespace=due.key[0], name=due.key[1], error=e.message)
        except Exception as e:
            trouble = self._reconciler.fault(due.key, e)
            fault = Finding(trouble.reason, trouble.message)
        news |= fault != live.fault or shown != (live.tuning, live.metrics, live.speculation)
        live.fault = fault
        if news or live.decision is not None:
            self._changed({due.key})
        self._reconciler.acknowledgements.follow(due.key)

    async def _step(self, due: Due, reading: Reading) -> bool:
        """Whether there is news of arms."""
        live, sd = due.live, due.sd
        mode = sd.spec.tuning.mode if live_support(sd.spec)[0] else "Observe"
        to = self._reconciler.settings(live, sd, due.schedule)
        counters = self._counters(due, reading)
        points = live.choice.points if live.choice else ()
        before = forget(self._noted(live, points, to), [target.key for target in due.targets])
        deployment = self._store.get("Deployment", *due.key)
        engines = arms.engines(sd, deployment, read.serving(self._store.pods(due.key)))
        arm, rollout = engines.arm, engines.rollout
        mixed, tuned = arms.mixed(live.arms, rollout), arms.tuned(sd, live.arms, arm, rollout)
        capped, caps_before = arm.capped and not mixed, live.caps
        if tuned:
            taken = step(before, counters, points, to, mode == "Apply", time.time())
        elif capped:
            taken = capping.tick(sd, live, arm, rollout, before, counters, points, to, time.time())
        else:
            taken = watch(before, counters, to, None if mixed else arm.kind is Kind.STATIC)
        live.evidence = taken.evidence
        if not mixed:
            drafted = arms.drafted(arm, due.schedule)
            live.speculation, live.undrafted = drafting(live, taken, drafted, counters if tuned else {})
        arms_before = live.arms
        turn = await self._arms(due, engines, taken, to)
        last = Finding(Reason.WAITING_FOR_EVIDENCE) if live.arms_spoke else live.tuning
        if tuned:
            live.tuning = tuning(mode, taken, last)
        elif capped:
            live.tuning = capping.finding(sd, live, arm, taken.schedule or due.schedule, counters)
        else:
            live.tuning = arms.finding(sd, live.arms, arm, mixed)
        live.arms_spoke = not tuned
        if tuned and mode == "Apply" and taken.schedule is None:
            taken = from_profile(taken, live.choice, to)
        if taken.schedule is not None:
            live.caps, decided = caps_before, live.caps  # what is not written is decided anew, not again
            async with live.lock:
                if await self._publish(due, taken, taken.schedule, arm):
                    live.caps = decided
        elif tuned and mode == "Recommend" and taken.decision.steps_changed:
            self._recommend(due, taken)
        explored = [c.exploration_share for c in counters.values() if c.exploration_share is not None]
        cost = fmean(explored) if explored else None
        self._telemetry.show(due.key, gain=taken.decision.predicted_gain, explored=cost)
        try:
            await keep(self._cluster, self._store, sd, live, self._config.persist)
        except ClusterError:
            live.arms = arms_before  # nothing restarts for a decision that a restart of ours would forget
            raise
        return turn

    async def _arms(self, due: Due, engines: arms.Engines, taken: Taken, to: Settings) -> bool:
        """Whether there is news of arms, or one to restart to: the reconcile that follows does it, once it
        is kept in memory."""
        live, sd = due.live, due.sd
        if not arms.due(sd, live, engines.arm, time.monotonic()):
            return False
        told, now = live.arms.told, time.time()
        live.arms, turn = arms.look(sd, live, engines, taken, to, now)
        if turn is None:
            return live.arms.next is not None or told != live.arms.told
        if turn.reason is not Reason.ARM_RECOMMENDED:
            live.decision = arms.decision(turn, timestamp(now))
        log.info("arm", namespace=due.key[0], name=due.key[1], reason=turn.reason, why=turn.message)
        kind: Literal["Normal", "Warning"] = "Warning" if turn.reason is Reason.ARM_FAILED else "Normal"
        await self._events.say(due.body, kind, turn.reason, turn.message, now)
        return True

    def _noted(self, live: Live, points: Sequence[ProfilePoint], to: Settings) -> Evidence:
        """The evidence, which at first learns what is in force: an operator that died between writing a
        schedule and keeping its memory must not come back with something to write."""
        evidence = live.evidence or Evidence()
        if live.persisted is None:
            evidence = step(evidence, {}, points, to, False, time.time()).evidence
            live.persisted = evidence.memory
        return evidence

    def _counters(self, due: Due, reading: Reading) -> Mapping[PodKey, Counters]:
        pods = {t.key: reading.pods[t.key] for t in due.targets if t.key in reading.pods}
        available = availability(pods.values(), self._config.missed_ticks)
        # A read that was missed for the first time says nothing yet.
        if available is not None and available.available == (available.reason in _READ):
            due.live.metrics = Finding(available.reason, available.message)
        return {key: pod.counters for key, pod in pods.items() if pod.counters is not None}

    async def _publish(self, due: Due, taken: Taken, schedule: Schedule, arm: Arm) -> bool:
        """The ConfigMap first: from then on the schedule is the one in force, whatever fails after. False where another
        has come between."""
        decision = taken.decision
        config_map = self._store.get("ConfigMap", due.key[0], names.schedule_config_map(due.key[1]))
        if read.schedule_in(config_map) != due.schedule:
            return False  # a reconcile has replaced what this was decided on
        body = self._reconciler.schedule_body(due.sd, schedule)
        untold = due.live.decision
        news = decision.steps_changed or decision.settled
        if news:
            # Before the write: its event may have the status written before we go on.
            due.live.decision = _told(decision, decision.reason)
        try:
            self._store.put(await self._cluster.apply(body, onto=config_map))
        except ClusterError as e:
            due.live.decision = untold
            if isinstance(e, Conflict):
                await reread(self._cluster, self._store, due.key)
                return False
            raise
        self._reconciler.acknowledgements.changed(due.key)
        was, is_now = (summary(arms.drafted(arm, s).steps) for s in (due.schedule, schedule))
        log.info(
            "schedule",
            namespace=due.key[0],
            name=due.key[1],
            generation=schedule.generation,
            depths=is_now,
            reason=decision.reason,
            why=decision.message,
        )
        if decision.settled:
            self._telemetry.proved(due.key, decision)
        if not news:
            return True
        depths = f"{'caps' if arm.capped else 'depths'} {was}"
        if decision.steps_changed:
            self._telemetry.changes.labels(str(decision.reason)).inc()
            depths += f" → {is_now}"
        text = f"{depths}: {decision.message}"
        await self._events.say(due.body, "Normal", decision.reason, text, time.time())
        return True

    def _recommend(self, due: Due, taken: Taken) -> None:
        """Told once for each change that would be better, not with every tick or operator that still
        thinks so."""
        decision = taken.decision
        text = f"depths {summary(due.schedule.steps)} → {summary(decision.steps)}"
        last = (due.body.get("status") or {}).get("lastDecision") or {}
        # Depths for loads that do not run may tremble: what counts is what would change at the load.
        said, what = str(last.get("message")), decision.message.partition(": ")[0]
        same = said.startswith(f"depths {summary(due.schedule.steps)} → ") and f": {what}: " in said
        if last.get("reason") != Reason.RECOMMENDED or not (same or said.startswith(f"{text}:")):
            told = replace(decision, message=f"{text}: {decision.message}")
            due.live.decision = _told(told, Reason.RECOMMENDED)


def _told(decision: Decision, reason: Reason) -> LastDecision:
    gain, measured = decision.predicted_gain, decision.measured
    predicted = None if gain is None else f"{gain:.3f}"
    return LastDecision(
        time=timestamp(time.time()),
        reason=reason,
        message=decision.message,
        predicted_gain=predicted,
        measured_gain=f"{measured.gain:.3f}" if measured else None,
        measured_interval=f"{measured.low:.3f} to {measured.high:.3f}" if measured else None,
        gain=f"{measured.gain:.3f}" if measured else predicted,
    )
