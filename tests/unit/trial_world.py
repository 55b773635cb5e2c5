"""The small world with engines that try a new schedule against the one before, by the engine package's own rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tests.unit.tuner_world import Engine, Phase, World

from specpilot.decide.decision import Decision
from specpilot.decide.memory import Memory
from specpilot.decide.settings import Settings
from specpilot.decide.tuner import initial_schedule, tune
from specpilot.estimate.counters import TrialCount
from specpilot.estimate.windows import Window, between
from specpilot_engine.protocol import ProfilePoint, Schedule
from specpilot_engine.trial import TrialRun

Bias = Callable[[int, int], float]  # (new depth, old depth) → log gain that no estimate shows


@dataclass
class Drawn:
    """Steps of one depth: accepted drafts [positions, steps], and of each step its seconds and its tokens."""

    accepted: np.ndarray
    steps: list[tuple[float, int]]


@dataclass
class Replica:
    """One engine: in a trial it alternates step by step, as long as that takes, and then runs the winner."""

    world: World
    rng: np.random.Generator
    bias: Bias
    engine: Engine = field(init=False)
    trial: TrialRun | None = None

    def __post_init__(self) -> None:
        self.engine = Engine(self.world, self.rng)

    def run(self, phase: Phase, schedule: Schedule) -> None:
        """One scrape interval."""
        if schedule.trial is None:
            self.trial = None
            self.engine.run(phase, schedule)
            return
        if self.trial is None or self.trial.generation != schedule.generation:
            self.trial = TrialRun(schedule.trial, schedule.generation)
        old = Schedule(0, self.trial.trial.against)
        common, survival = self.engine.shared(phase)
        depths = (schedule.tokens_at(phase.requests), old.tokens_at(phase.requests))
        left = self.world.scrape - self.engine.ahead
        if depths[0] != depths[1]:
            left = self._alternate(self.trial, phase.requests, depths, left, common, survival)
        winner = schedule if self.trial.new_runs else old
        self.engine.spend(phase.requests, winner, left, common, survival, explores=False)

    def _alternate(
        self,
        trial: TrialRun,
        batch: int,
        depths: tuple[int, int],
        left: float,
        common: float,
        survival: np.ndarray,
    ) -> float:
        """Compare (new depth, old depth) until the trial is through or no time is left; what is left of it."""
        new, _ = depths
        drawn = {depth: self._drawn(depth, batch, left, common, survival) for depth in depths}
        used = dict.fromkeys(depths, 0)
        timed = {depth: [0, 0.0, 0] for depth in depths}  # steps, seconds, tokens
        unseen = math.exp(-self.bias(*depths))
        while trial.running and left > 0:
            of = trial.next(True)
            trial.took()
            depth = depths[0 if trial.new_runs else 1]
            seconds, tokens = drawn[depth].steps[used[depth]]
            used[depth] += 1
            left -= seconds
            if self.engine.timed(depth, 1):
                of.add(batch, tokens, seconds * unseen if depth == new else seconds)
                for i, value in enumerate((1, seconds, tokens)):
                    timed[depth][i] += value
            trial.landed(of)
        for depth, steps in used.items():
            accepted = drawn[depth].accepted[:, :steps].sum(axis=1).tolist()
            self.engine.count(depth, batch, steps, accepted, *timed[depth])
        return left

    def _drawn(self, depth: int, batch: int, left: float, common: float, survival: np.ndarray) -> Drawn:
        """More steps than fit into the time that is left."""
        mean = self.world.seconds(depth, batch) * common
        count = math.ceil(1.5 * left / mean) + 50
        noise = self.rng.normal(0, self.world.step_noise, count)
        accepted = np.array(self.engine.accept(depth, np.full(count, batch), survival), int).reshape(
            depth, count
        )
        tokens = batch + accepted.sum(axis=0)
        times = mean * np.maximum(1 + noise, 0.1)
        return Drawn(accepted, list(zip(times.tolist(), tokens.tolist(), strict=True)))

    @property
    def count(self) -> TrialCount:
        if self.trial is None:
            return TrialCount()
        return TrialCount(self.trial.generation, self.trial.pairs, self.trial.running)


@dataclass
class Proved:
    """What a run with trials left."""

    ticks: list[tuple[float, int, Decision]] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    share: float = 0.0  # of the best depths' tokens

    @property
    def decisions(self) -> list[Decision]:
        return [d for _, _, d in self.ticks if d.steps_changed or d.settled]


def play(
    world: World,
    phases: Sequence[Phase],
    profile: Sequence[ProfilePoint] = (),
    seed: int = 0,
    replicas: int = 1,
    bias: Bias = lambda *_: 0.0,
    schedule: Schedule | None = None,
    **settings: Any,
) -> Proved:
    """Run the tuner with proof through the phases; a decision takes effect at the next scrape."""
    rng, now = np.random.default_rng(seed), 1e6
    fleet = [Replica(world, rng, bias) for _ in range(replicas)]
    base = Settings(
        world.depths, world.max_batch, Schedule(0, ()), interval=world.scrape, prove=True, **settings
    )
    schedule = schedule or Schedule(1, initial_schedule(profile, base))
    memory, run, ideal = Memory(), Proved(), 0.0
    before = [one.engine.counters(now) for one in fleet]
    for phase in phases:
        for _ in range(round(phase.seconds / world.scrape)):
            for one in fleet:
                one.run(phase, schedule)
            now += world.scrape
            ideal += world.goodput(world.best(phase), phase) * world.scrape * replicas
            after = [one.engine.counters(now) for one in fleet]
            windows = [
                w for a, b in zip(before, after, strict=True) if isinstance(w := between(a, b), Window)
            ]
            before = after
            counts = [one.count for one in fleet]
            memory, decision = tune(memory, windows, profile, replace(base, in_force=schedule), now, counts)
            if decision.change:
                generation = schedule.generation + 1
                schedule = Schedule(generation, decision.steps, decision.exploration, trial=decision.trial)
                run.schedules.append(schedule)
            run.ticks.append((now, schedule.tokens_at(phase.requests), decision))
            run.memories.append(memory)
    run.share = sum(one.engine.tokens for one in fleet) / ideal
    return run
