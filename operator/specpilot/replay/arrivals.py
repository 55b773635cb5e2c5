"""An open loop: requests arrive by themselves, run as long as their answer, and the batch follows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import sub

import numpy as np

from specpilot.replay.counting import Stretch
from specpilot.replay.engine import Engine, Turn
from specpilot.replay.truth import Floats
from specpilot.replay.world import Phase

DRAWN = 4096  # values drawn at once: one draw a step would take most of the time


@dataclass(frozen=True, slots=True)
class Arrivals:
    """All requests of one phase, drawn before it begins and so the same for every policy.

    `at` in seconds since the world's start, `tokens` to be emitted, `kind` by index in the mix.
    """

    at: list[float]
    tokens: list[int]
    kind: list[int]


def arrivals(phase: Phase, start: float, rng: np.random.Generator) -> Arrivals:
    """Poisson arrivals of geometric length; a phase's mix is that of the requests that arrive."""
    assert phase.rate is not None, "only for an open loop"
    assert phase.output_tokens is not None, "an open loop has lengths"
    count = int(rng.poisson(phase.rate * phase.seconds))
    at = start + np.sort(rng.random(count)) * phase.seconds
    tokens = rng.geometric(1 / phase.output_tokens, count)
    kind = rng.choice(len(phase.mix), count, p=list(phase.mix.values()))
    return Arrivals(at.tolist(), tokens.tolist(), kind.tolist())


class Emissions:
    """Tokens that one request emits in one step at one depth: a supply of draws, and what was used of it."""

    def __init__(self, survival: Floats, rng: np.random.Generator) -> None:
        self._rising, self._rng = survival[::-1].copy(), rng
        self._depth = len(survival)
        self._drawn = np.zeros(0, np.int64)
        self._values: list[int] = []
        self._next = 0
        self.accepted = np.zeros(self._depth + 2, np.int64)  # used draws by tokens emitted

    def take(self, count: int) -> list[int]:
        """One value for each of `count` requests."""
        end = self._next + count
        if end > len(self._values):
            self.settle()
            luck = self._rng.random(max(DRAWN, count))
            # As many drafts as have a survival above the draw.
            self._drawn = 1 + self._depth - self._rising.searchsorted(luck, side="right")
            self._values, self._next, end = self._drawn.tolist(), 0, count
        values = self._values[self._next : end]
        self._next = end
        return values

    def settle(self) -> None:
        """Count what was used, and begin anew with what was not."""
        self.accepted += np.bincount(self._drawn[: self._next], minlength=self._depth + 2)
        self._drawn, self._values = self._drawn[self._next :], self._values[self._next :]
        self._next = 0


@dataclass(slots=True)
class Kind:
    """The running requests of one survival: tokens each has still to emit, and when each arrived."""

    survival: Floats
    left: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    emissions: dict[int, Emissions] = field(default_factory=dict)


