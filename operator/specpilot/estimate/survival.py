"""Survival of draft slots: how likely slot j is emitted, with its uncertainty.

Evidence is, per 0-based position, how many drafts had it and how many of those were accepted that far.
A position counts only where it was drafted, so a depth that changes within a window, and times at
depth 0, need no special care. What is believed of a position is its acceptance given that the one
before was accepted: s_j = s_{j-1} q_j, which makes survival fall monotonically by construction and
gives positions never drafted a prior from the ones before.

Drafts of one request are alike, so m of them tell what m / (1 + r (m - 1)) independent ones would, r
being their intraclass correlation (Kish's design effect), and a request has so many only. Evidence is kept in such independent drafts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specpilot.estimate import constants as c
from specpilot.estimate.dispersion import Dispersion
from specpilot.estimate.windows import Window

Floats = NDArray[np.float64]
Counts = tuple[tuple[float, ...], tuple[float, ...]]  # drafted and accepted by position
FIRST_DISPERSION = Dispersion(1.0)


@dataclass(frozen=True, slots=True)
class SurvivalMemory:
    """Decayed evidence by position in independent drafts, and how it has varied between windows.

    `prior` and `weight` are what is believed without the evidence: conditional acceptance, and drafts'
    worth of it. `dispersion` is the variance seen between windows over the expected one. `recent` are the newest windows, newest first, as they stand in the evidence.
    """

    drafted: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    prior: tuple[float, ...] = ()
    weight: tuple[float, ...] = ()
    dispersion: Dispersion = FIRST_DISPERSION
    recent: tuple[Counts, ...] = ()


@dataclass(frozen=True, slots=True)
class Survival:
    """Belief about the first K slots. `survival[j]` is s_{j+1}; `acceptance` conditional, with `variance`, and
    `guess` what it would be without the evidence."""

    survival: Floats
    acceptance: Floats
    variance: Floats
    guess: Floats
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
    q, var, guesses, seen = (np.empty(depth) for _ in range(4))
    s, variance_s = 1.0, 0.0
    moves: list[float] = []
    for j in range(depth):
        drafted = _at(memory.drafted, j) / memory.dispersion.value
        accepted = _at(memory.accepted, j) / memory.dispersion.value
        # A slot nothing is known of behaves like the one before it; one of which something was known before the last
        # shift has moved since as those have that were seen since.
        guess = _at(memory.prior, j, q[j - 1] if j else c.PRIOR_ACCEPTANCE)
        if j < len(memory.prior) and moves:
            guess = _moved(guess, float(np.mean(moves)))
        guesses[j] = guess
        weight = _at(memory.weight, j, c.PRIOR_DRAFTS)
        trials = drafted * s + weight
        q[j] = min(max((accepted + weight * guess) / trials, c.LEAST_ACCEPTANCE), 1 - c.LEAST_ACCEPTANCE)
        total = drafted + weight / max(s, c.LEAST_REACH)
        now = s * q[j]
        # Var(s_j) is binomial over the drafts that had slot j; what s_{j-1} explains of it is taken out.
        own = (now * (1 - now) / total - q[j] ** 2 * variance_s) / s**2
        var[j] = max(own, now * (1 - q[j]) / total / s**2)
        variance_s = s**2 * var[j] + q[j] ** 2 * variance_s
        s, seen[j] = now, drafted
        if j < len(memory.prior) and drafted >= c.LEAST_DRAFTS:
            moves.append(_move(memory.prior[j], q[j]))
    return Survival(np.asarray(np.cumprod(q)), q, var, guesses, seen)


def learn(memory: SurvivalMemory, windows: Iterable[Window]) -> tuple[SurvivalMemory, Shift | None]:
    """Take in the windows of one tick, pooled over replicas; a Shift when they contradict the memory.

    The newest one, two, … windows together are held against everything before them: a large shift shows in
    one, a small one, or one seen by few requests, in several.
    """
    windows = list(windows)
    now = _independent(windows)
    if not any(now[0]):
        return memory, None
    if found := _shift(memory, now):
        before, late, shift = found
        return _carry(memory, before, late), shift
    z, _ = _distance(memory, (memory.drafted, memory.accepted), now)
    dispersion = memory.dispersion
    if z:
        # Of the position that differs most: cautious where several are tested. The mean of all changes depths more
        # often, and for less, in nearly every world.
        dispersion = dispersion.after(z * z, c.DISPERSION_RANGE, c.DISPERSION_FIRST_WINDOWS)
    faded = max(w.seconds for w in windows) / c.SURVIVAL_HALF_LIFE
    # What is hardly drafted fades with what is seen of it rather than with time: exploring it is dear.
    seen = [max(d / max(now[0]), c.RARELY_SEEN) for d in now[0]]
    keep = tuple(0.5 ** (faded * s) for s in seen)
    drafted, accepted = _with(_faded((memory.drafted, memory.accepted), keep), now)
    recent = (now, *(_faded(r, keep) for r in memory.recent))[: c.SHIFT_WINDOWS - 1]
    return SurvivalMemory(drafted, accepted, memory.prior, memory.weight, dispersion, recent), None


def _shift(memory: SurvivalMemory, now: Counts) -> tuple[Counts, Counts, Shift] | None:
    """What came before a shift, what came since, and the shift itself; None where nothing moved."""
    before, late = (memory.drafted, memory.accepted), now
    for earlier in (None, *memory.recent):
        if earlier is not None:
            before, late = _without(before, earlier), _with(late, earlier)
        z, position = _distance(memory, before, late)
        old, new = _rate(before, position), _rate(late, position)
        if abs(z) > c.SHIFT_Z and abs(new - old) >= c.SHIFT_SURVIVAL:
            return before, late, Shift(position, old, new, z)
    return None


def _at(values: tuple[float, ...], j: int, default: float = 0.0) -> float:
    return values[j] if j < len(values) else default


def _pool(rows: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    total: list[float] = []
    for row in rows:
        total += [0.0] * (len(row) - len(total))
        for j, value in enumerate(row):
            total[j] += value
    return tuple(total)


def _independent(windows: Sequence[Window]) -> Counts:
    """Counts pooled over replicas, by position, scaled to independent drafts.

    A window sees as many requests as run, or as many as its drafts are enough for: they end and others come.
    """
    running = sum(sum(x.requests for x in w.cells.values()) / max(w.steps, 1.0) for w in windows)
    drafted, accepted = _pool(w.drafted for w in windows), _pool(w.accepted for w in windows)
    steps = sum(cell.requests for w in windows for cell in w.cells.values())
    requests = max(running, max((steps, *drafted)) / c.REQUEST_DRAFTS, 1.0)
    worth = [1 / (1 + c.ALIKE * max(n / requests - 1, 0.0)) for n in drafted]
    return (
        tuple(n * w for n, w in zip(drafted, worth, strict=True)),
        tuple(n * w for n, w in zip(accepted, worth, strict=True)),
    )


def _with(old: Counts, new: Counts) -> Counts:
    drafted, accepted = (_pool(pair) for pair in zip(old, new, strict=True))
    return drafted, accepted


def _without(total: Counts, part: Counts) -> Counts:
    drafted, accepted = (
        tuple(max(value - _at(take, j), 0.0) for j, value in enumerate(values))
        for values, take in zip(total, part, strict=True)
    )
    return drafted, accepted


def _faded(counts: Counts, keep: tuple[float, ...]) -> Counts:
    drafted, accepted = (tuple(_at(keep, j, 1.0) * v for j, v in enumerate(values)) for values in counts)
    return drafted, accepted


def _rate(counts: Counts, j: int) -> float:
    return _at(counts[1], j) / max(_at(counts[0], j), 1e-9)


def _distance(memory: SurvivalMemory, old: Counts, new: Counts) -> tuple[float, int]:
    """The largest standardised difference between new counts and old ones over positions, and where."""
    worst, where = 0.0, 0
    dispersion = memory.dispersion.value
    for j, n in enumerate(new[0]):
        m = _at(old[0], j)
        if min(n, m) / dispersion < c.LEAST_DRAFTS:
            continue
        rate = (_at(old[1], j) + new[1][j] + 0.5) / (m + n + 1)
        deviation = math.sqrt(max(rate * (1 - rate), 1e-6) * (1 / n + 1 / m) * dispersion)
        z = (new[1][j] / n - _rate(old, j)) / deviation
        if abs(z) > abs(worst):
            worst, where = z, j
    return worst, where


def _carry(memory: SurvivalMemory, before: Counts, late: Counts) -> SurvivalMemory:
    """After a shift: only what came late counts, and slots that it hardly saw move as those it saw did.

    Traffic that is easier to draft is so at every slot, by about as much on the logit scale.
    """
    depth = max(len(before[0]), len(late[0]), len(memory.prior))
    old, variance = _compared(replace(memory, drafted=before[0], accepted=before[1]), depth)
    fresh = replace(memory, drafted=late[0], accepted=late[1], prior=(), weight=(), recent=())
    new = believe(fresh, depth)
    seen = new.evidence >= c.LEAST_DRAFTS
    moves = [_move(old[j], new.acceptance[j]) for j in range(depth) if seen[j]]
    move = float(np.mean(moves)) if moves else 0.0
    prior = np.array([new.acceptance[j] if seen[j] else _moved(old[j], move) for j in range(depth)])
    # What the window shows of a slot speaks for itself; another's belief is worth as many drafts as leave its variance.
    carried = np.clip(1 / (prior * (1 - prior) * variance), c.PRIOR_DRAFTS, c.CARRY_DRAFTS)
    weight = np.where(seen, c.PRIOR_DRAFTS, carried)
    return replace(fresh, prior=tuple(map(float, prior)), weight=tuple(map(float, weight)))


def _compared(memory: SurvivalMemory, depth: int) -> tuple[Floats, Floats]:
    """Acceptance by slot as it is compared with that of other slots, and the variance of its log odds.

    Where few drafts come as far as a slot, none of them accepted is no sign of one in a thousand. On the logit scale
    what is true of a slot differs from what else is known of it by SLOT_SPREAD, normally; this is the mode.
    """
    belief = believe(memory, depth)
    reached = np.concatenate(([1.0], belief.survival[:-1]))
    accepted = np.array([_at(memory.accepted, j) for j in range(depth)]) / memory.dispersion.value
    tries = np.maximum(belief.evidence * reached, accepted)
    rate = np.where(tries > 0, accepted / np.maximum(tries, 1e-9), belief.guess)
    at = np.log(belief.guess / (1 - belief.guess))
    # The mode lies between the guess and the rate.
    low, high = np.minimum(belief.guess, rate), np.maximum(belief.guess, rate)
    for _ in range(40):
        q = np.clip((low + high) / 2, c.LEAST_ACCEPTANCE, 1 - c.LEAST_ACCEPTANCE)
        pull = (np.log(q / (1 - q)) - at) / c.SLOT_SPREAD**2
        low, high = np.where(accepted - tries * q > pull, (q, high), (low, q))
    return q, 1 / (tries * q * (1 - q) + c.SLOT_SPREAD**-2)


def _logit(q: float) -> float:
    return math.log(q / (1 - q))


def _move(old: float, new: float) -> float:
    """How far acceptance moved, on the logit scale, as far as that says something of other slots: none of a hundred
    accepted and none of a million are the same to them."""
    a, b = (_logit(min(max(q, c.TOLD_ACCEPTANCE), 1 - c.TOLD_ACCEPTANCE)) for q in (old, new))
    return b - a


def _moved(q: float, move: float) -> float:
    """q moved by so much on the logit scale, within the bounds of what is believed."""
    return min(max(1 / (1 + math.exp(-_logit(q) - move)), c.LEAST_ACCEPTANCE), 1 - c.LEAST_ACCEPTANCE)
