"""What is true in a world: step times, accepted lengths, and the best that could be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from specpilot.replay.world import Phase, World
from specpilot_engine.protocol import ProfilePoint, Schedule, Step

Floats = NDArray[np.float64]
SPREAD, STEPS = 0.05, 16  # what a profile says of each of its points


class Truth:
    """`seconds[i, b-1]`: mean step time at depths[i] with b requests running, where the context factor is 1."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.depths = world.depths
        sizes = np.arange(1, world.max_batch + 1, dtype=float)
        self.seconds: Floats = (
            np.array([_times(world.batches, row, sizes) for row in world.step_time_ms]) / 1e3
        )
        factors = sorted((float(context), factor) for context, factor in world.context_factor.items())
        self._contexts = [context for context, _ in factors]
        self._factors = [factor for _, factor in factors]

    def factor(self, context: float) -> float:
        """How much longer steps take at `context` tokens: linear between the keys, held outside them."""
        return float(np.interp(context, self._contexts, self._factors)) if self._factors else 1.0

    def survival(self, mix: Mapping[str, float]) -> Floats:
        """By slot, of requests of which `mix` are the shares."""
        slots = self.depths[-1]
        curves = [share * np.array(self.world.traffic[kind].survival[:slots]) for kind, share in mix.items()]
        return np.asarray(sum(curves, np.zeros(slots)))

    def lengths(self, phase: Phase) -> Floats:
        """Accepted length L = 1 + s_1 + … + s_k at each depth, of the phase's traffic."""
        sums = np.concatenate(([1.0], 1 + np.cumsum(self.survival(phase.mix))))
        return np.asarray(sums[list(self.depths)])

    def goodput(self, phase: Phase) -> Floats:
        """Expected tokens a second [depths, batches 1…]."""
        sizes = np.arange(1, self.seconds.shape[1] + 1)
        return np.asarray(sizes * self.lengths(phase)[:, None] / (self.seconds * self.factor(phase.context)))

    def best(self, phase: Phase, generation: int = 1) -> Schedule:
        """The oracle's schedule: at each batch size the depth with the most expected goodput.

        That is also the least mean latency where requests arrive by themselves. With lengths and gaps
        without memory the number of requests is a birth-death process, which only falls, in distribution,
        when any of its death rates, goodput over mean length, rises.
        """
        return merged(np.array(self.depths)[self.goodput(phase).argmax(axis=0)].tolist(), generation)

    def profile(self, rng: np.random.Generator) -> tuple[ProfilePoint, ...]:
        """What a policy is told before the start, with normal relative errors drawn from `rng`."""
        told = self.world.profile
        if told is None:
            return ()
        factor = self.factor(told.context) / 1e3
        return tuple(
            ProfilePoint(
                k,
                b,
                round(told.context),
                ms * factor * max(1 + rng.normal(0, told.error), 0.05),
                SPREAD,
                STEPS,
            )
            for k, row in zip(self.depths, self.world.step_time_ms, strict=True)
            for b, ms in zip(self.world.batches, row, strict=True)
        )


def merged(depths: Sequence[int], generation: int) -> Schedule:
    """The schedule with depths[b-1] at batch b; beyond the last its depth holds."""
    steps: list[Step] = []
    for batch, depth in enumerate(depths, 1):
        if steps and steps[-1].tokens == depth:
            steps.pop()
        steps.append(Step(batch, depth))
    return Schedule(generation, tuple(steps))


def _times(batches: Sequence[int], row: Sequence[float], sizes: Floats) -> Floats:
    """Linear between the points, held below the first, and beyond the last on from the last two."""
    times = np.interp(sizes, batches, row)
    if len(batches) > 1:
        slope = (row[-1] - row[-2]) / (batches[-1] - batches[-2])
        beyond = sizes > batches[-1]
        times[beyond] = row[-1] + slope * (sizes[beyond] - batches[-1])
    # A last segment that falls, by measuring error, must not reach below zero far out.
    return np.asarray(np.maximum(times, 0.1 * min(row)))
