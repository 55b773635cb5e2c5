"""What the tuner is told by the user and the plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from specpilot.decide.goodput import Allowed
from specpilot.decide.schedule import Full
from specpilot.estimate import constants as c
from specpilot_engine.protocol import Budget, Schedule


def everywhere(_depth: int, _batch: int) -> bool:
    """Any depth at any batch."""
    return True


def nowhere(_depth: int, _batch: int) -> bool:
    """No graph ends anywhere: an engine without any."""
    return False


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user and the plan say. Times in seconds.

    `depths` are the candidates, ascending, 0 among them; `in_force` is the schedule that engines run now
    (in Observe and Recommend it is not the one last recommended). `allowed` tells which depths may run
    at which batch, from the plan's graph map, and `full` at which batch a depth's graph is full. `prove`: a change
    begins as a trial against the schedule before.
    `budget` goes with every new generation.
    """

    depths: tuple[int, ...]
    max_batch: int
    in_force: Schedule
    minimum_gain: float = 0.03
    dwell: float = 120.0
    interval: float = 30.0
    exploration_price: float = 0.005
    max_inter_token_latency: float | None = None
    allowed: Allowed = everywhere
    full: Full = nowhere
    prove: bool = False
    budget: Budget = field(default_factory=Budget)

    @property
    def needed(self) -> float:
        """The log gain beyond uncertainty that is worth a change."""
        return max(math.log1p(self.minimum_gain), c.LEAST_GAIN)
