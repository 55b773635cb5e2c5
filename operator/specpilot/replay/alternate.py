"""A change on trial as the engine runs it: slices of the new schedule and the one before, compared in pairs.

The rule is that of serving/specpilot_engine/trial.py, in stretches of steps: slices go new, old, old, new, …;
a pair gives the log of new over old of tokens per request-second of clean steps; it ends as soon as the
interval of the mean excludes no difference, or after the most pairs, and the winner runs on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from specpilot.replay.counting import Stretch
from specpilot_engine.protocol import Pairs, Trial

LEAST_CLEAN, LEAST_PAIRS, BATCH_RANGE = 3, 5, 1.25


@dataclass(slots=True)
class Slice:
    """What the clean steps of one slice did."""

    steps: int = 0
    requests: int = 0
    emitted: int = 0
    request_seconds: float = 0.0

    def comparable(self, other: Slice) -> bool:
        """Whether both hold enough steps, of about as many requests."""
        if min(self.steps, other.steps) < LEAST_CLEAN:
            return False
        mine, theirs = self.requests / self.steps, other.requests / other.steps
        return max(mine, theirs) <= BATCH_RANGE * min(mine, theirs)

    @property
    def log_rate(self) -> float:
        return math.log(self.emitted / self.request_seconds)


class Alternation:
    """Asked for the next stretch, told of each that was compared."""

    def __init__(self, trial: Trial) -> None:
        self.pairs = Pairs()
        self.running = True
        self._trial = trial
        self._tried = self._number = 0
        self._left = trial.slice
        self._now, self._before = Slice(), Slice()

    def stretch(self, new: int, old: int) -> tuple[int, float]:
        """The depth of the next steps, where the two schedules say `new` and `old`, and the most of them."""
        if not self.running:
            return (new if self.pairs.clear and self.pairs.mean > 0 else old), math.inf
        if new == old:
            return new, math.inf
        return (new if self._new(self._number) else old), self._left

    def took(self, it: Stretch) -> None:
        """Count steps of the present slice."""
        slice_ = self._now
        slice_.steps += it.clean
        slice_.requests += it.clean * it.batch
        slice_.emitted += it.clean_tokens
        slice_.request_seconds += it.batch * it.clean_seconds
        self._left -= it.steps
        if self._left <= 0:
            if self._number % 2:
                self._close()
            self._before, self._now = slice_, Slice()
            self._number += 1
            self._left = self._trial.slice

    def _close(self) -> None:
        one, other = self._before, self._now
        self._tried += 1
        if one.comparable(other):
            gain = one.log_rate - other.log_rate
            gain = gain if self._new(self._number - 1) else -gain
            self.pairs += Pairs(1, gain, gain * gain)
        if (self.pairs.count >= LEAST_PAIRS and self.pairs.clear) or self._tried >= self._trial.pairs:
            self.running = False

    @staticmethod
    def _new(number: int) -> bool:
        return number % 4 in (0, 3)
