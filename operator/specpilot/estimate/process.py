"""A Gaussian process over (depth, batch), conditioned on evidence in information form.

What step times differ from their prior by is a part common to everything, one that near depths share,
one that near batches share, one of the point itself, and one that a depth has quite alone. Evidence about n observed cells is a precision
matrix P and P times the values seen, which is what independent windows add up to, whatever noise the
cells of one window share. With prior covariance K the posterior at points * is (Rasmussen and Williams,
eq. 2.23-2.24, by the matrix inversion lemma)

    mean = K*^T (I + P K)^-1 (P values),    covariance = K** - K*^T F F^T K*,  F F^T = P (I + K P)^-1.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from specpilot.estimate import constants as c

Floats = NDArray[np.float64]
Sigma = tuple[float, float, float, float, float]  # deviations: all, depth, batch, point, alone


def points(depths: Iterable[int], batches: Iterable[float]) -> Floats:
    """Where (depth, batch) pairs stand, [pairs, 2]: each doubling of 1 + k or of B is one apart."""
    k, b = np.array(list(depths), float), np.array(list(batches), float)
    return np.asarray(np.log2(np.stack([1.0 + k, b], axis=1)))


def kernel(sigma: Sigma, x: Floats, y: Floats) -> Floats:
    """Prior covariance [len(x), len(y)]."""
    everything, depth, batch, point, alone = (s * s for s in sigma)
    near_k = np.exp(-np.abs(x[:, None, 0] - y[None, :, 0]) / c.DEPTH_RANGE)
    near_b = np.exp(-np.abs(x[:, None, 1] - y[None, :, 1]) / c.BATCH_RANGE)
    of_depth = point * near_k + alone * (x[:, None, 0] == y[None, :, 0])
    return np.asarray(everything + depth * near_k + (batch + of_depth) * near_b)


class Evidence:
    """What was seen at n points: `precision` [n, n] and `weighted` = precision @ values [n]."""

    def __init__(self, seen: Floats, precision: Floats, weighted: Floats) -> None:
        self.seen, self.precision, self.weighted = seen, precision, weighted
        # By eigenvalues: rounding, or a file somebody edited, may have left some below zero.
        values, vectors = np.linalg.eigh(precision)
        self.root = vectors * np.sqrt(np.maximum(values, 0.0))


class Posterior:
    """The process given evidence.

    `log_likelihood` of the evidence, up to a constant that does not depend on sigma.
    """

    def __init__(self, sigma: Sigma, evidence: Evidence) -> None:
        self.sigma, self.seen, self._root = sigma, evidence.seen, evidence.root
        one = np.eye(len(self.seen))
        prior = kernel(sigma, self.seen, self.seen)
        self._inner = np.linalg.cholesky(one + self._root.T @ prior @ self._root)
        self._mean = np.linalg.solve(one + evidence.precision @ prior, evidence.weighted)
        fit = evidence.weighted @ prior @ self._mean
        self.log_likelihood = float(fit / 2 - np.log(np.diag(self._inner)).sum())

    def mean(self, at: Floats) -> Floats:
        """Expected value at each point."""
        return np.asarray(self._mean @ kernel(self.sigma, self.seen, at))

    def explained(self, at: Floats) -> Floats:
        """[n, points]: the covariance of points is the prior's less explained^T explained."""
        seen = self._root.T @ kernel(self.sigma, self.seen, at)
        return np.asarray(np.linalg.solve(self._inner, seen))

    def covariance(self, at: Floats) -> Floats:
        """[points, points]."""
        explained = self.explained(at)
        return np.asarray(kernel(self.sigma, at, at) - explained.T @ explained)
