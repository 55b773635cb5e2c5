"""A small world for the tuner: what is true, and an engine that shows only its counters.

Steps are drawn in bulk: per scrape and depth, one draw of time, one of acceptance. Which steps explore the engine
package's own rule says. The policy sees counters, the profile and the clock, as the operator does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specpilot.decide.decision import Decision
from specpilot.decide.memory import Memory
from specpilot.decide.settings import Settings
from specpilot.decide.tuner import initial_schedule, tune
from specpilot.estimate.counters import Cell, Counters
from specpilot.estimate.discards import Discarded
from specpilot.estimate.windows import Window, between
from specpilot_engine.explore import Explorer
from specpilot_engine.protocol import ProfilePoint, Schedule, bucket

NEIGHBOURS = 2  # steps that a run of equal ones loses: only steps between equal neighbours are timed


@dataclass
class Phase:
    """`survival` by slot and `requests` running, for `seconds`; step times are `slow` times the truth."""

    seconds: float
    requests: int
    survival: Sequence[float]
    slow: float = 1.0


@dataclass
class World:
    """Truth: step_time[i][j] in seconds at depths[i], batches[j], linear in between."""

    depths: tuple[int, ...]
    batches: tuple[int, ...]
    step_time: Sequence[Sequence[float]]
    step_noise: float = 0.05
    window_noise: float = 0.01
    scrape: float = 15.0
    spread: float = 0.0  # how much acceptance differs between requests, as a deviation per window
    max_batch: int = 256

    def seconds(self, k: int, batch: int) -> float:
        return float(np.interp(batch, self.batches, self.step_time[self.depths.index(k)]))

    def goodput(self, k: int, phase: Phase) -> float:
        return (1 + sum(phase.survival[:k])) / self.seconds(k, phase.requests) / phase.slow * phase.requests

    def best(self, phase: Phase) -> int:
        return max(self.depths, key=lambda k: self.goodput(k, phase))

    def profile(self, error: float = 0.03, seed: int = 0, factor: float = 1.0) -> list[ProfilePoint]:
        rng = np.random.default_rng(seed)
        return [
            ProfilePoint(k, b, 8192, t * factor * float(np.exp(rng.normal(0, error))), 0.05, 16)
            for k, row in zip(self.depths, self.step_time, strict=True)
            for b, t in zip(self.batches, row, strict=True)
        ]


@dataclass
class Run:
    """What one run left: a record per tick, and totals per phase."""

    ticks: list[tuple[float, int, Decision]] = field(default_factory=list)  # time, depth at the load, …
    shares: list[float] = field(default_factory=list)  # of the oracle's tokens, by phase
    changes: list[float] = field(default_factory=list)  # times of changed steps
    memory: Memory = field(default_factory=Memory)
    schedule: Schedule | None = None


class Engine:
    """Counts what its steps do, as the engine package exports it. `ahead`: how much its last step exceeded a scrape."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.rng = world, rng
        self.cells: dict[tuple[int, int], list[float]] = {}
        self.drafted, self.accepted = np.zeros(max(world.depths)), np.zeros(max(world.depths))
        self.tokens = self.steps = 0.0
        self.ahead = 0.0
        self._explorer = Explorer()
        self._depth, self._lead = -1, 0  # equal steps up to now, and their depth

    def run(self, phase: Phase, schedule: Schedule) -> None:
        """One scrape interval."""
        common, survival = self.shared(phase)
        self.spend(phase.requests, schedule, self.world.scrape - self.ahead, common, survival)

    def shared(self, phase: Phase) -> tuple[float, np.ndarray]:
        """What all steps of a scrape share: a factor of their time, and the survival of its requests."""
        common = phase.slow * float(np.exp(self.rng.normal(0, self.world.window_noise)))
        moved = np.asarray(phase.survival) + self.rng.normal(0, self.world.spread)
        return common, np.minimum.accumulate(np.clip(moved, 0.0, 1.0))

    def spend(
        self,
        batch: int,
        schedule: Schedule,
        left: float,
        common: float,
        survival: np.ndarray,
        explores: bool = True,
    ) -> None:
        """Step for `left` seconds; what `explores` pauses beside a trial."""
        x, k = schedule.exploration, schedule.tokens_at(batch)
        differs = x.tokens != k and batch <= x.max_batch
        taken: dict[int, list[int]] = {}  # by depth: steps, and the timed ones among them
        while left > 0:
            looks, most = self._explorer.stretch(x, differs, batch) if explores else (False, math.inf)
            depth = x.tokens if looks else k
            seconds = self.world.seconds(depth, batch) * common
            steps = int(min(most, math.ceil(left / seconds)))
            if explores:
                self._explorer.took(x, looks, batch, steps)
            left -= steps * seconds
            total = taken.setdefault(depth, [0, 0])
            total[0] += steps
            total[1] += self.timed(depth, steps)
        self.ahead = -left
        for depth, (steps, timed) in taken.items():
            accepted = self.accept(depth, steps * batch, survival)
            time = timed * self.world.seconds(depth, batch) * common
            if timed:
                time *= 1 + self.rng.normal(0, self.world.step_noise / np.sqrt(timed))
            emitted = (steps * batch + sum(accepted)) * timed / steps
            self.count(depth, batch, steps, accepted, timed, time, emitted)

    def timed(self, depth: int, steps: int) -> int:
        """How many of the next steps are: those whose neighbours before them have their depth."""
        if depth != self._depth:
            self._depth, self._lead = depth, 0
        skipped = min(max(NEIGHBOURS - self._lead, 0), steps)
        self._lead += steps
        return steps - skipped

    def accept(self, depth: int, drafts: Any, survival: np.ndarray) -> list[Any]:
        """How many of `drafts` (a number, or one for each of many steps) are accepted at each position."""
        alive, accepted = drafts, []
        for j in range(depth):
            conditional = survival[j] / max(survival[j - 1] if j else 1.0, 1e-9)
            alive = self.rng.binomial(alive, min(conditional, 1.0))
            accepted.append(alive)
        return accepted

    def count(
        self,
        depth: int,
        batch: int,
        steps: int,
        accepted: Sequence[int],
        timed: int,
        seconds: float,
        emitted: float,
    ) -> None:
        """Count steps of one depth; `seconds` and `emitted` are of the timed ones."""
        self.drafted[:depth] += steps * batch
        self.accepted[:depth] += accepted
        self.tokens += steps * batch + sum(accepted)
        self.steps += steps
        if timed:
            cell = self.cells.setdefault((depth, bucket(batch)), [0.0] * 4)
            for i, value in enumerate((timed, seconds, timed * batch, emitted)):
                cell[i] += value

    def counters(self, at: float) -> Counters:
        return Counters(
            "pod-1",
            at,
            {key: Cell(*cell) for key, cell in self.cells.items()},
            tuple(self.drafted),
            tuple(self.accepted),
            all_steps=self.steps,
            generated=self.tokens,
        )


