"""What a step costs: a prior (a profile, or an estimate without one) corrected by step times seen live.

The correction of log C_k(B) is a Gaussian process (process.py). Observing one cell moves all others by
as much as they are believed to err alike: a profile measured at the wrong context is off everywhere
alike and heals at once; one odd point heals where it is seen. The steps of one window share whatever
slowed that window down, so comparing depths within windows, which exploring makes possible, tells
much more of their difference than of either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from specpilot.estimate import constants as c
from specpilot.estimate.dispersion import Dispersion
from specpilot.estimate.process import Evidence, Posterior, kernel, points
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.windows import Window

Floats = NDArray[np.float64]
FIRST_DISPERSION = Dispersion(1.0)
Key = tuple[int, int]  # (depth, bucket's upper edge)
SIZES = sorted({s * 2**e // 2 for e in range(12) for s in (2, 3)})  # 1, 2, 3, 4, 6, 8, 12, …


@dataclass(frozen=True, slots=True)
class CellMemory:
    """Clean steps at one (depth, bucket), decayed. `weighted` is its row of precision times log step times."""

    steps: float
    seconds: float
    requests: float
    context: float  # mean tokens a request; 0 unknown
    weighted: float = 0.0

    @property
    def mean(self) -> float:
        """Seconds a step."""
        return self.seconds / self.steps

    @property
    def batch(self) -> float:
        """Requests a step."""
        return self.requests / self.steps


@dataclass(frozen=True, slots=True)
class CostMemory:
    """Cells seen live, the precision of what they say (a symmetric matrix in their order), and their noise.

    `dispersion` is the measured variance of differences within windows over the assumed one; `last_z`
    the newest window's distance from memory as a whole.
    """

    cells: Mapping[Key, CellMemory] = field(default_factory=dict)
    precision: tuple[tuple[float, ...], ...] = ()
    dispersion: Dispersion = FIRST_DISPERSION
    last_z: float = 0.0


@dataclass(frozen=True, slots=True)
class CostShift:
    """Step times moved by `log` (0.1: 10% slower), `z` standard deviations; log 0: against each other."""

    log: float
    z: float


def learn(
    memory: CostMemory, windows: Iterable[Window], prior: CostPrior
) -> tuple[CostMemory, CostShift | None]:
    """Take in the windows of one tick, pooled over replicas; a shift when step times left the memory."""
    windows = [w for w in windows if w.cells]
    if not windows:
        return memory, None
    seen = _pool(windows)
    keys = list(seen)
    noise = np.array([memory.dispersion.value * c.STEP_NOISE**2 / m.steps for m in seen.values()])
    logs = np.array([math.log(m.mean) for m in seen.values()])
    at = points((k for k, _ in keys), (m.batch for m in seen.values()))
    belief = posterior(memory, prior)
    due = _expected(prior, seen) + belief.mean(at)
    common, level_z, contrast, freedom = _innovation(logs - due, belief.covariance(at) + np.diag(noise))
    known = sum(key in memory.cells and memory.cells[key].steps >= c.LEAST_STEPS for key in keys)
    level = abs(level_z) > c.SHIFT_Z or (
        min(abs(level_z), abs(memory.last_z)) > c.SHIFT_Z_TWICE and level_z * memory.last_z > 0
    )
    shift = None
    keep = 0.5 ** (max(w.seconds for w in windows) / c.COST_HALF_LIFE)
    old, dispersion = memory, memory.dispersion
    if known and level:
        shift = CostShift(common, level_z)
        old, level_z = _moved(memory, common), 0.0
    if known > 1 and contrast > c.CONTRAST_Z**2 + 2 * (freedom - 1):
        shift = shift or CostShift(0.0, math.sqrt(contrast))
        keep *= c.CARRY_COST
    elif freedom:
        dispersion = dispersion.after(contrast / freedom, c.COST_DISPERSION_RANGE, c.COST_FIRST_WINDOWS)
    merged = _merged(old, seen, _precision(noise), logs, keep, prior)
    return replace(merged, dispersion=dispersion, last_z=level_z), shift


def posterior(memory: CostMemory, prior: CostPrior) -> Posterior:
    """The process given what was seen live, the prior trusted as far as the evidence bears it out."""
    cells, precision = memory.cells, _matrix(memory.precision)
    seen = points((k for k, _ in cells), (m.batch for m in cells.values()))
    first = (*prior.sigma, prior.disorder)
    evidence = Evidence(seen, precision, _residual(memory, prior))
    found = Posterior(first, evidence)
    for scale in c.SIGMA_SCALES:
        common, depth, batch, point, alone = first
        trial = Posterior((common, scale * depth, scale * batch, scale * point, alone), evidence)
        if trial.log_likelihood - found.log_likelihood < c.DOUBT:
            break
        found = trial
    return found


def _expected(prior: CostPrior, cells: Mapping[Key, CellMemory]) -> Floats:
    """Log step time expected of each cell at its mean batch and context."""
    return np.array([_log_second(prior, k, m.batch, m.context or None) for (k, _), m in cells.items()])


@lru_cache(maxsize=1 << 14)  # at most ticks most cells are as they were, and each is asked for several times
def _log_second(prior: CostPrior, depth: int, batch: float, context: float | None) -> float:
    return math.log(prior.second(depth, batch, context))


def _residual(memory: CostMemory, prior: CostPrior) -> Floats:
    """Precision times what the log step times of each cell differ from the prior by."""
    weighted = np.array([m.weighted for m in memory.cells.values()])
    return np.asarray(weighted - _matrix(memory.precision) @ _expected(prior, memory.cells))


def _pool(windows: Sequence[Window]) -> dict[Key, CellMemory]:
    totals: dict[Key, list[float]] = {}
    for w in windows:
        for key, cell in w.cells.items():
            context = cell.context or (w.context or 0.0) * cell.requests
            total = totals.setdefault(key, [0.0] * 4)
            for i, value in enumerate((cell.steps, cell.seconds, cell.requests, context)):
                total[i] += value
    return {key: CellMemory(n, s, r, x / r) for key, (n, s, r, x) in sorted(totals.items())}


def _innovation(error: Floats, covariance: Floats) -> tuple[float, float, float, int]:
    """How far a window is from what was expected: (common part, its z, chi-square of the rest, freedom)."""
    inverse = np.linalg.inv(covariance)
    total = float(inverse.sum())
    common = float(inverse.sum(axis=0) @ error) / total
    rest = error - common
    z = common / math.sqrt(1 / total + c.WINDOW_NOISE**2)
    return common, z, float(rest @ inverse @ rest), len(error) - 1


def _precision(noise: Floats) -> Floats:
    """Of a window's log step times: noise of their own and one disturbance in common (Sherman-Morrison)."""
    own = 1 / noise
    return np.asarray(np.diag(own) - np.outer(own, own) / (c.WINDOW_NOISE**-2 + own.sum()))


