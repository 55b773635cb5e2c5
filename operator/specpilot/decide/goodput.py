"""What a depth is worth: accepted length over step time, for every batch size at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from specpilot.estimate.cost import Costs
from specpilot.estimate.survival import Survival

Floats = NDArray[np.float64]
Allowed = Callable[[int, int], bool]  # (depth, batch)


def goodput(batch: float, length: float, seconds: float) -> float:
    """Tokens per second of one decode step repeated: B L_k / C_k."""
    return batch * length / seconds


def speedup(length: float, seconds: float, seconds_0: float) -> float:
    """Goodput over that of depth 0: L_k C_0 / C_k."""
    return length * seconds_0 / seconds


def slot_price(length: Floats, seconds: Floats, seconds_next: Floats) -> Floats:
    """The survival that the next slot must have: k to k + 1 pays iff s_{k+1} > (C_{k+1} - C_k) L_k / C_k.

    The marginal rule. Local only: step times are a staircase, so what it refuses may still pay further on.
    """
    return np.asarray((seconds_next - seconds) * length / seconds)


@dataclass(frozen=True, slots=True)
class Landscape:
    """Beliefs about every depth (first axis) at every batch 1..max_batch (last axis)."""

    depths: tuple[int, ...]
    survival: Survival
    lengths: Floats  # [depths]: L_k
    log_seconds: Floats  # [depths, batches]: log C_k(B)
    length_variance: Floats  # [depths, depths]: of log L_k - log L_k'
    cost_variance: Floats  # [depths, depths, batches]: of log C_k - log C_k'
    allowed: NDArray[np.bool_]  # [depths, batches]
    costs: Costs
    noise: float = 1.0  # measured variance of step times over the assumed one

    @property
    def log_goodput(self) -> Floats:
        """log(L_k / C_k), goodput per request, [depths, batches]."""
        return np.asarray(np.log(self.lengths)[:, None] - self.log_seconds)

    @property
    def latency(self) -> Floats:
        """Mean seconds between a request's tokens, C_k / L_k, [depths, batches]."""
        return np.asarray(np.exp(self.log_seconds) / self.lengths[:, None])

    def deviation(self, reference: NDArray[np.intp]) -> Floats:
        """Standard deviation of log goodput less that of depth index reference[B] at B, [depths, batches]."""
        batches = np.arange(self.log_seconds.shape[1])
        variance = self.length_variance[:, reference] + self.cost_variance[:, reference, batches]
        return np.asarray(np.sqrt(variance))

    def total_deviation(self, new: NDArray[np.intp], old: NDArray[np.intp], weights: Floats) -> float:
        """Standard deviation of the weighted mean log gain of depth indices new[B] over old[B].

        Errors of survival are the same at every batch size and those of cost alike at near ones, so
        weights do not average them away.
        """
        batches = np.flatnonzero(weights * (new != old))
        change = np.zeros_like(self.log_seconds)
        np.add.at(change, (new[batches], batches), weights[batches])
        np.add.at(change, (old[batches], batches), -weights[batches])
        gradient = change.sum(axis=1) @ self.survival.log_gradient()[list(self.depths)]
        length = float((gradient**2 * self.survival.variance).sum())
        return float(np.sqrt(length + self.costs.deviation(change) ** 2))


@lru_cache(maxsize=256)  # a plan's graphs are the same at every tick
def _mask(depths: tuple[int, ...], max_batch: int, allowed: Allowed) -> NDArray[np.bool_]:
    may = np.array([[k == 0 or allowed(k, b) for b in range(1, max_batch + 1)] for k in depths])
    may.flags.writeable = False
    return may


def landscape(depths: Sequence[int], survival: Survival, costs: Costs, allowed: Allowed) -> Landscape:
    """Put beliefs together. Depth 0 is allowed whatever `allowed` says: it must always be a way out.

    `allowed` is asked once: its answers must not change.
    """
    gradient = survival.log_gradient()[list(depths)]
    step = gradient[:, None, :] - gradient[None, :, :]
    return Landscape(
        tuple(depths),
        survival,
        survival.lengths()[list(depths)],
        costs.log_seconds,
        np.asarray((step**2 * survival.variance).sum(axis=2)),
        costs.differences(),
        _mask(tuple(depths), costs.max_batch, allowed),
        costs,
    )
