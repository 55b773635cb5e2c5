"""What a policy is: it sees what the operator would see, and answers with a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from specpilot.estimate.counters import Counters
from specpilot_engine.protocol import ProfilePoint, Schedule, Step


@dataclass(frozen=True, slots=True)
class Setup:
    """What is known before any traffic.

    `depths` are the candidates, ascending; a schedule may use no others. `max_batch` is the most requests
    that run at once. `profile` are measured step times in seconds, with their errors, and empty where
    nothing was measured. `interval` is the seconds between scrapes.
    """

    depths: tuple[int, ...]
    max_batch: int
    profile: tuple[ProfilePoint, ...]
    interval: float


class Policy(Protocol):
    """Decides depths for one engine, from its counters alone. One instance plays one world once."""

    def start(self, setup: Setup) -> Schedule:
        """The schedule in force before any traffic."""
        ...

    def look(self, counters: Counters, now: float) -> Schedule:
        """The schedule from `now` (epoch seconds) on, `counters` being those of this moment's scrape.

        The first look is at the moment the traffic begins, when everything is still zero: a baseline.
        """
        ...


def everywhere(depth: int, setup: Setup, generation: int = 1) -> Schedule:
    """The same depth at every batch size, without exploring."""
    return Schedule(generation, (Step(setup.max_batch, depth),))


@dataclass(slots=True)
class Fixed:
    """One depth for ever."""

    depth: int
    _schedule: Schedule | None = None

    def start(self, setup: Setup) -> Schedule:
        self._schedule = everywhere(self.depth, setup)
        return self._schedule

    def look(self, counters: Counters, now: float) -> Schedule:  # noqa: ARG002
        assert self._schedule is not None, "start comes first"
        return self._schedule
