"""What makes one depth better than another: goodput, cautiously, under an optional latency ceiling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specpilot.decide.goodput import Landscape
from specpilot.estimate import constants as c

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]


def admissible(land: Landscape, ceiling: float | None) -> Mask:
    """Which depths may be chosen at each batch, [depths, batches]; at least one everywhere.

    Under a ceiling on C_k / L_k only depths that meet it, or where none does the one with the least.
    At one batch size the least latency is also the most goodput (B / goodput), so a ceiling never asks
    for another depth than goodput does: what it does is to make leaving a depth that misses it urgent.
    """
    if ceiling is None:
        return land.allowed
    latency = np.where(land.allowed, land.latency, np.inf)
    meets = latency <= ceiling
    least = latency == latency.min(axis=0)
    return np.where(meets.any(axis=0), meets, least)


def scores(land: Landscape, reference: Indices, may: Mask) -> Floats:
    """Lower-confidence log goodput gain over depth index reference[B] at each B; -inf where not admissible.

    The reference itself scores exactly 0, so a depth scores above it only when it is better beyond what
    is not known about the difference of the two.
    """
    batches = np.arange(land.log_seconds.shape[1])
    gain = land.log_goodput - land.log_goodput[reference, batches]
    return np.where(may, gain - c.SELECT_Z * land.deviation(reference), -np.inf)
