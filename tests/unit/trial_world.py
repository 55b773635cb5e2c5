"""The small world with engines that try a new schedule against the one before, as the engine package does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tests.unit.tuner_world import Engine, Phase, World

from specpilot.decide.memory import Memory
from specpilot.decide.tuner import Decision, Settings, initial_schedule, tune
from specpilot.estimate.counters import TrialCount
from specpilot.estimate.windows import Window, between
from specpilot_engine.protocol import Pairs, ProfilePoint, Schedule
from specpilot_engine.trial import LEAST_PAIRS

Bias = Callable[[int, int], float]  # (new depth, old depth) → log gain that no estimate shows


@dataclass
class Replica:
    """One engine: in each scrape it first alternates, as long as its trial takes, then runs the winner."""

    world: World
    rng: np.random.Generator
    bias: Bias
    engine: Engine = field(init=False)
    generation: int = 0
    pairs: Pairs = field(default_factory=Pairs)
    running: bool = False

    def __post_init__(self) -> None:
        self.engine = Engine(self.world, self.rng)

    def run(self, phase: Phase, schedule: Schedule) -> None:
        trial = schedule.trial
        if trial is None:
            self.engine.run(phase, schedule)
            return
        if self.generation != schedule.generation:
            self.generation, self.pairs, self.running = schedule.generation, Pairs(), True
        batch = phase.requests
        new, old = schedule.tokens_at(batch), Schedule(0, trial.against).tokens_at(batch)
        gain = math.log(self.world.goodput(new, phase) / self.world.goodput(old, phase)) + self.bias(new, old)
        noise = math.sqrt(2 * (0.25 / batch + self.world.step_noise**2) / trial.slice + 0.01**2)
        seconds = trial.slice * (self.world.seconds(new, batch) + self.world.seconds(old, batch))
        spent = 0.0
        while self.running and new != old and spent < self.world.scrape:
            spent += seconds
            ratio = self.rng.normal(gain, noise)
            self.pairs += Pairs(1, ratio, ratio * ratio)
            done = self.pairs.count >= LEAST_PAIRS and self.pairs.clear
            self.running = not done and self.pairs.count < trial.pairs
        share = min(spent / self.world.scrape, 1.0)
        winner = schedule.steps if self.pairs.clear and self.pairs.mean > 0 else trial.against
        for steps, part in ((schedule.steps, share / 2), (trial.against, share / 2), (winner, 1 - share)):
            if part > 0.01:
                self._part(phase, Schedule(schedule.generation, steps), part)

    def _part(self, phase: Phase, schedule: Schedule, part: float) -> None:
        self.engine.world = replace(self.world, scrape=self.world.scrape * part)
        self.engine.run(phase, schedule)
        self.engine.world = self.world

    @property
    def count(self) -> TrialCount:
        return TrialCount(self.generation, self.pairs, self.running)


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
