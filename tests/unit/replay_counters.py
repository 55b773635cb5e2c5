"""Counters made by hand, for policies that are looked at one window at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specpilot.estimate.counters import Cell, Counters
from specpilot.replay.policy import Setup
from specpilot_engine.protocol import ProfilePoint, bucket

SLOTS = 7


def setup(depths: tuple[int, ...], seconds: Mapping[int, float] | None = None, max_batch: int = 64) -> Setup:
    """A policy's setup; `seconds` by depth make a profile that is alike at all batch sizes."""
    points = [
        ProfilePoint(k, batch, 8192, s, 0.05, 16)
        for k, s in (seconds or {}).items()
        for batch in (1, max_batch)
    ]
    return Setup(depths, max_batch, tuple(points), 15.0)


class Engine:
    """Counts the steps it is told of; 15 s pass between two readings."""

    def __init__(self) -> None:
        self._at, self._steps = 1000.0, 0.0
        self._cells: dict[tuple[int, int], Cell] = {}
        self._drafted, self._accepted = [0.0] * SLOTS, [0.0] * SLOTS

    def run(self, depth: int, batch: int, steps: float, accepted: Sequence[float]) -> None:
        """`steps` clean steps; `accepted` is the survival of each slot of the depth."""
        key = depth, bucket(batch)
        old = self._cells.get(key, Cell(0, 0, 0, 0))
        requests = steps * batch
        self._cells[key] = Cell(
            old.steps + steps,
            old.seconds + steps * 0.02,
            old.requests + requests,
            old.emitted + requests * (1 + sum(accepted)),
        )
        for j, share in enumerate(accepted):
            self._drafted[j] += requests
            self._accepted[j] += requests * share
        self._steps += steps

    def counters(self) -> Counters:
        self._at += 15.0
        return Counters(
            "pod",
            self._at,
            dict(self._cells),
            tuple(self._drafted),
            tuple(self._accepted),
            all_steps=self._steps,
        )
