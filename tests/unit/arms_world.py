"""A small world of arms: engines whose goodput is a table, an arm's own effect and noise, in fast motion."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from specpilot.decide.arm import NONE, SCHEDULE, Arm, Kind
from specpilot.decide.arms import Situation, Turn, decide
from specpilot.decide.arms_memory import ArmMemory
from specpilot.decide.arms_worth import view
from specpilot.decide.memory import Memory
from specpilot.decide.settings import Settings
from specpilot.decide.tuner import tune
from specpilot.estimate import load, survival
from specpilot.estimate.counters import Cell
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import ProfilePoint, Schedule, Step, bucket

DEPTHS = (0, 1, 3, 7)
STATIC_3, ADAPTIVE = Arm(Kind.STATIC, 3), Arm(Kind.ADAPTIVE, 7)
TICK, STARTUP, DWELL = 30.0, 60.0, 120.0


def step_seconds(depth: int, batch: int) -> float:
    return 0.02 * (1 + batch * (1 + depth) / 100 + 0.03 * depth)


PROFILE = [
    ProfilePoint(k, b, 512, step_seconds(k, b), 0.02, 100) for k in DEPTHS for b in (1, 4, 16, 64, 128)
]


@dataclass
class World:
    """`effect`: log goodput of an arm beyond that of its depth under a schedule; `starts`: arms whose pods start.

    Restarts happen as the memory asks for them, and take STARTUP seconds in which nothing is seen.
    """

    effect: Mapping[Arm, float] = field(default_factory=dict)
    starts: Callable[[Arm], bool] = lambda _: True
    batch: int = 16
    acceptance: float = 0.0
    restart: bool = True
    noise: float = 0.03
    arms: ArmMemory = field(default_factory=ArmMemory)
    memory: Memory = field(default_factory=Memory)
    schedule: Schedule = field(default_factory=lambda: Schedule(1, (Step(128, 0),)))
    in_force: Arm = SCHEDULE
    now: float = 1e6
    turns: list[tuple[float, Turn]] = field(default_factory=list)
    history: list[Arm] = field(default_factory=list)
    allowed: tuple[Arm, ...] = (SCHEDULE, NONE, STATIC_3)
    random: random.Random = field(default_factory=lambda: random.Random(1))
    rolled_at: float = 0.0
    spec: str = "a"
    still: bool = False

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += TICK
            self.tick()

    def tick(self) -> None:
        rolling = self.now - self.rolled_at < STARTUP
        broken = "" if self.starts(self.in_force) else "it keeps failing"
        windows = [] if rolling or broken else [self.window()]
        settings = Settings(DEPTHS, 128, self.schedule, prove=False)
        if windows and self.in_force.scheduled:
            self.memory, decision = tune(self.memory, windows, PROFILE, settings, self.now)
            if decision.change:
                self.schedule = Schedule(self.schedule.generation + 1, decision.steps)
        elif windows:
            learnt = survival.learn(self.memory.survival, windows)[0]
            self.memory = Memory(
                learnt, self.memory.cost, load.learn(self.memory.load, windows), self.memory.steps
            )
        settings = Settings(DEPTHS, 128, self.schedule)
        facts = Situation(
            self.spec, self.in_force, self.allowed, self.restart, True, math.log1p(0.03), DWELL,
            startup=STARTUP, complete=not rolling and not broken, broken=broken, still=self.still,
        )  # fmt: skip
        known = (
            view(self.memory, PROFILE, settings, self.in_force, True) if self.memory.load.seconds else None
        )
        self.arms, turn = decide(self.arms, facts, known, windows, self.now)
        if turn is not None:
            self.turns.append((self.now, turn))
        if self.arms.next is not None and self.arms.next[0] != self.in_force:
            self.in_force, self.rolled_at = self.arms.next[0], self.now
            self.history.append(self.in_force)

    def window(self) -> Window:
        """Under a schedule a fiftieth of the steps explore the deepest draft."""
        depth = self.schedule.tokens_at(self.batch) if self.in_force.scheduled else self.in_force.tokens
        shares = {depth: 1.0}
        if self.in_force.scheduled and depth < DEPTHS[-1]:
            shares = {depth: 0.98, DEPTHS[-1]: 0.02}
        slower = math.exp(self.random.gauss(0, self.noise) - self.effect.get(self.in_force, 0.0))
        cells, drafted = {}, [0.0] * DEPTHS[-1]
        for k, share in shares.items():
            steps = TICK * share / (step_seconds(k, self.batch) * slower)
            requests = steps * self.batch
            emitted = requests * sum(self.acceptance**j for j in range(k + 1))
            cells[k, bucket(self.batch)] = Cell(steps, TICK * share, requests, emitted, requests * 512)
            for slot in range(k):
                drafted[slot] += requests
        accepted = (n * self.acceptance ** (slot + 1) for slot, n in enumerate(drafted))
        return Window("life", self.now - TICK, self.now, cells, tuple(drafted), tuple(accepted), 512.0)

    @property
    def reasons(self) -> list[str]:
        return [str(turn.reason) for _, turn in self.turns]