class Queue:
    """Requests that wait and that run, across the open-loop phases that follow one another.

    `stayed` is the request-seconds spent in the system; over arrivals that is the mean latency (Little's
    law), and it counts also those requests whose answer is not complete when the phase ends.
    """

    def __init__(self, engine: Engine, rng: np.random.Generator) -> None:
        self._engine, self._rng = engine, rng
        self._pace = _pace(engine.truth.world.step_noise, rng)
        self._max_batch = engine.truth.world.max_batch
        self._waiting: deque[tuple[float, int, int]] = deque()
        self._kinds: list[Kind] = []
        self.running = 0
        self.stayed = 0.0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def begin(self, phase: Phase, come: Arrivals, start: float) -> None:
        """The requests of another phase; those still here stay, and follow the new phase's survival."""
        truth = self._engine.truth
        mixes = [{kind: 1.0} for kind in phase.mix] if phase.traffic_per_request else [phase.mix]
        before, self._kinds = self._kinds, [Kind(truth.survival(mix)) for mix in mixes]
        for i, kind in enumerate(before):
            into = self._kinds[min(i, len(mixes) - 1)]
            into.left += kind.left
            into.at += kind.at
        self._come, self._next, self._since = come, 0, start

    def run(self, start: float, end: float, factor: float) -> None:
        """Step from `start` to `end`, seconds since the world's start."""
        engine = self._engine
        now = end - engine.start_after_last(end - start)
        while now < end:
            self._admit(now)
            if not self.running:
                now = min(self._coming(), end)
                continue
            now = self._steps(engine.turn(self.running, factor), now, end)
            engine.overshoot(max(now - end, 0.0))
        self._admit(end)
        for kind in self._kinds:
            for depth, emissions in kind.emissions.items():
                emissions.settle()
                by_position = emissions.accepted[::-1].cumsum()[::-1][2:].tolist()
                engine.ledger.accept(depth, by_position)
                emissions.accepted[:] = 0

    def finish(self, end: float) -> None:
        """The phase is over: count the stay of those that are still here."""
        here = [at for kind in self._kinds for at in kind.at] + [at for at, _, _ in self._waiting]
        self.stayed += sum(max(end - max(at, self._since), 0.0) for at in here)

    def _coming(self) -> float:
        return self._come.at[self._next] if self._next < len(self._come.at) else float("inf")

    def _admit(self, now: float) -> None:
        come, waiting = self._come, self._waiting
        while self._coming() <= now:
            i = self._next
            waiting.append((come.at[i], come.tokens[i], come.kind[i]))
            self._next += 1
        while waiting and self.running < self._max_batch:
            at, tokens, index = waiting.popleft()
            kind = self._kinds[min(index, len(self._kinds) - 1)]
            kind.left.append(tokens)
            kind.at.append(at)
            self.running += 1
            self._engine.apart()

    def _steps(self, turn: Turn, now: float, end: float) -> float:
        """Steps up to the next event: a request ends or comes, the turn or the window is over."""
        engine, size, pace = self._engine, self.running, self._pace
        stop = min(end, self._coming()) if size < self._max_batch else end
        supply = []
        for kind in self._kinds:
            if kind.left:
                if turn.depth not in kind.emissions:
                    kind.emissions[turn.depth] = Emissions(kind.survival[: turn.depth], self._rng)
                supply.append((kind, kind.emissions[turn.depth]))
        skip = engine.unclean(turn)
        to_emit = clean_to_emit = sum(sum(kind.left) for kind, _ in supply)
        steps, then, clean_from = 0, now, now
        ended = False
        while not (ended or steps >= turn.most or then >= stop):
            if steps == skip:
                clean_from, clean_to_emit = then, sum(sum(kind.left) for kind, _ in supply)
            then += turn.mean * next(pace)
            steps += 1
            for kind, emissions in supply:
                kind.left = list(map(sub, kind.left, emissions.take(len(kind.left))))
                ended = ended or min(kind.left) <= 0
        clean = engine.took(turn, size, steps)
        if ended:
            self._release(then)  # only now: what comes after has other neighbours, not what was
        remaining = sum(sum(kind.left) for kind, _ in supply)
        engine.count(
            turn,
            Stretch(
                turn.depth,
                size,
                engine.phase.context,
                steps,
                clean,
                then - now,
                then - clean_from if clean else 0.0,
                to_emit - remaining,
                clean_to_emit - remaining if clean else 0,
            ),
        )
        return then

    def _release(self, now: float) -> None:
        """Requests with nothing left to emit are answered."""
        for kind in self._kinds:
            stay = [i for i, left in enumerate(kind.left) if left > 0]
            gone = len(kind.left) - len(stay)
            if gone:
                self.stayed += sum(
                    now - max(at, self._since)
                    for at, left in zip(kind.at, kind.left, strict=True)
                    if left <= 0
                )
                kind.left, kind.at = [kind.left[i] for i in stay], [kind.at[i] for i in stay]
                self.running -= gone
        self._engine.apart()


def _pace(noise: float, rng: np.random.Generator) -> Iterator[float]:
    """Each step's time over its mean."""
    while True:
        yield from np.maximum(1 + noise * rng.standard_normal(DRAWN), 0.1).tolist()