def _moved(memory: CostMemory, common: float) -> CostMemory:
    """The same evidence with every step time `common` longer in log: what differences say is kept."""
    rows = _matrix(memory.precision).sum(axis=1)
    cells = {
        key: replace(m, seconds=m.seconds * math.exp(common), weighted=m.weighted + float(row) * common)
        for (key, m), row in zip(memory.cells.items(), rows, strict=True)
    }
    return replace(memory, cells=cells)


def _merged(
    memory: CostMemory,
    seen: Mapping[Key, CellMemory],
    precision: Floats,
    logs: Floats,
    keep: float,
    prior: CostPrior,
) -> CostMemory:
    """Old evidence faded by `keep`, and a window's.

    What adds up is how far step times are from the prior at the batch of their own window: within a bucket the
    batch moves from window to window, and step times with it. The mean batch, which what is remembered refers
    to, moves too.
    """
    keys = sorted(memory.cells.keys() | seen.keys())
    total, residual = np.zeros((len(keys), len(keys))), np.zeros(len(keys))
    place = {key: i for i, key in enumerate(keys)}
    for evidence, its_precision, its_residual in (
        (memory.cells, keep * _matrix(memory.precision), keep * _residual(memory, prior)),
        (seen, precision, precision @ (logs - _expected(prior, seen))),
    ):
        at = [place[key] for key in evidence]
        total[np.ix_(at, at)] += its_precision
        residual[at] += its_residual
    cells = {key: _sum(memory.cells.get(key), seen.get(key), keep) for key in keys}
    return _limited(cells, total, residual + total @ _expected(prior, cells))


