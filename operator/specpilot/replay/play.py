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
    """What a policy did in a world. `changes` counts schedules with other depths, not explorations.

    `moves` are the seconds at which the depth at the present load changed; `emitted` are the tokens by each scrape,
    the first at second 0.
    """

    phases: tuple[PhasePlayed, ...]
    changes: int
    moves: tuple[float, ...] = ()
    emitted: tuple[int, ...] = ()


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
        self._moves: list[float] = []
        self._emitted = [0]
        self._now, self._window, self._segment = 0.0, 0, 0

    def play(
        self, policy: Policy | None, best: Callable[[Phase, int], Schedule] | None, told: Told
    ) -> Played:
        """Either a policy looks at every scrape, or `best` puts a schedule at every phase's start."""
        if policy is not None:
            self._put(policy.start(setup(self._world, self._seed)))
            self._look(policy)
        phases = []
        for index, phase in enumerate(self._world.phases):
            self._engine.begin(phase)
            self._load(phase, index)
            if best is not None:
                self._put(best(phase, index + 1))
            phases.append(self._phase(phase, policy, told))
        return Played(tuple(phases), self._changes, tuple(self._moves), tuple(self._emitted))

    def _phase(self, phase: Phase, policy: Policy | None, told: Told) -> PhasePlayed:
        engine, start, end = self._engine, self._now, self._now + phase.seconds
        tokens, stayed = engine.ledger.tokens, self._stayed()
        settled, busy = None, False
        while self._now < end - _EPS:
            scrape = (self._window + 1) * self._world.scrape_seconds
            until = end if end < scrape + _EPS else scrape
            earned, could = engine.earned, engine.could
            self._run(until)
            if engine.could > could:
                busy = True
                if settled is None and engine.earned - earned >= SETTLED * (engine.could - could):
                    settled = self._now - start
            self._now, self._segment = until, self._segment + 1
            if until >= scrape - _EPS:
                self._window += 1
                self._emitted.append(engine.ledger.tokens)
                if policy is not None:
                    self._look(policy)
                told(until)
        if self._queue is not None:
            self._queue.finish(end)
        # Where nothing was there to be done, nothing was missed.
        return PhasePlayed(engine.ledger.tokens - tokens, self._stayed() - stayed, settled if busy else 0.0)

    def _put(self, schedule: Schedule) -> None:
        before = self._engine.schedule
        self._engine.put(schedule)
        if before.steps and before.steps != schedule.steps:
            self._changes += 1
            batch = self._running()
            if batch and before.tokens_at(batch) != schedule.tokens_at(batch):
                self._moves.append(self._now)

    def _look(self, policy: Policy) -> None:
        at = EPOCH + self._now
        waiting = self._queue.waiting if self._queue is not None else 0
        self._put(policy.look(self._engine.counters(at, self._running(), waiting), at))

    def _running(self) -> int:
        if self._queue is not None:
            return self._queue.running
        return self._crowd.batch if self._crowd is not None else 0

    def _load(self, phase: Phase, index: int) -> None:
        """The phase's requests. Those of a closed loop end with it, those of an open one go on into the next."""
        if phase.rate is None:
            self._queue, self._crowd = None, Crowd(self._engine, self._streams)
            return
        self._crowd = None
        if self._queue is None:
            self._queue = Queue(self._engine, self._streams(REQUESTS, index))
        self._queue.begin(phase, arrivals(phase, self._now, self._streams(ARRIVALS, index)), self._now)

    def _stayed(self) -> float:
        return self._queue.stayed if self._queue is not None else 0.0

    def _run(self, until: float) -> None:
        factor = float(self._factors[self._window])
        if self._crowd is not None:
            self._crowd.run(until - self._now, factor, self._segment)
        elif self._queue is not None:
            self._queue.run(self._now, until, factor)
