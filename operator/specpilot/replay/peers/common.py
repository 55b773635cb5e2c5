"""What the peers' policies share: windows, averages over many steps at once, schedules.

They decide in the engine, after every few steps; here they look once a scrape. Where that would only hold
them back it is made up for: an average that forgets within ten steps takes the whole window's mean, so
it has none of its noise, and what they would do at another batch size a few steps after meeting it
already stands in the schedule. What cannot be made up for is that they would have followed a shift of
acceptance within a second, and here do at the next scrape, as ours does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specpilot.estimate.counters import Cell, Counters
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.windows import Window, between, remember
from specpilot.replay.policy import Setup
from specpilot_engine.protocol import Exploration, Schedule, Step

QUIET = Exploration()


class Windows:
    """Differences of successive counters."""

    def __init__(self) -> None:
        self._before: Counters | None = None

    def since_last(self, counters: Counters) -> Window | None:
        """What happened since the look before; None at the first one, and where nothing can be told."""
        before, self._before = self._before, remember(self._before, counters)
        window = between(before, counters) if before is not None else None
        return window if isinstance(window, Window) and window.steps else None


def follow(old: float, seen: float, alpha: float, updates: float) -> float:
    """An exponential average of weight `alpha` after `updates` observations that were all `seen`."""
    return seen + (old - seen) * float((1.0 - alpha) ** updates)


def mean_batch(cells: Iterable[Cell]) -> float:
    """Running requests per step."""
    cells = list(cells)
    return sum(c.requests for c in cells) / max(sum(c.steps for c in cells), 1e-9)


def load(window: Window) -> float:
    """The mean batch of the batch bucket in which most steps were."""
    steps: dict[int, float] = {}
    for (_, edge), cell in window.cells.items():
        steps[edge] = steps.get(edge, 0.0) + cell.steps
    most = max(steps, key=lambda edge: steps[edge])
    return mean_batch(cell for (_, edge), cell in window.cells.items() if edge == most)


def survival(window: Window) -> list[tuple[float, float]]:
    """By 0-based position: the share of drafts that were accepted there, and the steps that had it.

    The share is unconditional, and NaN-free: positions end where nothing was drafted.
    """
    batch = mean_batch(window.cells.values())
    return [
        (accepted / drafted, drafted / max(batch, 1.0))
        for drafted, accepted in zip(window.drafted, window.accepted, strict=True)
        if drafted > 0
    ]


def nearest(depth: int, depths: Iterable[int]) -> int:
    """The candidate next to `depth`, the shallower of two."""
    return min(depths, key=lambda k: (abs(k - depth), k))


def cost_table(setup: Setup) -> Callable[[int, float], float] | None:
    """Step time in seconds at a depth and a batch, linear between measured points; None without a profile."""
    if not setup.profile:
        return None
    prior = CostPrior(setup.profile)
    return lambda depth, batch: prior.second(depth, batch, None)


class Schedules:
    """Depth by batch size as schedules, with a new generation whenever something differs."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._latest: Schedule | None = None

    def by_batch(self, depth_at: Callable[[int], int], exploration: Exploration = QUIET) -> Schedule:
        """The depths that `depth_at` gives for each number of running requests."""
        steps: list[Step] = []
        for batch in range(1, self._setup.max_batch + 1):
            depth = depth_at(batch)
            if steps and steps[-1].tokens == depth:
                steps[-1] = Step(batch, depth)
            else:
                steps.append(Step(batch, depth))
        latest = self._latest
        if latest is None or (latest.steps, latest.exploration) != (tuple(steps), exploration):
            latest = Schedule(latest.generation + 1 if latest else 1, tuple(steps), exploration)
        self._latest = latest
        return latest
