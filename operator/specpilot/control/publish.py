"""A schedule that was decided, written and told; one that is only recommended, told."""

from __future__ import annotations

import time
from dataclasses import replace

import structlog

from specpilot.api.base import timestamp
from specpilot.api.status import LastDecision
from specpilot.api.vocabulary import Reason
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import Conflict
from specpilot.cluster.events import Events
from specpilot.control import arms, read
from specpilot.control.decided import Decided
from specpilot.control.due import Due
from specpilot.control.reconcile import Reconciler
from specpilot.control.status import last_decision, summary
from specpilot.control.store import Store
from specpilot.control.sync import reread
from specpilot.control.telemetry import Telemetry
from specpilot.decide.decision import Decision

log = structlog.get_logger(__name__)


class Publisher:
    def __init__(
        self, cluster: Cluster, store: Store, events: Events, reconciler: Reconciler, telemetry: Telemetry
    ) -> None:
        self._cluster, self._store, self._events = cluster, store, events
        self._reconciler, self._telemetry = reconciler, telemetry

    async def publish(self, due: Due, decided: Decided) -> bool:
        """Under the object's lock, where there is a schedule to write. From the write on it is the one in force,
        whatever fails after. False where another has come between. Raises ClusterError."""
        decision, schedule, arm = decided.taken.decision, decided.taken.schedule, decided.arm
        assert schedule is not None
        config_map = self._store.schedule_map(due.key)
        if read.schedule_in(config_map) != due.schedule:
            return False  # a reconcile has replaced what this was decided on
        body = self._reconciler.schedule_body(due.sd, schedule)
        try:
            self._store.put(await self._cluster.apply(body, onto=config_map))
        except Conflict:
            await reread(self._cluster, self._store, due.key)
            return False
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
        if decision.steps_changed or decision.settled:
            await self._tell(due, decision, "caps" if arm.capped else "depths", was, is_now)
        return True

    async def _tell(self, due: Due, decision: Decision, what: str, was: str, is_now: str) -> None:
        due.live.decision = told(decision, decision.reason)
        depths = f"{what} {was}"
        if decision.steps_changed:
            self._telemetry.changes.labels(str(decision.reason)).inc()
            depths += f" → {is_now}"
        text = f"{depths}: {decision.message}"
        await self._events.say(due.body, "Normal", decision.reason, text, time.time())


def recommend(due: Due, decision: Decision) -> None:
    """Told once for each change that would be better, not with every tick or operator that still
    thinks so."""
    text = f"depths {summary(due.schedule.steps)} → {summary(decision.steps)}"
    last = (due.body.get("status") or {}).get("lastDecision") or {}
    # Depths for loads that do not run may tremble: what counts is what would change at the load.
    said, what = str(last.get("message")), decision.message.partition(": ")[0]
    same = said.startswith(f"depths {summary(due.schedule.steps)} → ") and f": {what}: " in said
    if last.get("reason") != Reason.RECOMMENDED or not (same or said.startswith(f"{text}:")):
        due.live.decision = told(replace(decision, message=f"{text}: {decision.message}"), Reason.RECOMMENDED)


def told(decision: Decision, reason: Reason) -> LastDecision:
    """The last decision that a change of depths is, or would be."""
    measured = decision.measured
    interval = (measured.low, measured.gain, measured.high) if measured else None
    now = timestamp(time.time())
    return last_decision(reason, decision.message, decision.predicted_gain, interval, now)
