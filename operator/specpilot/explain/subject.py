"""What there is to explain, from whatever is known: a profile alone, or a deployment with its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from specpilot.decide.explain import Row, rows
from specpilot.decide.goodput import Allowed, Landscape, landscape
from specpilot.decide.memory import Memory
from specpilot.decide.schedule import depth_indices
from specpilot.decide.tuner import everywhere
from specpilot.estimate.cost import Costs
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.survival import believe
from specpilot_engine.protocol import ProfilePoint, Schedule


@dataclass(frozen=True, slots=True)
class Subject:
    """`schedule` is the one in force, None where there is none; `notes` say what is not known."""

    name: str
    depths: tuple[int, ...]
    max_batch: int
    points: tuple[ProfilePoint, ...] = ()
    memory: Memory = field(default_factory=Memory)
    schedule: Schedule | None = None
    allowed: Allowed = everywhere
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Rows by batch size and depth, and the survival behind them by 0-based slot."""

    subject: Subject
    land: Landscape
    chosen: tuple[int, ...]  # depth in force (or best) at each batch size from 1
    rows: tuple[Row, ...]
    survival: tuple[float, ...]
    deviation: tuple[float, ...]  # of survival
    seen: bool  # whether traffic has been seen at all

    @property
    def batches(self) -> list[int]:
        return sorted({row.batch for row in self.rows})

    def at(self, batch: int) -> list[Row]:
        """Every depth at one batch size, shallow first."""
        return [row for row in self.rows if row.batch == batch]

    def best(self, batch: int) -> Row:
        """The depth with the most predicted goodput of those allowed."""
        return max((r for r in self.at(batch) if r.allowed), key=lambda r: r.goodput)

    def in_force(self, batch: int) -> Row:
        return next(r for r in self.at(batch) if r.chosen)


def explain(subject: Subject, batches: Sequence[int] = ()) -> Explanation:
    """What each depth is worth. `batches`: sizes to show, by default the load's and doublings."""
    memory, depths = subject.memory, subject.depths
    belief = believe(memory.survival, depths[-1])
    costs = Costs(memory.cost, CostPrior(subject.points), depths, subject.max_batch, memory.load.context)
    land = landscape(depths, belief, costs, subject.allowed)
    if subject.schedule is not None:
        chosen = depth_indices(subject.schedule.steps, depths, subject.max_batch)
    else:
        chosen = np.where(land.allowed, land.log_goodput, -np.inf).argmax(axis=0)
    weights = memory.load.weights(subject.max_batch)
    within = [b for b in batches if 1 <= b <= subject.max_batch]
    return Explanation(
        subject,
        land,
        tuple(depths[i] for i in chosen),
        rows(land, chosen, weights, within),
        tuple(float(s) for s in belief.survival),
        tuple(float(d) for d in belief.deviation()),
        bool(memory.load.seconds),
    )
