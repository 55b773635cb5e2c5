"""What there is to see of a run at one moment: values only, for the table, the record and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from specpilot.decide.decision import Decision
from specpilot.estimate.discards import Discarded
from specpilot.estimate.windows import Window
from specpilot.local.replica import Phase
from specpilot_engine.protocol import Schedule


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica over the last reading. Numbers are None where it decoded nothing or is not ready."""

    name: str
    url: str
    phase: Phase
    acknowledged: bool = False  # runs the schedule that is wanted
    batch: float | None = None  # running requests a step
    depth: float | None = None  # mean depth that ran, exploring steps included
    accepted_length: float | None = None  # tokens a request and step
    goodput: float | None = None  # tokens per second


@dataclass(frozen=True, slots=True)
class Totals:
    """Since the engines started: tokens emitted, and seconds that requests spent decoding, summed over them."""

    tokens: float
    decoding: float


@dataclass(frozen=True, slots=True)
class Change:
    """A schedule that was published. `acknowledged_after`: seconds until every ready replica ran it."""

    at: float  # epoch seconds
    schedule: Schedule
    reason: str
    message: str
    predicted_gain: float | None
    steps_changed: bool  # False: only what is explored, or what a trial said of it
    acknowledged_after: float | None = None
    settled: bool = False  # it ended a trial

    @property
    def told(self) -> bool:
        """Whether it is news to a person."""
        return self.steps_changed or self.settled


def explored_only(changes: Sequence[Change]) -> list[int]:
    """Generations at the end of `changes` that left the depths alone, and changed what is explored."""
    kept = list(takewhile(lambda change: not change.told, reversed(changes)))
    return [change.schedule.generation for change in reversed(kept)]


@dataclass(frozen=True, slots=True)
class View:
    at: float  # epoch seconds
    name: str
    replicas: tuple[ReplicaView, ...]
    schedule: Schedule | None = None
    decision: Decision | None = None
    decided_at: float = 0.0
    points: int = 0  # of the profile
    points_planned: int = 0
    changes: tuple[Change, ...] = ()
    events: tuple[tuple[float, str], ...] = ()

    @property
    def ready(self) -> bool:
        """Whether every replica serves."""
        return all(r.phase is Phase.READY for r in self.replicas)

    @property
    def goodput(self) -> float:
        """Tokens per second of all replicas."""
        return sum(r.goodput or 0.0 for r in self.replicas)

    @property
    def depth(self) -> float | None:
        """Mean depth of the replicas that decoded."""
        depths = [r.depth for r in self.replicas if r.depth is not None]
        return sum(depths) / len(depths) if depths else None


def measured(view: ReplicaView, window: Window | Discarded | None) -> ReplicaView:
    """`view` with the numbers of a window."""
    if not isinstance(window, Window) or not window.cells:
        return view
    steps = window.steps
    requests = sum(c.requests for c in window.cells.values())
    return ReplicaView(
        view.name,
        view.url,
        view.phase,
        view.acknowledged,
        batch=requests / steps,
        depth=sum(k * c.steps for (k, _), c in window.cells.items()) / steps,
        accepted_length=sum(c.emitted for c in window.cells.values()) / requests,
        goodput=window.goodput,
    )
