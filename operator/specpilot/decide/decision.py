"""What one tick of tuning comes to."""

from __future__ import annotations

from dataclasses import dataclass

from specpilot.api.vocabulary import Reason
from specpilot.decide.proof import Measured
from specpilot_engine.protocol import Exploration, Step, Trial


@dataclass(frozen=True, slots=True)
class Decision:
    """What to run from now on.

    `change`: `steps`, `exploration` or `trial` differ from what is in force and should be published as a
    new generation; `steps_changed` tells the first. `predicted_gain` is the relative gain in goodput of
    `steps` over the schedule in force at the present load (0.08: 8%), None when nothing is known. With a
    `trial` the change is to be proved, and the gain is that of the batch sizes at which the two differ, as it will be
    measured; `settled` ends one, and then both gains are those of the change that was tried, whatever became of it.
    """

    change: bool
    steps: tuple[Step, ...]
    exploration: Exploration
    reason: Reason
    message: str
    predicted_gain: float | None = None
    steps_changed: bool = False
    trial: Trial | None = None
    settled: bool = False
    measured: Measured | None = None
