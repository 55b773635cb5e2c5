"""Decides which steps look at another depth, within the price the operator allows.

Positions deeper than the depth in force are never observed, so some steps draft deeper on purpose.
What that costs is bounded here as well as in the operator: every step earns `price`, every explored
one spends `cost`, and a run starts only when it is paid for in full. So at any moment the explored
steps times their cost are at most `price` of all steps.

Pure: no clock, no randomness. An engine asks once per step; a replay of hours, which would take too long
at that, asks for the next stretch of equal steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from specpilot_engine.protocol import Exploration

RUN = 4  # consecutive steps: timing needs equal neighbours, so a run gives RUN - 2 clean ones
MOVED = 1.5  # times the batch of the last run, and one request more or less: another load
STEADY = 8  # steps at about one batch, before the run in reserve is spent on it
MAX_SHARE = 0.2  # of all steps, however cheap the operator believes them to be
SHARE_MEMORY = 2000  # steps over which the exported share is averaged


class Explorer:
    """Asked for the next step or stretch; remembers what was spent. `stages`: microbatches that take turns, of which
    each needs a whole run."""

    def __init__(self, stages: int = 1) -> None:
        self._run = RUN * stages
        self.explored = 0  # steps so far
        self.share = 0.0  # of goodput, spent lately
        self._credit = 0.0  # steps' worth of goodput earned and not yet spent
        self._left = 0  # steps of the present run still to come
        self._batch = 0  # of the last run; 0 before the first
        self._near = 0  # the batch that the latest steps were about as large as
        self._steady = 0  # how many they are

    def step(
        self, exploration: Exploration, differs: bool, batch: int, may_start: Callable[[], bool]
    ) -> bool:
        """Whether this step of `batch` requests explores: `wants` for a step that takes place in any case."""
        explores = self.wants(exploration, differs, batch, may_start)
        self.took(exploration, explores, batch, 1)
        return explores

    def wants(
        self, exploration: Exploration, differs: bool, batch: int, may_start: Callable[[], bool]
    ) -> bool:
        """Whether a step of `batch` requests should explore; `took` tells that it took place.

        `differs`: the batch is within bounds and the depth to explore is not the scheduled one.
        `may_start` is called only when a run could begin and costs more to find out.
        """
        explores, _ = self.stretch(exploration, differs, batch)
        return explores and (self._left > 0 or may_start())

    def stretch(self, exploration: Exploration, differs: bool, batch: int) -> tuple[bool, float]:
        """Whether the next steps explore, and how many of them there are at most."""
        price, cost = exploration.price, _cost(exploration)
        if price <= 0.0 or not differs:
            return False, math.inf
        if self._left and self._earned(price, cost) >= cost:  # it may have risen during the run
            return True, self._left
        self._left = 0
        before = self._earning(2, price, cost)
        if _moved(batch, self._batch):
            steady = 0 if _moved(batch, self._near) else self._steady
            before = min(before, max(self._earning(1, price, cost), STEADY + 1 - steady))
        return (
            (True, self._run) if before <= 1 else (False, math.ceil(before) - 1 if before < 1e9 else math.inf)
        )

    def took(self, exploration: Exploration, explored: bool, batch: int, steps: int) -> None:
        """Account for `steps` of the stretch that was told."""
        price, cost = exploration.price, _cost(exploration)
        if _moved(batch, self._near):
            self._near, self._steady = batch, 0
        self._steady += steps
        if price <= 0.0:
            self._credit = 0.0
        elif explored:
            self._batch = self._batch if self._left else batch
            self._left = (self._left or self._run) - steps
            for _ in range(steps):
                self._credit = max(self._earned(price, cost) - cost, 0.0)
            self.explored += steps
            self._account(cost, steps)
            return
        else:
            self._credit = self._earned(steps * price, cost)
        self._left = 0
        self._account(0.0, steps)

    def _earned(self, price: float, cost: float) -> float:
        """Credit with `price` more. It is worth two runs at most, so that a long quiet time ends in no burst."""
        return min(self._credit + price, 2 * self._run * cost)

    def _earning(self, runs: int, price: float, cost: float) -> float:
        """Steps until so many runs are paid for, the one that explores included."""
        return (runs * self._run * cost - self._credit) / price - 1e-9  # rounding is no reason to wait

    def _account(self, spent: float, steps: int) -> None:
        self.share = spent + (self.share - spent) * (1 - 1 / SHARE_MEMORY) ** steps


def _moved(batch: int, before: int) -> bool:
    return max(batch, before) > MOVED * min(batch, before) + 1 or not before


def _cost(exploration: Exploration) -> float:
    return max(exploration.cost, exploration.price / MAX_SHARE)
