"""What there is to explain, from whatever is known: a profile alone, or a deployment with its memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specpilot.decide import undone
from specpilot.decide.explain import Row, rows
from specpilot.decide.goodput import Allowed, Landscape
from specpilot.decide.known import known, prior_of
from specpilot.decide.memory import Memory, Undone
from specpilot.decide.objective import admissible
from specpilot.decide.schedule import depth_indices, run_lengths
from specpilot.decide.settings import everywhere
from specpilot.explain.block import Verification, Worth, worth
from specpilot_engine.protocol import ProfilePoint, Schedule, Step

Floats = NDArray[np.float64]
Why = Callable[[int, int], str]  # (depth, batch): in a word why not, where it is not allowed


def _barred(_depth: int, _batch: int) -> str:
    return "not allowed"


@dataclass(frozen=True, slots=True)
class Subject:
    """`schedule` is the one in force, None where there is none.

    `facts` are (what, how it stands) for the head, `notes` what is not known or not well. `ceiling` is on
    seconds between a request's tokens, `minimum_gain` what a change must be worth; None: no such rule.
    """

    name: str
    depths: tuple[int, ...]
    max_batch: int
    points: tuple[ProfilePoint, ...] = ()
    memory: Memory = field(default_factory=Memory)
    schedule: Schedule | None = None
    allowed: Allowed = everywhere
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    why: Why = _barred
    ceiling: float | None = None
    minimum_gain: float | None = None
    verification: Verification = field(default_factory=Verification)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Rows by batch size and depth, and the survival behind them by 0-based slot."""

    subject: Subject
    land: Landscape
    may: NDArray[np.bool_]  # [depths, batches]: what may be chosen
    chosen: tuple[int, ...]  # depth in force (or best) at each batch size from 1
    best_depths: tuple[int, ...]  # with the most predicted goodput of those that may be chosen
    gain: tuple[float, float] | None  # of these at the load, and its deviation; None without load or schedule
    undone: tuple[Undone, ...]  # changes at the load that are not tried again for now
    rows: tuple[Row, ...]
    weights: Floats  # [batches]: share of time, zeros before any traffic
    survival: tuple[float, ...]
    deviation: tuple[float, ...]  # of survival
    block: Worth
    notes: tuple[str, ...]

    @property
    def seen(self) -> bool:
        """Whether traffic has been seen at all."""
        return bool(self.subject.memory.load.seconds)

    @property
    def batches(self) -> list[int]:
        return sorted({row.batch for row in self.rows})

    def at(self, batch: int) -> list[Row]:
        """Every depth at one batch size, shallow first."""
        return [row for row in self.rows if row.batch == batch]

    def may_run(self, row: Row) -> bool:
        """Whether a row's depth may be chosen at its batch size."""
        return bool(self.may[self.subject.depths.index(row.tokens), row.batch - 1])

    def best(self, batch: int) -> Row:
        """The depth with the most predicted goodput of those that may be chosen."""
        return next(r for r in self.at(batch) if r.tokens == self.best_depths[batch - 1])

    def in_force(self, batch: int) -> Row:
        return next(r for r in self.at(batch) if r.chosen)

    @property
    def best_steps(self) -> tuple[Step, ...]:
        """The best depths as a schedule, however many steps that takes."""
        depths = self.subject.depths
        return run_lengths(np.array([depths.index(k) for k in self.best_depths]), depths)


def explain(subject: Subject, batches: Sequence[int] = ()) -> Explanation:
    """What each depth is worth. `batches`: sizes to show, by default the load's and powers of four.

    A size above the largest is shown as the largest, with a note.
    """
    memory, depths = subject.memory, subject.depths
    land = known(memory, prior_of(subject.points, memory.shape), depths, subject.max_batch, subject.allowed)
    may = admissible(land, subject.ceiling)
    best = np.where(may, land.log_goodput, -np.inf).argmax(axis=0)
    chosen = best
    if subject.schedule is not None:
        chosen = depth_indices(subject.schedule.steps, depths, subject.max_batch)
    weights = memory.load.weights(subject.max_batch)
    gain = None
    if subject.schedule is not None and weights.any():
        column = np.arange(subject.max_batch)
        log = float((land.log_goodput[best, column] - land.log_goodput[chosen, column]) @ weights)
        gain = math.expm1(log), land.total_deviation(best, chosen, weights)
    notes = list(subject.notes)
    if beyond := sorted(b for b in set(batches) if b > subject.max_batch):
        asked = ", ".join(map(str, beyond))
        notes.append(f"no more than {subject.max_batch} requests run here: that is shown instead of {asked}")
    return Explanation(
        subject,
        land,
        may,
        tuple(depths[i] for i in chosen),
        tuple(depths[i] for i in best),
        gain,
        undone.at_load(undone.still(memory, land), land, chosen, weights) if subject.schedule else (),
        rows(land, chosen, weights, sorted({min(b, subject.max_batch) for b in batches})),
        weights,
        tuple(float(s) for s in land.survival.survival),
        tuple(float(d) for d in land.survival.deviation()),
        worth(subject.verification, land, may, weights),
        tuple(notes),
    )
