"""What a step costs: a prior (profile or generic shape) corrected by step times seen live.

The correction of log C_k(B) is a Gaussian process over (depth, batch): a part common to everything, one
that near depths share, one that near batches share, and one of the point itself. Observing one cell so
moves all others by as much as they are believed to err alike, which is shrinkage with its uncertainty:
a profile measured at the wrong context is off everywhere alike and heals at once, one odd point heals
where it is seen. The arithmetic is Gaussian conditioning (Rasmussen and Williams, eq. 2.22-2.24).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from specpilot.estimate import constants as c
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.windows import Window

Floats = NDArray[np.float64]
Key = tuple[int, int]  # (depth, bucket's upper edge)
SIZES = tuple(s * 2**e for e in range(12) for s in (1, 1.5) if (s * 2**e) == int(s * 2**e))


@dataclass(frozen=True, slots=True)
class CellMemory:
    """Decayed totals of clean steps at one (depth, bucket). `windows` is how many windows' worth they are."""

    steps: float
    seconds: float
    requests: float
    context: float  # mean tokens a request; 0 unknown
    windows: float

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
    """Cells seen live; `dispersion` is the measured variance between windows over the assumed one."""

    cells: Mapping[Key, CellMemory] = field(default_factory=dict)
    dispersion: float = c.COST_FIRST_DISPERSION


@dataclass(frozen=True, slots=True)
class CostShift:
    """Step times moved by `log` (0.1: 10% slower), `z` standard deviations."""

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
    move, variance = _level(memory, seen, prior)
    z = move / math.sqrt(variance) if variance else 0.0
    if abs(z) > c.SHIFT_Z and abs(move) >= c.COST_SHIFT:
        return _moved(memory, seen, move), CostShift(move, z)
    low, high = c.COST_DISPERSION_RANGE
    dispersion = memory.dispersion
    if variance:
        factor = 1 + c.DISPERSION_GAIN * (min(z * z, 9.0) - 1)
        dispersion = min(max(dispersion * factor, low), high)
    keep = 0.5 ** (max(w.seconds for w in windows) / c.COST_HALF_LIFE)
    return CostMemory(_merged(memory.cells, seen, keep), dispersion), None


def _pool(windows: Sequence[Window]) -> dict[Key, CellMemory]:
    totals: dict[Key, list[float]] = {}
    for w in windows:
        for key, cell in w.cells.items():
            context = cell.context or (w.context or 0.0) * cell.requests
            total = totals.setdefault(key, [0.0] * 4)
            for i, value in enumerate((cell.steps, cell.seconds, cell.requests, context)):
                total[i] += value
    # Replicas of one tick share its disturbances only in part; counting them as one window is cautious.
    return {key: CellMemory(n, s, r, x / r, 1.0) for key, (n, s, r, x) in totals.items()}


def _noise(cell: CellMemory, dispersion: float) -> float:
    """Variance of the log of a cell's mean step time."""
    return dispersion * (c.STEP_NOISE**2 / max(cell.steps, 1.0) + c.WINDOW_NOISE**2 / cell.windows)


def _expected(prior: CostPrior, depth: int, cell: CellMemory) -> float:
    return float(prior.seconds(depth, cell.batch, cell.context or None))


def _level(memory: CostMemory, seen: Mapping[Key, CellMemory], prior: CostPrior) -> tuple[float, float]:
    """How far the window's step times are from memory's, as a log ratio common to its cells, and variance."""
    moves, weights = [], []
    for key, new in seen.items():
        old = memory.cells.get(key)
        if old is None or min(old.steps, new.steps) < c.LEAST_STEPS:
            continue
        due = math.log(_expected(prior, key[0], new) / _expected(prior, key[0], old))
        moves.append(math.log(new.mean / old.mean) - due)
        weights.append(1 / (_noise(new, memory.dispersion) + _noise(old, memory.dispersion)))
    if not weights:
        return 0.0, 0.0
    best = max(weights)  # window noise is common, so more cells do not make the level surer
    return sum(m * w for m, w in zip(moves, weights, strict=True)) / sum(weights), 1 / best


def _moved(memory: CostMemory, seen: Mapping[Key, CellMemory], move: float) -> CostMemory:
    """After a shift: every cell moves by it, and all but the window's keep little weight."""
    carried = {}
    for key, old in memory.cells.items():
        share = min(1.0, c.CARRY_WINDOWS / old.windows)
        seconds = old.seconds * share * math.exp(move)
        carried[key] = CellMemory(
            old.steps * share, seconds, old.requests * share, old.context, old.windows * share
        )
    return replace(memory, cells=_merged(carried, {}, 1.0) | dict(seen))


