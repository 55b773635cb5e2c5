"""Random streams by name: what one policy draws moves nothing for another."""

from __future__ import annotations

import numpy as np

PROFILE, FACTORS, ARRIVALS, KINDS, NOISE, LUCK, REQUESTS = range(7)


class Streams:
    """All streams of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, *name: int) -> np.random.Generator:
        """The stream of that name, from its beginning."""
        return np.random.default_rng((self._seed, *name))
