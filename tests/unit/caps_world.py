"""A small world for caps on depth: what a cap truly gives, and engines that alternate two of them when asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from specpilot.decide.caps import Hint, Situation, Turn, decide, steps_of
from specpilot.decide.caps_memory import CapMemory
from specpilot.decide.settings import Settings
from specpilot.estimate.counters import Cell, TrialCount
from specpilot.estimate.load import LoadMemory, learn
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import Caps, Pairs, Schedule, Step, bucket
from specpilot_engine.trial import LEAST_PAIRS

TICK, STEP, TOKENS, DEPTHS = 30.0, 0.02, 7, (0, 1, 3, 7)
Worth = Callable[[int, int], float]  # (cap, batch) → log goodput over that of no cap


@dataclass
class World:
    """`worth` is the truth; `length` a factor on what every step emits, as of other traffic."""

    worth: Worth
    seed: int = 0
    length: float = 1.0
    noise: float = 0.15  # of one step's time
    deaf: bool = False  # engines find no two slices that can be compared
    settings: Settings = field(
        default_factory=lambda: Settings(DEPTHS, 256, Schedule(1, (Step(256, 1),)), prove=True)
    )
    facts: Situation = field(default_factory=lambda: Situation("spec/adaptive-7", TOKENS, True, True))
    hint: Hint | None = None
    memory: CapMemory = field(default_factory=CapMemory)
    load: LoadMemory = field(default_factory=LoadMemory)
    now: float = 1e6
    pairs: Pairs = field(default_factory=Pairs)
    sums: Pairs = field(default_factory=Pairs)
    of: int = 0  # generation whose trial runs
    running: bool = False
    turns: list[tuple[float, Turn]] = field(default_factory=list)
    lost: float = 0.0  # seconds of goodput that trials cost

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def run(self, seconds: float, batch: int) -> World:
        for _ in range(round(seconds / TICK)):
            self.tick(batch)
        return self

    def tick(self, batch: int) -> Turn:
        """One scrape interval at `batch` requests (0: no traffic), and the look that follows."""
        self.now += TICK
        windows = [self.window(batch)] if batch else []
        if windows:
            self.load = learn(self.load, windows)
        counts = [TrialCount(self.of, self.pairs, self.running)]
        self.memory, turn = decide(
            self.memory, self.facts, self.settings, self.load, windows, counts, self.now, self.hint
        )
        if turn.schedule is not None:
            assert turn.schedule.generation == self.settings.in_force.generation + 1
            self.settings = replace(self.settings, in_force=turn.schedule)
            self.turns.append((self.now, turn))
        return turn

    def window(self, batch: int) -> Window:
        caps = self.settings.in_force.caps or Caps((Step(256, TOKENS),))
        new = Schedule(0, caps.steps).tokens_at(batch)
        old = Schedule(0, steps_of(self.settings.in_force, TOKENS)).tokens_at(batch)
        spent = self.alternate(caps, new, old, batch) if caps.trial is not None else 0.0
        winner = new if self.pairs.clear and self.pairs.mean > 0 else old
        cells: dict[tuple[int, int], Cell] = {}
        for cap, seconds in ((new, spent / 2), (old, spent / 2), (winner, TICK - spent)):
            steps = seconds / STEP
            emitted = steps * batch * 2 * self.length * math.exp(self.worth(cap, batch))
            was = cells.get((cap, bucket(batch)), Cell(0, 0, 0, 0))
            if steps:
                cells[cap, bucket(batch)] = Cell(
                    was.steps + steps,
                    was.seconds + seconds,
                    was.requests + steps * batch,
                    was.emitted + emitted,
                )
        return Window("life", self.now - TICK, self.now, cells)

    def alternate(self, caps: Caps, new: int, old: int, batch: int) -> float:
        """Seconds of this tick in which the two alternate."""
        trial, generation = caps.trial, self.settings.in_force.generation
        assert trial is not None
        if self.of != generation:
            self.of, self.pairs, self.sums, self.running = generation, Pairs(), Pairs(), True
        gain, spent = self.worth(new, batch) - self.worth(old, batch), 0.0
        sums = self.sums
        deviation = math.sqrt(2 * (0.25 / batch + self.noise**2) / trial.slice + 0.01**2)
        while self.running and new != old and spent < TICK and not self.deaf:
            spent += 2 * trial.slice * STEP
            ratio = self.rng.normal(gain, deviation)
            sums += Pairs(1, ratio, ratio * ratio)
            # Pairs that happen to agree are no surer than their own steps: as the engine counts.
            least = sums.total**2 / sums.count + sums.count * deviation**2
            self.pairs = replace(sums, squares=max(sums.squares, least))
            done = self.pairs.count >= LEAST_PAIRS and self.pairs.clear
            self.running = not done and self.pairs.count < trial.pairs
        self.sums, spent = sums, min(spent, TICK)
        self.lost += spent / 2 * max(1 - math.exp(gain), 0.0)
        return spent

    @property
    def reasons(self) -> list[str]:
        return [str(turn.decision.reason) for _, turn in self.turns]

    def cap(self, batch: int) -> int:
        """The cap that holds at so many requests, whatever is on trial."""
        return Schedule(0, steps_of(self.settings.in_force, TOKENS)).tokens_at(batch)

    @property
    def tried(self) -> list[tuple[float, int, int]]:
        """(when, largest batch at which the two differ, cap tried) of every trial."""
        found = []
        for at, turn in self.turns:
            caps = turn.schedule.caps if turn.schedule else None
            if caps is not None and caps.trial is not None:
                new, old = Schedule(0, caps.steps), Schedule(0, caps.trial.against)
                edge = max(b for b in range(1, 257) if new.tokens_at(b) != old.tokens_at(b))
                found.append((at, edge, new.tokens_at(edge)))
        return found
