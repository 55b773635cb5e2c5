"""Survival of draft slots: how likely slot j is emitted, with its uncertainty.

Evidence is, per 0-based position, how many drafts had it and how many of those were accepted that far.
A position counts only where it was drafted, so a depth that changes within a window, and times at
depth 0, need no special care. What is believed of a position is its acceptance given that the one
before was accepted: s_j = s_{j-1} q_j, which makes survival fall monotonically by construction and
gives positions never drafted a prior from the ones before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specpilot.estimate import constants as c
from specpilot.estimate.dispersion import Dispersion
from specpilot.estimate.windows import Window

Floats = NDArray[np.float64]
FIRST_DISPERSION = Dispersion(c.DISPERSION_FIRST)


@dataclass(frozen=True, slots=True)
class SurvivalMemory:
    """Decayed evidence by position, and how it has varied between windows.

    `prior` and `weight` are what is believed without the evidence: conditional acceptance, and drafts'
    worth of it. `dispersion` is the variance between windows over the binomial one: requests differ, and
    a window sees few of them. `last_z` is the newest window's distance from memory.
    """

    drafted: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    prior: tuple[float, ...] = ()
    weight: tuple[float, ...] = ()
    dispersion: Dispersion = FIRST_DISPERSION
    last_z: float = 0.0


@dataclass(frozen=True, slots=True)
class Survival:
    """Belief about the first K slots. `survival[j]` is s_{j+1}; `acceptance` conditional, with `variance`."""

    survival: Floats
    acceptance: Floats
    variance: Floats
    evidence: Floats  # effective drafts seen by position

    def lengths(self) -> Floats:
        """Accepted length L_k for k = 0..K: 1 + s_1 + … + s_k."""
        return np.concatenate(([1.0], 1.0 + np.cumsum(self.survival)))

    def log_gradient(self) -> Floats:
        """d log L_k / d q_i as [K + 1, K]: through it any difference of lengths gets its variance."""
        depth = len(self.survival)
        tail = np.tril(np.ones((depth + 1, depth)), -1) * self.survival  # [k, j]: s_j where j < k
        sums = np.cumsum(tail[:, ::-1], axis=1)[:, ::-1]  # [k, i]: sum of s_j, i <= j < k
        return np.asarray(sums / self.acceptance / self.lengths()[:, None])

    def deviation(self) -> Floats:
        """Standard deviation of each s_j."""
        relative = np.cumsum(self.variance / self.acceptance**2)
        return np.asarray(self.survival * np.sqrt(relative))


@dataclass(frozen=True, slots=True)
class Shift:
    """Acceptance at `position` went from `before` to `after`, `z` standard deviations."""

    position: int
    before: float
    after: float
    z: float


def believe(memory: SurvivalMemory, depth: int) -> Survival:
    """The belief about `depth` slots."""
    q, var, seen = np.empty(depth), np.empty(depth), np.empty(depth)
    s, variance_s = 1.0, 0.0
    for j in range(depth):
        drafted = _at(memory.drafted, j) / memory.dispersion.value
        accepted = _at(memory.accepted, j) / memory.dispersion.value
        # A slot nothing is known of behaves like the one before it.
        guess = _at(memory.prior, j, q[j - 1] if j else c.PRIOR_ACCEPTANCE)
        weight = _at(memory.weight, j, c.PRIOR_DRAFTS)
        trials = drafted * s + weight
        q[j] = min(max((accepted + weight * guess) / trials, 1e-4), 1 - 1e-4)
        total = drafted + weight / max(s, 0.05)
        now = s * q[j]
        # Var(s_j) is binomial over the drafts that had slot j; what s_{j-1} explains of it is taken out.
        own = (now * (1 - now) / total - q[j] ** 2 * variance_s) / s**2
        var[j] = max(own, now * (1 - q[j]) / total / s**2)
        variance_s = s**2 * var[j] + q[j] ** 2 * variance_s
        s, seen[j] = now, drafted
    return Survival(np.asarray(np.cumprod(q)), q, var, seen)


def learn(memory: SurvivalMemory, windows: Iterable[Window]) -> tuple[SurvivalMemory, Shift | None]:
    """Take in the windows of one tick, pooled over replicas; a Shift when they contradict the memory."""
    windows = list(windows)
    drafted = _pool(w.drafted for w in windows)
    accepted = _pool(w.accepted for w in windows)
    if not any(drafted):
        return memory, None
    z, position = _distance(memory, drafted, accepted)
    now = accepted[position] / max(drafted[position], 1e-9)
    before = _rate(memory, position)
    shifted = abs(z) > c.SHIFT_Z or (
        min(abs(z), abs(memory.last_z)) > c.SHIFT_Z_TWICE and z * memory.last_z > 0
    )
    if shifted and abs(now - before) >= c.SHIFT_SURVIVAL:
        carried = _carry(memory, drafted, accepted)
        return replace(carried, last_z=0.0), Shift(position, before, now, z)
    dispersion = memory.dispersion
    if z:
        dispersion = dispersion.after(z * z, c.DISPERSION_RANGE, c.DISPERSION_FIRST_WINDOWS)
    faded = max(w.seconds for w in windows) / c.SURVIVAL_HALF_LIFE
    # What is hardly drafted fades with what is seen of it rather than with time: exploring it is dear.
    seen = [max(d / max(drafted), c.RARELY_SEEN) for d in drafted]
    keep = tuple(0.5 ** (faded * s) for s in seen)
    return (
        SurvivalMemory(
            _add(memory.drafted, drafted, keep),
            _add(memory.accepted, accepted, keep),
            memory.prior,
            memory.weight,
            dispersion,
            z,
        ),
        None,
    )


def _at(values: tuple[float, ...], j: int, default: float = 0.0) -> float:
    return values[j] if j < len(values) else default


def _pool(rows: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    total: list[float] = []
    for row in rows:
        total += [0.0] * (len(row) - len(total))
        for j, value in enumerate(row):
            total[j] += value
    return tuple(total)


def _add(old: tuple[float, ...], new: tuple[float, ...], keep: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(_at(keep, j, 1.0) * _at(old, j) + _at(new, j) for j in range(max(len(old), len(new))))


def _rate(memory: SurvivalMemory, j: int) -> float:
    return _at(memory.accepted, j) / max(_at(memory.drafted, j), 1e-9)


def _distance(
    memory: SurvivalMemory, drafted: tuple[float, ...], accepted: tuple[float, ...]
) -> tuple[float, int]:
    """The largest standardised difference between window and memory over positions, and where."""
    worst, where = 0.0, 0
    for j, n in enumerate(drafted):
        old = _at(memory.drafted, j)
        dispersion = memory.dispersion.value
        if min(n, old) / dispersion < c.LEAST_DRAFTS:
            continue
        rate = (_at(memory.accepted, j) + accepted[j] + 0.5) / (old + n + 1)
        deviation = math.sqrt(max(rate * (1 - rate), 1e-6) * (1 / n + 1 / old) * dispersion)
        z = (accepted[j] / n - _rate(memory, j)) / deviation
        if abs(z) > abs(worst):
            worst, where = z, j
    return worst, where


def _carry(memory: SurvivalMemory, drafted: tuple[float, ...], accepted: tuple[float, ...]) -> SurvivalMemory:
    """After a shift: only the window counts, and slots that it hardly saw move as those it saw did.

    Traffic that is easier to draft is so at every slot, by about as much on the logit scale.
    """
    depth = max(len(memory.drafted), len(drafted))
    old = believe(memory, depth)
    fresh = replace(memory, drafted=drafted, accepted=accepted, prior=(), weight=())
    new = believe(fresh, depth)
    known = [j for j in range(depth) if new.evidence[j] >= c.CARRY_DRAFTS]
    moves = [_logit(new.acceptance[j]) - _logit(old.acceptance[j]) for j in known]
    move = float(np.mean(moves)) if moves else 0.0
    prior = tuple(float(1 / (1 + math.exp(-_logit(q) - move))) for q in old.acceptance)
    weight = tuple(float(min(c.CARRY_DRAFTS, old.evidence[j] + c.PRIOR_DRAFTS)) for j in range(depth))
    return replace(fresh, prior=prior, weight=weight)


def _logit(q: float) -> float:
    return math.log(q / (1 - q))
