"""Whether a trial bore a change out: what all replicas measured, weighed together at any moment. Pure.

Every engine counts pairs of slices, one of the new schedule and one of the one before, and gives the sum
of the log ratios of their goodput and of the squares. The interval for the mean
(`specpilot_engine.protocol.interval`) holds at every number of pairs at once. So it may be looked at with
every tick, and by the engines themselves after every pair, and a replica that stopped early because its own
interval was clear spoils nothing: stopping is what such intervals allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from specpilot.estimate import constants as c
from specpilot.estimate.counters import TrialCount
from specpilot_engine.protocol import Pairs


class Answer(StrEnum):
    """What a trial says by now."""

    KEEP = "Keep"
    UNDO = "Undo"
    GO_ON = "GoOn"
    INCONCLUSIVE = "Inconclusive"  # compared long enough: neither is better for sure
    UNMEASURED = "Unmeasured"  # hardly anything could be compared


@dataclass(frozen=True, slots=True)
class Measured:
    """Gain in goodput of the new schedule over the one before, as shares, with its interval."""

    gain: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        more = "more" if self.gain >= 0 else "less"
        return (
            f"{abs(self.gain):.1%} {more} goodput measured ({self.low:+.1%} to {self.high:+.1%},"
            f" {self.pairs} pairs of slices)"
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """An answer with what it rests on."""

    answer: Answer
    pairs: Pairs

    @property
    def measured(self) -> Measured | None:
        """None while nothing can be said."""
        p = self.pairs
        if not math.isfinite(p.half_width):
            return None
        return Measured(math.expm1(p.mean), math.expm1(p.low), math.expm1(p.high), round(p.count))


def weigh(counts: Sequence[TrialCount]) -> Proof:
    """The answer of one trial from what each replica has counted of it so far."""
    pairs = sum((count.pairs for count in counts), Pairs())
    if pairs.count >= c.TRIAL_CLEAR and pairs.clear:
        return Proof(Answer.KEEP if pairs.mean > 0 else Answer.UNDO, pairs)
    if not counts or any(count.running for count in counts):
        return Proof(Answer.GO_ON, pairs)
    return Proof(Answer.INCONCLUSIVE if pairs.count >= c.TRIAL_ENOUGH else Answer.UNMEASURED, pairs)


def borne_out(proof: Proof, gain: float, deviation: float) -> bool:
    """Whether what was measured and the log `gain` believed, each weighed by its variance, leave little doubt.

    The interval that holds at every look is wide, and knows nothing of what made the change worth a trial. Both
    must say that the new schedule is better, by about as much: a belief that the measurement contradicts is
    worth nothing. While more pairs are to come they must say it more clearly.
    """
    pairs = proof.pairs
    measured, error = pairs.mean, max(pairs.error, 1e-6)
    if pairs.count < c.TRIAL_ENOUGH or min(gain, measured) <= 0 or proof.answer is Answer.UNDO:
        return False
    if gain - measured > c.PROOF_Z * math.hypot(deviation, error):
        return False
    z = _together(gain, deviation, measured, error)
    return z > (c.PROOF_Z if proof.answer is Answer.INCONCLUSIVE else c.PROOF_Z_EARLY)


def refuted(proof: Proof, gain: float, deviation: float, needed: float) -> bool:
    """Whether the two leave little doubt that the new schedule is not better by `needed` (log), and each says so.

    The estimates have seen both schedules by then: what was believed before may turn out to have been a mistake
    about slots or step times that nobody had seen, and no measurement tells two schedules apart soon that give about as
    much.
    """
    pairs = proof.pairs
    if pairs.count < c.TRIAL_ENOUGH or max(gain, pairs.mean) >= needed:
        return False
    return _together(gain - needed, deviation, pairs.mean - needed, max(pairs.error, 1e-6)) < -c.PROOF_Z


def _together(gain: float, deviation: float, measured: float, error: float) -> float:
    """Two values, each weighed by its variance, in deviations of their mean."""
    belief, measurement = max(deviation, 1e-6) ** -2, error**-2
    return (gain * belief + measured * measurement) / math.sqrt(belief + measurement)


def favour(gain: float, deviation: float) -> float:
    """How many times as many steps of a trial the new schedule gets.

    For a difference that is to be known so and so well, n steps of one and m of the other make a variance of
    1/n + 1/m, and what they cost in the mean is n times the chance that the first is the worse one, and m times the
    chance that it is the other. Least are these where n/m is the root of the odds.
    """
    chance = 0.5 * math.erfc(-gain / (math.sqrt(2) * max(deviation, 1e-9)))
    odds = chance / max(1 - chance, 1e-9)
    return round(min(max(math.sqrt(odds), 1.0), c.TRIAL_FAVOUR), 1)


def extent(
    batch: float, gain: float, ratio: float, step_seconds: float, step_noise: float
) -> tuple[int, int]:
    """(steps of a slice of the old schedule, most pairs on each replica) for a change at about `batch` requests.

    `gain` is the log gain predicted, `ratio` as of `favour`, `step_noise` the log deviation of one step's time. A slice
    holds so many steps that the lengths of single drafts average out, and fewer where the gain stands out from their
    noise anyhow. There are as many pairs as TRIAL_SECONDS allow: what is clear ends a trial long before, and what
    is not costs little while it is not told.
    """
    least, usual, most = c.TRIAL_SLICE
    of_step = (1 + 1 / ratio) * (c.LENGTH_NOISE**2 / batch + step_noise**2)
    aim = max(c.TRIAL_AIM * abs(gain), c.TRIAL_LEAST_AIM)
    enough = math.ceil(of_step * (c.TRIAL_SLICE_Z / aim) ** 2)
    steps = max(min(enough, max(math.ceil(c.TRIAL_REQUESTS / batch), usual), most), least)
    pairs = math.ceil(c.TRIAL_SECONDS / ((1 + ratio) * steps * step_seconds))
    return steps, max(pairs, c.TRIAL_PAIRS)