def play(
    world: World,
    phases: Sequence[Phase],
    profile: Sequence[ProfilePoint] = (),
    seed: int = 0,
    spoil: Callable[[Window, float], Window | Discarded] = lambda w, _: w,
    resume: Run | None = None,
    **settings: Any,
) -> Run:
    """Run the product's tuner through the phases; a decision takes effect at the next scrape."""
    rng = np.random.default_rng(seed)
    engine, run = Engine(world, rng), resume or Run()
    first = Settings(world.depths, world.max_batch, Schedule(0, ()), interval=world.scrape, **settings)
    schedule = run.schedule or Schedule(1, initial_schedule(profile, first))
    memory, now = run.memory, 1e6 if not run.ticks else run.ticks[-1][0]
    before = engine.counters(now)
    for phase in phases:
        begun, tokens, ideal = now, engine.tokens, 0.0
        while now < begun + phase.seconds - 1e-6:
            engine.run(phase, schedule)
            now += world.scrape
            ideal += world.goodput(world.best(phase), phase) * world.scrape
            after = engine.counters(now)
            window = between(before, after)
            window = spoil(window, now) if isinstance(window, Window) else window
            before = after
            in_force = Settings(world.depths, world.max_batch, schedule, interval=world.scrape, **settings)
            windows = [window] if isinstance(window, Window) else []
            memory, decision = tune(memory, windows, profile, in_force, now)
            if decision.change:
                schedule = Schedule(schedule.generation + 1, decision.steps, decision.exploration)
            if decision.steps_changed:
                run.changes.append(now)
            run.ticks.append((now, schedule.tokens_at(phase.requests), decision))
        run.shares.append((engine.tokens - tokens) / ideal)
    run.memory, run.schedule = memory, schedule
    return run
