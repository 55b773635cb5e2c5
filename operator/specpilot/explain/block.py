"""What block verification is worth, by a model of how draft and target agree: a prediction, never measured.

The measured survival is that of the verification in force. The model (specpilot_engine.acceptance) turns
it into the other's; how much of the disagreement is outright is its one free number, so the extremes are
given as well: with all of it outright block is worth nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from specpilot.decide.goodput import Landscape
from specpilot_engine.acceptance import OUTRIGHT, block_survival, standard_survival

Floats = NDArray[np.float64]


class Drafts(StrEnum):
    """What verification knows of a drafted token."""

    SAMPLED = "sampled"  # the distribution it came from
    GREEDY = "greedy"  # the token alone, as if nothing else could have been drafted
    NGRAM = "n-gram"  # the same, and there is no distribution to be had
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verification:
    """How the engines verify, as far as it is known."""

    block: bool = False
    drafts: Drafts = Drafts.UNKNOWN
    synthetic: bool = False  # acceptance is made up, so nothing can be said

    @property
    def may_gain(self) -> bool:
        """Whether block can differ from standard: of one-hot drafts it accepts as many."""
        return not self.synthetic and self.drafts in (Drafts.SAMPLED, Drafts.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Worth:
    """Accepted length L_k, k = 0..K, under standard and under block.

    One of them is measured, the other predicted; `extreme` is the predicted one with nothing outright.
    `gain` and `most` are block over standard, relative, of goodput at the load, each at its own best depth
    (before any traffic: with each doubling of the batch alike), and 0 where block cannot differ.
    """

    verification: Verification
    standard: Floats
    block: Floats
    extreme: Floats
    gain: float
    most: float

    @property
    def measured(self) -> Floats:
        return self.block if self.verification.block else self.standard

    @property
    def predicted(self) -> Floats:
        return self.standard if self.verification.block else self.block


def worth(verification: Verification, land: Landscape, may: NDArray[np.bool_], weights: Floats) -> Worth:
    """What block is worth over standard at the survival, the step times and the load of `land`.

    `may` [depths, batches] and `weights` [batches] are of what may be chosen and of time.
    """
    survival = [float(s) for s in land.survival.survival]
    measured = _lengths(survival)
    if not verification.may_gain:
        return Worth(verification, measured, measured, measured, 0.0, 0.0)
    if not weights.any():
        weights = 1 / np.arange(1, len(weights) + 1)
        weights = weights / weights.sum()
    other = standard_survival if verification.block else block_survival
    predicted, extreme = (_lengths(other(survival, outright)) for outright in (OUTRIGHT, 0.0))
    sign = -1 if verification.block else 1
    now = _best(land, may, measured)
    gain, most = (
        math.expm1(sign * float((_best(land, may, lengths) - now) @ weights))
        for lengths in (predicted, extreme)
    )
    pair = (predicted, measured) if verification.block else (measured, predicted)
    return Worth(verification, *pair, extreme, gain, most)


def _lengths(survival: Sequence[float]) -> Floats:
    return np.concatenate(([1.0], 1.0 + np.cumsum(survival)))


def _best(land: Landscape, may: NDArray[np.bool_], lengths: Floats) -> Floats:
    """Log goodput of the best depth at each batch, were `lengths` the accepted lengths."""
    log = np.log(lengths[list(land.depths)])[:, None] - land.log_seconds
    return np.asarray(np.where(may, log, -np.inf).max(axis=0))