def _merged(
    old: Mapping[Key, CellMemory], new: Mapping[Key, CellMemory], keep: float
) -> dict[Key, CellMemory]:
    merged = {}
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        steps = (a.steps * keep if a else 0.0) + (b.steps if b else 0.0)
        if steps < c.FORGOTTEN_STEPS:
            continue
        merged[key] = CellMemory(
            steps,
            (a.seconds * keep if a else 0.0) + (b.seconds if b else 0.0),
            (a.requests * keep if a else 0.0) + (b.requests if b else 0.0),
            _mean_context(a, b, keep),
            (a.windows * keep if a else 0.0) + (b.windows if b else 0.0),
        )
    return merged


def _mean_context(a: CellMemory | None, b: CellMemory | None, keep: float) -> float:
    pairs = [(m.requests * f, m.context) for m, f in ((a, keep), (b, 1.0)) if m and m.context > 0]
    weight = sum(w for w, _ in pairs)
    return sum(w * x for w, x in pairs) / weight if weight else 0.0


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
        self._sigma = c.SIGMA_PROFILED if prior.measured else c.SIGMA_GENERIC
        cells = memory.cells
        self._seen = _points([k for k, _ in cells], [m.batch for m in cells.values()])
        residuals = np.array([math.log(m.mean / _expected(prior, k, m)) for (k, _), m in cells.items()])
        noise = np.array([_noise(m, memory.dispersion) for m in cells.values()])
        factor = np.linalg.cholesky(self._kernel(self._seen, self._seen) + np.diag(noise + 1e-9))
        self._whiten = np.linalg.inv(factor)
        grid = np.array([b for b in SIZES if b < max_batch] + [max_batch], float)
        count = len(self.depths)
        points = _points(np.repeat(self.depths, len(grid)), np.tile(grid, count))
        # [observation, depth, size]: what each whitened observation says about the point.
        explained = self._explained(points)
        correction = ((self._whiten @ residuals) @ explained).reshape(count, -1)
        self._explained_grid = explained.reshape(-1, count, len(grid))
        every = np.arange(1, max_batch + 1, dtype=float)
        self._spread = _interpolation(np.log2(grid), np.log2(every))
        expected = np.stack([prior.seconds(k, every, context) for k in self.depths])
        self.log_seconds = np.log(expected) + correction @ self._spread

    def differences(self) -> Floats:
        """Variance of log C_k - log C_k' as [depths, depths, batches]."""
        explained = self._explained_grid
        step = explained[:, :, None, :] - explained[:, None, :, :]
        points = _points(self.depths, np.ones(len(self.depths)))
        kernel = self._kernel(points, points)
        before = np.diag(kernel)[:, None] + np.diag(kernel)[None, :] - 2 * kernel
        return np.asarray(np.maximum(before[:, :, None] - (step**2).sum(axis=0), 0.0) @ self._spread)

    def deviation(self, weights: Floats) -> float:
        """Standard deviation of sum(weights * log_seconds); `weights` is [depths, batches]."""
        i, b = np.nonzero(weights)
        w = weights[i, b]
        points = _points(np.array(self.depths)[i], b + 1.0)
        variance = w @ self._kernel(points, points) @ w - ((self._explained(points) @ w) ** 2).sum()
        return math.sqrt(max(float(variance), 0.0))

    def _explained(self, points: Floats) -> Floats:
        return np.asarray(self._whiten @ self._kernel(self._seen, points))

    def _kernel(self, x: Floats, y: Floats) -> Floats:
        everything, depth, batch, point = (s * s for s in self._sigma)
        near_k = np.exp(-np.abs(x[:, None, 0] - y[None, :, 0]) / c.DEPTH_RANGE)
        near_b = np.exp(-np.abs(x[:, None, 1] - y[None, :, 1]) / c.BATCH_RANGE)
        return np.asarray(everything + depth * near_k + batch * near_b + point * near_k * near_b)


def _points(depths: Iterable[int], batches: Iterable[float]) -> Floats:
    """Where (depth, batch) pairs stand in the process, [pairs, 2]: each doubling is one apart."""
    return np.asarray(
        np.log2(np.stack([1.0 + np.array(list(depths), float), np.array(list(batches), float)], axis=1))
    )


def _interpolation(knots: Floats, at: Floats) -> Floats:
    """[knots, at]: values at `knots` times this are linear between, at `at`."""
    high = np.clip(np.searchsorted(knots, at), 1, max(len(knots) - 1, 1))
    matrix = np.zeros((len(knots), len(at)))
    columns = np.arange(len(at))
    if len(knots) == 1:
        matrix[0] = 1.0
        return matrix
    share = (at - knots[high - 1]) / (knots[high] - knots[high - 1])
    matrix[high - 1, columns] = 1 - share
    matrix[high, columns] = share
    return matrix