def _sum(a: CellMemory | None, b: CellMemory | None, keep: float) -> CellMemory:
    if a is None or b is None:
        m, share = (b, 1.0) if a is None else (a, keep)
        assert m is not None
        return replace(m, steps=m.steps * share, seconds=m.seconds * share, requests=m.requests * share)
    requests = a.requests * keep + b.requests
    known = [(r, x) for r, x in ((a.requests * keep, a.context), (b.requests, b.context)) if x > 0]
    context = sum(r * x for r, x in known) / sum(r for r, _ in known) if known else 0.0
    return CellMemory(a.steps * keep + b.steps, a.seconds * keep + b.seconds, requests, context)


def _matrix(rows: Sequence[Sequence[float]]) -> Floats:
    return np.array(rows, float).reshape(len(rows), len(rows))


def _limited(cells: Mapping[Key, CellMemory], precision: Floats, weighted: Floats) -> CostMemory:
    """Without cells that hardly count; what they say about the others stays (the Schur complement)."""
    keys = list(cells)
    most = sorted(keys, key=lambda key: cells[key].steps, reverse=True)[: c.MOST_CELLS]
    kept = {key for key in most if cells[key].steps >= c.FORGOTTEN_STEPS}
    stay = [i for i, key in enumerate(keys) if key in kept]
    go = [i for i, key in enumerate(keys) if key not in kept]
    if go:
        through = precision[np.ix_(stay, go)] @ np.linalg.pinv(precision[np.ix_(go, go)], hermitian=True)
        weighted = weighted[stay] - through @ weighted[go]
        precision = precision[np.ix_(stay, stay)] - through @ precision[np.ix_(go, stay)]
    left = {
        keys[i]: replace(cells[keys[i]], weighted=w) for i, w in zip(stay, weighted.tolist(), strict=True)
    }
    return CostMemory(left, tuple(map(tuple, precision.tolist())))


class Costs:
    """Posterior of log step times for some depths at every batch 1..max_batch and one context.

    `log_seconds` is [depths, batches]. Corrections are computed at a few batch sizes and are linear in
    log2(B) between; the prior is exact everywhere.
    """

    def __init__(
        self,
        memory: CostMemory,
        prior: CostPrior,
        depths: Sequence[int],
        max_batch: int,
        context: float | None,
    ) -> None:
        self.depths, self.max_batch = tuple(depths), max_batch
        self._belief = posterior(memory, prior)
        grid = np.array([b for b in SIZES if b < max_batch] + [max_batch], float)
        every = np.arange(1, max_batch + 1, dtype=float)
        at = points(np.repeat(self.depths, len(grid)), np.tile(grid, len(self.depths)))
        self._spread = _interpolation(np.log2(grid), np.log2(every))
        shape = (len(self.depths), len(grid))
        self._explained = self._belief.explained(at).reshape(-1, *shape)
        expected = np.stack([prior.seconds(k, every, context) for k in self.depths])
        self.log_seconds = np.log(expected) + self._belief.mean(at).reshape(shape) @ self._spread

    def differences(self) -> Floats:
        """Variance of log C_k - log C_k' as [depths, depths, batches]."""
        step = self._explained[:, :, None, :] - self._explained[:, None, :, :]
        at = points(self.depths, np.ones(len(self.depths)))
        prior = kernel(self._belief.sigma, at, at)
        before = np.diag(prior)[:, None] + np.diag(prior)[None, :] - 2 * prior
        return np.asarray(np.maximum(before[:, :, None] - (step**2).sum(axis=0), 0.0) @ self._spread)

    def deviation(self, weights: Floats) -> float:
        """Standard deviation of sum(weights * log_seconds); `weights` is [depths, batches]."""
        i, b = np.nonzero(weights)
        w = weights[i, b]
        variance = w @ self._belief.covariance(points(np.array(self.depths)[i], b + 1.0)) @ w
        return math.sqrt(max(float(variance), 0.0))


def _interpolation(knots: Floats, at: Floats) -> Floats:
    """[knots, at]: values at `knots` times this are linear between, at `at`."""
    matrix = np.zeros((len(knots), len(at)))
    if len(knots) == 1:
        matrix[0] = 1.0
        return matrix
    high = np.clip(np.searchsorted(knots, at), 1, len(knots) - 1)
    columns = np.arange(len(at))
    share = (at - knots[high - 1]) / (knots[high] - knots[high - 1])
    matrix[high - 1, columns] = 1 - share
    matrix[high, columns] = share
    return matrix
