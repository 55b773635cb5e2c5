"""Plays one policy in one world."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specpilot.replay.arrivals import Queue, arrivals
from specpilot.replay.crowd import Crowd
from specpilot.replay.engine import Engine
from specpilot.replay.policy import Policy, Setup
from specpilot.replay.streams import ARRIVALS, FACTORS, PROFILE, REQUESTS, Streams
from specpilot.replay.truth import Truth
from specpilot.replay.world import Phase, World
from specpilot_engine.protocol import Schedule

EPOCH = 1.0e9  # the world's start in epoch seconds, so that no policy takes it for "never"
SETTLED = 0.95  # of the oracle's rate
_EPS = 1e-9


@dataclass(frozen=True, slots=True)
class PhasePlayed:
    """`stayed` are request-seconds in an open loop; `settled` seconds until SETTLED, None if never."""

    tokens: int
    stayed: float
    settled: float | None


@dataclass(frozen=True, slots=True)
class Played:
    """What a policy did in a world. `changes` counts schedules with other depths, not explorations."""

    phases: tuple[PhasePlayed, ...]
    changes: int


Told = Callable[[float], None]


def setup(world: World, seed: int) -> Setup:
    """What every policy is told before the start."""
    profile = Truth(world).profile(Streams(seed)(PROFILE))
    return Setup(world.depths, world.max_batch, profile, world.scrape_seconds)


def oracle(world: World, seed: int, told: Told = lambda _: None) -> Played:
    """The best fixed depth of each phase, at each batch size, from the phase's first moment on."""
    truth = Truth(world)
    return _Stage(world, seed, truth).play(None, lambda phase, n: truth.best(phase, n), told)


def play(world: World, policy: Policy, seed: int, told: Told = lambda _: None) -> Played:
    """`told` hears of the seconds played. Raises ScheduleRefused when the policy asks for what cannot be run."""
    return _Stage(world, seed, Truth(world)).play(policy, None, told)


class _Stage:
    """The engine, the load, and the streams that all policies share."""

    def __init__(self, world: World, seed: int, truth: Truth) -> None:
        self._world, self._seed, self._streams = world, seed, Streams(seed)
        self._engine = Engine(truth)
        windows = math.ceil(world.seconds / world.scrape_seconds) + 1
        self._factors = np.exp(self._streams(FACTORS).normal(0, world.window_noise, windows))
        self._queue: Queue | None = None
        self._crowd: Crowd | None = None
        self._changes = 0

    def play(
        self, policy: Policy | None, best: Callable[[Phase, int], Schedule] | None, told: Told
    ) -> Played:
        """Either a policy looks at every scrape, or `best` puts a schedule at every phase's start."""
        world, engine = self._world, self._engine
        phases, now, window, segment = [], 0.0, 0, 0
        for index, phase in enumerate(world.phases):
            start, end = now, now + phase.seconds
            if best is not None:
                self._put(best(phase, index + 1))
            elif index == 0 and policy is not None:
                self._put(policy.start(setup(world, self._seed)))
                self._look(policy, 0.0)
            engine.begin(phase)
            self._load(phase, index, start)
            tokens, stayed, settled = engine.ledger.tokens, self._stayed(), None
            busy = False
            while now < end - _EPS:
                scrape = (window + 1) * world.scrape_seconds
                until = end if end < scrape + _EPS else scrape
                earned, could = engine.earned, engine.could
                self._run(now, until, window, segment)
                segment += 1
                if engine.could > could:
                    busy = True
                    if settled is None and engine.earned - earned >= SETTLED * (engine.could - could):
                        settled = now - start
                now = until
                if now >= scrape - _EPS:
                    window += 1
                    if policy is not None:
                        self._look(policy, now)
                    told(now)
            if self._queue is not None:
                self._queue.finish(end)
            phases.append(
                PhasePlayed(engine.ledger.tokens - tokens, self._stayed() - stayed, settled if busy else 0.0)
            )
        return Played(tuple(phases), self._changes)

    def _put(self, schedule: Schedule) -> None:
        before = getattr(self._engine, "schedule", None)
        self._engine.put(schedule)
        if before is not None and before.steps != schedule.steps:
            self._changes += 1

    def _look(self, policy: Policy, now: float) -> None:
        at = EPOCH + now
        if self._queue is not None:
            running, waiting = self._queue.running, self._queue.waiting
        else:
            running, waiting = (self._crowd.batch if self._crowd else 0), 0
        generation = self._engine.schedule.generation
        counters = self._engine.ledger.counters(at, generation, running, waiting)
        self._put(policy.look(counters, at))

    def _load(self, phase: Phase, index: int, start: float) -> None:
        """The phase's requests. Those of a closed loop end with it, those of an open one go on into the next."""
        if phase.rate is None:
            self._queue, self._crowd = None, Crowd(self._engine, self._streams)
            return
        self._crowd = None
        if self._queue is None:
            self._queue = Queue(self._engine, self._streams(REQUESTS, index))
        self._queue.begin(phase, arrivals(phase, start, self._streams(ARRIVALS, index)), start)

    def _stayed(self) -> float:
        return self._queue.stayed if self._queue is not None else 0.0

    def _run(self, now: float, until: float, window: int, segment: int) -> None:
        factor = float(self._factors[window])
        if self._crowd is not None:
            self._crowd.run(until - now, factor, segment)
        elif self._queue is not None:
            self._queue.run(now, until, factor)
