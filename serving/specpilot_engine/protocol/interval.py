"""How sure the comparison of two schedules is: shared, so that engine and operator never disagree.

Each pair of slices gives one log ratio of goodputs. The interval below holds at every number of pairs
at once, so that looking after each of them, and stopping when it has become clear, costs no confidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Pairs", "half_width"]

ALPHA = 0.05  # chance that an interval ever misses the truth, however long it is watched
PRIOR_EFFECT = 1.0  # variance expected of a difference, in units of a pair's own variance


@dataclass(frozen=True, slots=True)
class Pairs:
    """Log ratios of pairs: how many, their sum, and the sum of their squares."""

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """Mean log ratio; 0 before any pair."""
        return self.total / self.count if self.count else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean; infinite before two pairs."""
        if self.count < 2:
            return math.inf
        variance = max(self.squares / self.count - self.mean**2, 0.0)
        return math.sqrt(variance / (self.count - 1))

    @property
    def half_width(self) -> float:
        """Of the interval about the mean; infinite while there are too few pairs to say anything."""
        return half_width(self.count, self.total, self.squares)

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width

    @property
    def clear(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.count > 0 and abs(self.mean) > self.half_width

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(self.count + other.count, self.total + other.total, self.squares + other.squares)


def half_width(count: float, total: float, squares: float, alpha: float = ALPHA) -> float:
    """Half the width of the always-valid interval for the mean of `count` values.

    The sequential t-test: under a normal prior on the standardised mean and the right Haar prior on
    the scale, the Bayes factor against a mean m after n values is, with t the t statistic about m,
    nu = n - 1 and R = 1 + n PRIOR_EFFECT,

        R^(-1/2) [(1 + t^2/nu) / (1 + t^2/(nu R))]^(n/2)

    (Gönen, Johnson, Lu, Westfall, The American Statistician 2005). By scale invariance it is a
    martingale at the true mean (Lai, Annals of Statistics 1976; Wang and Ramdas, "Anytime-valid
    t-tests and confidence sequences for Gaussian means with unknown variance", 2024), so that by
    Ville's inequality it ever exceeds 1/alpha with probability alpha at most. The interval is the set of
    m where it does not, solved for t^2.
    """
    if count < 2:
        return math.inf
    ratio = 1 + count * PRIOR_EFFECT
    bound = (math.sqrt(ratio) / alpha) ** (2 / count)
    if bound >= ratio:
        return math.inf
    freedom = count - 1
    variance = max(squares - total * total / count, 0.0) / freedom
    return math.sqrt(variance * freedom / count * (bound - 1) / (1 - bound / ratio))
