"""A change on trial as the engine runs it: slices of the new schedule and the one before, compared in pairs.

The rule is that of serving/specpilot_engine/trial.py: slices go new, old, old, new, …; a pair gives the log of new
over old of tokens per request-second of clean steps; it ends as soon as the interval of the mean excludes no
difference, or after the most pairs, and the winner runs on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from specpilot.replay.counting import Stretch
from specpilot_engine.protocol import Pairs, Trial

LEAST_CLEAN, LEAST_PAIRS, BATCH_RANGE, PATIENCE, LONGEST = 3, 5, 1.25, 2, 4


@dataclass(slots=True)
class Slice:
    """What the clean steps of one slice did."""

    steps: int = 0
    requests: int = 0
    emitted: int = 0
    request_seconds: float = 0.0
    squares: float = 0.0  # of tokens per request and step

    def comparable(self, other: Slice) -> bool:
        """Whether both hold enough steps, of about as many requests."""
        if min(self.steps, other.steps) < LEAST_CLEAN:
            return False
        mine, theirs = self.requests / self.steps, other.requests / other.steps
        return max(mine, theirs) <= BATCH_RANGE * min(mine, theirs)

    @property
    def log_rate(self) -> float:
        """Log of tokens per second and request, without the shortfall that the log of a noisy mean has."""
        mean = self.emitted / self.requests
        variance = max(self.squares / self.steps - mean**2, 0.0) / (self.steps - 1)
        return math.log(self.emitted / self.request_seconds) + variance / (2 * mean**2)


class Alternation:
    """Asked for the next steps, told of each step that was compared."""

    def __init__(self, trial: Trial) -> None:
        self.pairs = Pairs()
        self.running = True
        self._trial = trial
        self._tried = self._number = self._scheduled = 0
        self._now, self._before = Slice(), Slice()

    def stretch(self, new: int, old: int) -> tuple[int, float]:
        """The depth of the next steps, where the two schedules say `new` and `old`, and the most of them."""
        if not self.running:
            return (new if self.pairs.clear and self.pairs.mean > 0 else old), math.inf
        if new == old:
            return new, math.inf
        return (new if _new(self._number) else old), 1

    def took(self, it: Stretch) -> None:
        """Count a step of the present slice."""
        now, wanted = self._now, self._trial.slice
        self._scheduled += it.steps
        if it.clean:
            now.steps += it.clean
            now.requests += it.clean * it.batch
            now.emitted += it.clean_tokens
            now.request_seconds += it.batch * it.clean_seconds
            now.squares += it.clean * (it.clean_tokens / (it.clean * it.batch)) ** 2
        least = LEAST_CLEAN if self._scheduled >= PATIENCE * wanted else wanted
        if now.steps >= least or self._scheduled >= LONGEST * wanted:
            if self._number % 2:
                self._close()
            self._before, self._now = now, Slice()
            self._number += 1
            self._scheduled = 0

    def _close(self) -> None:
        new, old = (self._now, self._before) if _new(self._number) else (self._before, self._now)
        self._tried += 1
        if new.comparable(old):
            gain = new.log_rate - old.log_rate
            self.pairs += Pairs(1, gain, gain * gain)
        if (self.pairs.count >= LEAST_PAIRS and self.pairs.clear) or self._tried >= self._trial.pairs:
            self.running = False


def _new(number: int) -> bool:
    """Whether the new schedule runs in the slice of that number."""
    return number % 4 in (0, 3)
