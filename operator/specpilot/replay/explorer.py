"""Exploration as the engine does it, in stretches of steps instead of one step at a time.

The rule is that of serving/specpilot_engine/explore.py: every step earns `price`, every explored one spends
`cost`, a run of RUN steps starts when it is paid for in full, and no more than a run is ever saved up.
"""

from __future__ import annotations

import math

from specpilot_engine.protocol import Exploration

RUN = 4
MAX_SHARE = 0.2
SHARE_MEMORY = 2000


class Explorer:
    """Asked for the next stretch, told how many of its steps were taken."""

    def __init__(self) -> None:
        self.explored = 0
        self.share = 0.0  # of goodput, spent lately
        self._credit = 0.0
        self._left = 0

    def stretch(self, x: Exploration, differs: bool) -> tuple[bool, float]:
        """Whether the next steps explore, and how many of them there are at most."""
        if x.price <= 0.0 or not differs:
            return False, math.inf
        cost = _cost(x)
        if self._left and min(self._credit + x.price, RUN * cost) >= cost:
            return True, self._left
        self._left = 0
        before = math.ceil((RUN * cost - self._credit) / x.price - 1e-9)
        return (False, before - 1) if before > 1 else (True, RUN)

    def took(self, x: Exploration, explored: bool, steps: int) -> None:
        """Account for `steps` of the stretch that was told."""
        if x.price <= 0.0:
            self._credit, self._left = 0.0, 0
            self._account(0.0, steps)
            return
        cost = _cost(x)
        if not explored:
            self._credit = min(self._credit + steps * x.price, RUN * cost)
            self._left = 0
            self._account(0.0, steps)
            return
        self._left = (self._left or RUN) - steps
        for _ in range(steps):
            self._credit = max(min(self._credit + x.price, RUN * cost) - cost, 0.0)
        self.explored += steps
        self._account(cost, steps)

    def _account(self, spent: float, steps: int) -> None:
        self.share = spent + (self.share - spent) * (1 - 1 / SHARE_MEMORY) ** steps


def _cost(x: Exploration) -> float:
    return max(x.cost, x.price / MAX_SHARE)
