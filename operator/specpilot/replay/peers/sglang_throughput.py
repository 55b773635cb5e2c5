"""SGLang's throughput-aware strategy: expected tokens over the step time measured at start.

Source: SGLang's pull request 28045 ("throughput-aware policy for cost-guided adaptive speculative
steps") and the module's own description. Dummy runs at start fill a table of step times by batch and
steps. Each draft position has a window of its last 20 verified batches; its mean is the position's
acceptance, at all batch sizes alike. Positions without data are extrapolated geometrically from
those with, and going to fewer steps forgets the deeper ones. Every five batches, once all positions in
use have a full window, the steps with the highest

    (1 + sum of acceptances) / step time(batch, steps)

are taken if that is more than 10% above the present steps' value. The table stays as measured.

To its favour: a position's acceptance is a whole scrape's, not 20 batches' (at one request those would
differ by 0.1), its table is the world's profile, at the profile's context where it really measures at
128 tokens, linear between batch sizes, and it may use every positive candidate of the world. 0 steps it
does not have. Without a profile it keeps its initial steps, as it does while its table is empty.
"""

from __future__ import annotations

from specpilot.estimate.counters import Counters
from specpilot.replay.peers.common import Schedules, Windows, cost_table, load, nearest, survival
from specpilot.replay.policy import Setup
from specpilot_engine.protocol import Schedule

WINDOW = 20  # verified batches
HYSTERESIS = 0.1
INITIAL = 3


class Acceptance:
    """Acceptance by position: unconditional, remembered until forgotten."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self._filled: list[float] = []  # verified batches, up to WINDOW

    def see(self, positions: list[tuple[float, float]]) -> None:
        """By position, its acceptance over a number of verified batches."""
        for j, (rate, batches) in enumerate(positions):
            if j == len(self.rates):
                self.rates.append(rate)
                self._filled.append(0.0)
            share = min(batches / WINDOW, 1.0) if self._filled[j] else 1.0
            self.rates[j] += share * (rate - self.rates[j])
            self._filled[j] = min(self._filled[j] + batches, WINDOW)

    def full(self, steps: int) -> bool:
        """Whether every position of so many steps has a full window."""
        return len(self._filled) >= steps and all(n >= WINDOW for n in self._filled[:steps])

    def forget_beyond(self, steps: int) -> None:
        """Drop what is known of deeper positions."""
        del self.rates[steps:], self._filled[steps:]

    def tokens(self, steps: int) -> float | None:
        """Expected tokens of a step; None where nothing is known to extrapolate from."""
        rates = self.rates[:steps]
        if not rates or (len(rates) < steps and rates[0] <= 0):
            return None
        while len(rates) < steps:
            # One known position gives no ratio: the next is taken to be like it.
            ratio = (rates[-1] / rates[0]) ** (1.0 / (len(rates) - 1)) if len(rates) > 1 else 1.0
            rates.append(rates[-1] * ratio)
        return 1.0 + sum(rates)


class ThroughputAware:
    """The policy: one number of steps in force, scored anew at each batch size."""

    def start(self, setup: Setup) -> Schedule:
        self._candidates = [k for k in setup.depths if k > 0] or [0]
        self._seconds = cost_table(setup)
        self._acceptance = Acceptance()
        self._current = nearest(INITIAL, self._candidates)
        self._windows, self._schedules = Windows(), Schedules(setup)
        self._latest = self._schedules.by_batch(self._best)
        return self._latest

    def look(self, counters: Counters, now: float) -> Schedule:  # noqa: ARG002
        window = self._windows.since_last(counters)
        if window is None:
            return self._latest
        self._acceptance.see(survival(window))
        batch = round(load(window))
        # What ran at the load: other batch sizes may have had other steps.
        before = self._latest.tokens_at(batch)
        self._current = before
        self._current = self._best(batch)
        self._latest = self._schedules.by_batch(self._best)
        if self._current < before:
            self._acceptance.forget_beyond(self._current)
        return self._latest

    def _best(self, batch: int) -> int:
        if self._seconds is None or not self._acceptance.full(self._current):
            return self._current
        scores = {}
        for k in self._candidates:
            tokens = self._acceptance.tokens(k)
            if tokens is not None:
                scores[k] = tokens / self._seconds(k, batch)
        best = max(scores, key=lambda k: scores[k], default=self._current)
        present = scores.get(self._current, 0.0)
        return best if scores.get(best, 0.0) > present * (1.0 + HYSTERESIS) else self._current
