"""Decides which steps look at another depth, within the price the operator allows.

Positions deeper than the depth in force are never observed, so some steps draft deeper on purpose.
What that costs is bounded here as well as in the operator: every step earns `price`, every explored
one spends `cost`, and a run starts only when it is paid for in full. So at any moment the explored
steps times their cost are at most `price` of all steps.

Pure: no clock, no randomness.
"""

from __future__ import annotations

from collections.abc import Callable

from specpilot_engine.protocol import Exploration

RUN = 4  # consecutive steps: timing needs equal neighbours, so a run gives RUN - 2 clean ones
MAX_SHARE = 0.2  # of all steps, however cheap the operator believes them to be
SHARE_MEMORY = 2000  # steps over which the exported share is averaged


class Explorer:
    """Asked once per step; remembers what was spent."""

    def __init__(self) -> None:
        self.explored = 0  # steps so far
        self.share = 0.0  # of goodput, spent lately
        self._credit = 0.0  # steps' worth of goodput earned and not yet spent
        self._left = 0  # steps of the present run still to come

    def step(self, exploration: Exploration, differs: bool, may_start: Callable[[], bool]) -> bool:
        """Whether this step explores.

        `differs`: the batch is within bounds and the depth to explore is not the scheduled one.
        `may_start` is called only when a run could begin and costs more to find out.
        """
        price = exploration.price
        if price <= 0.0:
            self._credit, self._left = 0.0, 0
            return self._account(0.0)
        cost = max(exploration.cost, price / MAX_SHARE)
        # Saved credit is worth one run at most, so that a long quiet time ends in no burst.
        self._credit = min(self._credit + price, RUN * cost)
        if not differs:
            self._left = 0
            return self._account(0.0)
        if self._left == 0:
            if self._credit < RUN * cost or not may_start():
                return self._account(0.0)
            self._left = RUN
        if self._credit < cost:  # the cost rose during the run
            self._left = 0
            return self._account(0.0)
        self._left -= 1
        self._credit -= cost
        self.explored += 1
        return self._account(cost)

    def _account(self, spent: float) -> bool:
        self.share += (spent - self.share) / SHARE_MEMORY
        return spent > 0.0
