"""The new schedule against the one before, on the same engine: alternating slices, compared in pairs.

Slices go new, old, old, new, new, old, …: the order turns with each pair, so that whatever drifts
(contexts that grow, a machine that warms up) cancels. A slice counts what its clean steps emitted and
the request-seconds they took; tokens per request-second is goodput that a slightly different number of
requests does not disturb. A pair gives the log of new over old.

The engine ends a trial by itself, so that its price is bounded whatever the operator does: as soon as
the interval of the mean excludes no difference, or after the most pairs. Pure: no clock, no randomness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from specpilot_engine.protocol import Pairs, Trial

LEAST_CLEAN = 3  # clean steps of a slice that can be compared
# Where requests come and go few steps are clean. After so many times the steps that a slice should have it
# ends with those it has, if they suffice, and after so many all the same.
PATIENCE, LONGEST = 2, 4
BATCH_RANGE = 1.25  # slices whose mean batches differ by more are not
LEAST_PAIRS = 5  # before a trial ends by being clear: fewer say little about their own noise


@dataclass(slots=True)
class Slice:
    """What the clean steps of one slice did. `number` counts from 0 through a trial."""

    number: int
    steps: int = 0
    requests: int = 0
    emitted: int = 0
    request_seconds: float = 0.0
    # Sums over steps, with x tokens per request and y seconds.
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0

    @property
    def new(self) -> bool:
        """Whether the new schedule runs in it."""
        return self.number % 4 in (0, 3)

    def add(self, requests: int, emitted: int, seconds: float) -> None:
        self.steps += 1
        self.requests += requests
        self.emitted += emitted
        self.request_seconds += requests * seconds
        x = emitted / requests
        self.xx += x * x
        self.xy += x * seconds
        self.yy += seconds * seconds

    def comparable(self, other: Slice) -> bool:
        """Whether both hold enough steps, of about as many requests, and a rate."""
        if min(self.steps, other.steps) < LEAST_CLEAN:
            return False
        if min(self.emitted, other.emitted, self.request_seconds, other.request_seconds) <= 0:
            return False
        mine, theirs = self.requests / self.steps, other.requests / other.steps
        return max(mine, theirs) <= BATCH_RANGE * min(mine, theirs)

    @property
    def log_rate(self) -> float:
        """Log of tokens per second and request.

        The log of a noisy mean falls short by half its relative variance on average. Of the tokens that makes a short
        slice of a deeper draft, whose length varies more, look worse by half a percent; of the time, a
        short slice look better than a long one. What the slice's own steps tell of both is put right.
        """
        length, time = self.emitted / self.requests, self.request_seconds / self.requests
        of_length = max(self.xx / self.steps - length**2, 0.0) / (self.steps - 1) / length**2
        of_time = max(self.yy / self.steps - time**2, 0.0) / (self.steps - 1) / time**2
        return math.log(self.emitted / self.request_seconds) + (of_length - of_time) / 2

    @property
    def variance(self) -> float:
        """Of log_rate, as the slice's own steps tell it: the variance of a ratio of two sums."""
        rate, mean = self.emitted / self.request_seconds, self.emitted / self.requests
        rest = max(self.xx - 2 * rate * self.xy + rate * rate * self.yy, 0.0)
        return rest / (self.steps * (self.steps - 1) * mean**2)


@dataclass(slots=True)
class TrialRun:
    """One trial on one engine. `tried` counts the pairs that could not be compared as well."""

    trial: Trial
    generation: int
    sums: Pairs = field(default_factory=Pairs)
    tried: int = 0
    running: bool = True
    _within: float = 0.0  # variance of the pairs as their own steps tell it, summed
    _scheduled: int = 0  # steps of the present slice
    _differs: bool = False  # at the coming step the two schedules do
    # Those whose pair is not closed, oldest first.
    _slices: list[Slice] = field(default_factory=lambda: [Slice(0)])

    @property
    def pairs(self) -> Pairs:
        """Those compared. They differ among each other by what steps within a slice differ by, at the least.

        Five pairs that happen to agree would look like a certainty, and now and then like one of the wrong sign.
        """
        sums = self.sums
        if not sums.count:
            return sums
        return replace(sums, squares=max(sums.squares, sums.total**2 / sums.count + self._within))

    @property
    def new_runs(self) -> bool:
        """Whether the coming step uses the new schedule: its slice's, or in the end the winner's."""
        if self.running:
            return self._slices[-1].new
        return self.pairs.clear and self.pairs.mean > 0

    def next(self, differs: bool) -> Slice:
        """The slice of the coming step; `differs`: the two schedules do at its number of requests.

        Steps at which they do not differ pass without being counted.
        """
        present = self._slices[-1]
        self._differs = differs
        if self.running and differs:
            wanted = round(self.trial.slice * (self.trial.ratio if present.new else 1))
            least = LEAST_CLEAN if self._scheduled >= PATIENCE * wanted else wanted
            if present.steps >= least or self._scheduled >= LONGEST * wanted:
                present = Slice(present.number + 1)
                self._slices.append(present)
                self._scheduled = 0
        return present

    def took(self) -> None:
        """The step that `next` was asked for takes place."""
        self._scheduled += self.running and self._differs

    def landed(self, of: Slice) -> None:
        """A step's results came in, clean or not. Steps land in order, so earlier slices are complete."""
        while self.running and of.number // 2 > self._slices[0].number // 2:
            one, other = self._slices[0], self._slices[1]
            del self._slices[:2]
            self._close(*((one, other) if one.new else (other, one)))

    def _close(self, new: Slice, old: Slice) -> None:
        self.tried += 1
        if new.comparable(old):
            gain = new.log_rate - old.log_rate
            self.sums += Pairs(1, gain, gain * gain)
            self._within += new.variance + old.variance
        pairs = self.pairs
        if (pairs.count >= LEAST_PAIRS and pairs.clear) or self.tried >= self.trial.pairs:
            self.running = False

    def as_json(self) -> dict[str, Any]:
        """For the state document; gain and interval are logs, None while nothing can be said."""
        known = math.isfinite(self.pairs.half_width)
        return {
            "generation": self.generation,
            "running": self.running,
            "newRuns": self.new_runs,
            "pairs": self.pairs.count,
            "tried": self.tried,
            "logGain": self.pairs.mean if known else None,
            "interval": [self.pairs.low, self.pairs.high] if known else None,
        }
