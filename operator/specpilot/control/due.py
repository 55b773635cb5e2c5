"""Who is due for a step at this tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.api.objects import SpeculativeDeployment
from specpilot.control import read
from specpilot.control.acknowledge import target_of
from specpilot.control.live import Live
from specpilot.control.store import Body, Key, Store
from specpilot.metrics.scrape import Target
from specpilot_engine.protocol import Schedule


@dataclass(frozen=True, slots=True)
class Due:
    """One object of this tick, with its ready pods as targets."""

    key: Key
    body: Body
    sd: SpeculativeDeployment
    live: Live
    schedule: Schedule
    targets: Sequence[Target]


def due_of(store: Store, key: Key, body: Body, live: Live, now: float) -> Due | None:
    """None of one that is not due yet, or has nothing to decide on; `now` is monotonic."""
    sd = live.parsed.sd if live.parsed else None
    schedule = read.schedule_in(store.schedule_map(key))
    if now < live.due_at or sd is None or schedule is None:
        return None
    live.due_at = now + sd.spec.tuning.period
    return Due(key, body, sd, live, schedule, _targets(store, key, sd))


def _targets(store: Store, key: Key, sd: SpeculativeDeployment) -> list[Target]:
    metrics = sd.spec.metrics
    targets = (
        target_of(pod, source=metrics.source, endpoint=metrics.prometheus, labels=metrics.labels)
        for pod in read.ready(store.pods(key))
    )
    return [target for target in targets if target is not None]
