"""A closed loop: exactly so many requests running."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specpilot.replay.counting import Stretch
from specpilot.replay.engine import Engine, Turn
from specpilot.replay.streams import KINDS, LUCK, NOISE, Streams
from specpilot.replay.world import OUTPUT_TOKENS

FEW = 8192  # drafts; of fewer each has a luck of its own, of more the sum is drawn


@dataclass(frozen=True, slots=True)
class Total:
    """Steps of one depth; `each` is their mean time in seconds."""

    steps: int
    clean: int
    each: float

    def __add__(self, other: Total) -> Total:
        steps = self.steps + other.steps
        each = (self.steps * self.each + other.steps * other.each) / steps
        return Total(steps, self.clean + other.clean, each)


class Crowd:
    """`requests` of the phase's kinds; one that ends is followed by another at once."""

    def __init__(self, engine: Engine, streams: Streams) -> None:
        self._engine, self._streams = engine, streams
        phase, truth = engine.phase, engine.truth
        assert phase.requests is not None, "only for a closed loop"
        self.batch = phase.requests
        self._shares = np.array(list(phase.mix.values()))
        self._mixed = truth.survival(phase.mix).tolist()
        self._curves = [truth.survival({kind: 1.0}).tolist() for kind in phase.mix]
        # At first the batch is the mix as nearly as it can be; those that follow are what they happen to be.
        places = (np.arange(self.batch) + 0.5) / max(self.batch, 1)
        self._kind = np.searchsorted(np.cumsum(self._shares)[:-1], places)
        self._ended = 0.0  # share of the requests that ended in the last window

    def run(self, seconds: float, factor: float, window: int) -> None:
        """Step for `seconds`; `window` names the random streams, which all policies share."""
        if not self.batch:
            return
        self._replace(window)
        before = self._engine.ledger.tokens
        self._steps(seconds, factor, window)
        emitted = (self._engine.ledger.tokens - before) / self.batch
        self._ended = -math.expm1(-emitted / (self._engine.phase.output_tokens or OUTPUT_TOKENS))

    def _steps(self, seconds: float, factor: float, window: int) -> None:
        engine, noise = self._engine, self._engine.truth.world.step_noise
        rng, main = self._streams(NOISE, window), self._engine.schedule.tokens_at(self.batch)
        left = engine.start_after_last(seconds)
        totals: dict[int, tuple[Turn, Total]] = {}
        trials = self._streams(LUCK, window, 2)
        while left > 0:
            turn = engine.turn(self.batch, factor)
            about = min(turn.most, max(left / turn.mean, 1.0))
            each = turn.mean * max(1 + noise * rng.standard_normal() / math.sqrt(about), 0.1)
            steps = int(min(turn.most, math.ceil(left / each)))
            left -= steps * each
            engine.overshoot(max(-left, 0.0))
            now = Total(steps, engine.took(turn, self.batch, steps), each)
            if turn.of is not None:
                self._step(turn, now, trials)
            else:
                known = totals.get(turn.depth)
                totals[turn.depth] = (turn, known[1] + now if known else now)
        for depth, (turn, total) in totals.items():
            self._count(turn, total, (LUCK, window, int(depth != main)))

    def _count(self, turn: Turn, total: Total, name: tuple[int, ...]) -> None:
        """Draw what the steps emitted, from streams that begin with `name`."""
        depth = turn.depth
        clean_tokens, accepted = total.clean * self.batch, [0] * depth
        for group, (requests, survival) in enumerate(self._groups()):
            drafts = total.steps * requests
            counts = self._accepted(drafts, survival[:depth], (*name, group))
            accepted = [a + b for a, b in zip(accepted, counts, strict=True)]
            if depth and total.clean:
                # Which of the drafts were in clean steps is as it comes.
                lengths = [a - b for a, b in zip((drafts, *counts), (*counts, 0), strict=True)]
                rng = self._streams(*name, group, depth)
                clean = rng.multivariate_hypergeometric(lengths, total.clean * requests, method="marginals")
                clean_tokens += int(clean @ np.arange(depth + 1))
        self._record(turn, total, accepted, clean_tokens)

    def _step(self, turn: Turn, step: Total, rng: np.random.Generator) -> None:
        """One step of a trial, which compares what each of its steps emitted."""
        accepted = [0] * turn.depth
        for requests, survival in self._groups():
            alive, before = requests, 1.0
            for j, s in enumerate(survival[: turn.depth]):
                alive = int(rng.binomial(alive, min(s / before, 1.0))) if alive and before else 0
                accepted[j] += alive
                before = s
        self._record(turn, step, accepted, (self.batch + sum(accepted)) * step.clean)

    def _record(self, turn: Turn, total: Total, accepted: list[int], clean_tokens: int) -> None:
        self._engine.ledger.accept(turn.depth, accepted)
        self._engine.count(
            turn,
            Stretch(
                turn.depth,
                self.batch,
                self._engine.phase.context,
                total.steps,
                total.clean,
                total.steps * total.each,
                total.clean * total.each,
                total.steps * self.batch + sum(accepted),
                clean_tokens,
            ),
        )

    def _accepted(self, drafts: int, survival: Sequence[float], name: tuple[int, ...]) -> list[int]:
        """How many of `drafts` are accepted at each position.

        The n-th draft to reach a position has the same luck whoever plays, so that policies with the same
        depths emit the same tokens but for the steps in which they differ.
        """
        alive, before, counts = drafts, 1.0, []
        for j, s in enumerate(survival):
            if alive and before > 0:
                rng, p = self._streams(*name, j), min(s / before, 1.0)
                alive = int(rng.binomial(alive, p)) if alive > FEW else int((rng.random(alive) < p).sum())
            before = s
            counts.append(alive)
        return counts

    def _replace(self, window: int) -> None:
        """Some requests have ended since the last window, and the next ones may be of another kind."""
        if self._engine.phase.traffic_per_request:
            fate = self._streams(KINDS, window)
            ends = fate.random(self.batch) < self._ended
            new = fate.choice(len(self._shares), self.batch, p=self._shares)
            self._kind = np.where(ends, new, self._kind)

    def _groups(self) -> list[tuple[int, list[float]]]:
        """Requests of equal survival: all of them, unless kinds are mixed within the batch."""
        if not self._engine.phase.traffic_per_request:
            return [(self.batch, self._mixed)]
        counts = np.bincount(self._kind, minlength=len(self._shares)).tolist()
        return list(zip(counts, self._curves, strict=True))
