"""What the arms do: fixed depths hold one schedule, specpilot takes the operator's own steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specpilot.control.step import Evidence, first_schedule, step
from specpilot.decide.memory import Memory
from specpilot.decide.settings import Settings
from specpilot.estimate.counters import Counters
from specpilot.estimate.windows import remember
from specpilot_engine.protocol import Exploration, ProfilePoint, Schedule, Step, parse_schedule

POD = ("", "one")
FIXED_GENERATION = 10**9  # beyond specpilot's: an engine tells schedules apart by their generations


# Explores nothing, for what it earns buys nothing; but an engine that may not explore at all forgets what specpilot
# has saved up for exploring, which between two of specpilot's segments must stand as still as its clock.
NOTHING = Exploration(price=1e-9, cost=1e6)


def fixed(depth: int, max_batch: int) -> Schedule:
    """One depth at every batch: nothing explored, nothing compared, no draft cut."""
    return Schedule(FIXED_GENERATION + depth, (Step(max_batch, depth),), NOTHING)


class Tuned:
    """specpilot, serving only while its segments last.

    Its clock stands still between them and no window spans a gap, so that it lives through the scenario as
    if the other arms were not there. A trial that a segment's end cuts short begins again in the next one,
    as it does when an engine restarts. `start` is its first moment in epoch seconds.
    """

    def __init__(self, settings: Settings, points: Sequence[ProfilePoint], start: float) -> None:
        self._points = points
        self._settings = replace(settings, in_force=first_schedule(points, settings))
        self._evidence = Evidence()
        self._clock = start
        self._ahead = 0.0  # of the engine's time
        self._seen: Counters | None = None  # the latest reading, with all that those before it told of cells
        self.discarded: dict[str, int] = {}  # looks that taught nothing in the present segment, by reason

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from `state`, which `state()` gave."""
        self._evidence = Evidence(Memory.from_json(state["memory"]))
        self._settings = replace(self._settings, in_force=parse_schedule(state["schedule"]))
        self._clock = float(state["clock"])

    def state(self) -> dict[str, Any]:
        return {
            "memory": self._evidence.memory.to_json(),
            "schedule": self.schedule.dump(),
            "clock": self._clock,
        }

    @property
    def schedule(self) -> Schedule:
        """The schedule in force, or to be put in force when a segment begins."""
        return self._settings.in_force

    def begin(self, counters: Counters) -> None:
        """A segment begins here."""
        self._ahead = self._clock - counters.at
        self.discarded = {}
        self._evidence = Evidence(self._evidence.memory, {POD: remember(self._seen, self._timed(counters))})

    def look(self, counters: Counters) -> dict[str, Any] | None:
        """One tick. When it changes the schedule: what and why."""
        timed = self._timed(counters)
        self._clock = timed.at
        taken = step(self._evidence, {POD: timed}, self._points, self._settings, True, timed.at)
        self._evidence = taken.evidence
        for found in taken.discarded.values():
            self.discarded[found.reason] = self.discarded.get(found.reason, 0) + 1
        if taken.schedule is None:
            return None
        self._settings = replace(self._settings, in_force=taken.schedule)
        explored, trial = taken.schedule.exploration, taken.schedule.trial
        return {
            "generation": taken.schedule.generation,
            "schedule": taken.schedule.as_vllm(),
            "moved": taken.decision.steps_changed,
            "settled": taken.decision.settled,
            "explored": [explored.tokens, explored.price, explored.cost],
            "pairs": trial.pairs if trial else 0,
            "reason": taken.decision.reason,
            "message": taken.decision.message,
        }

    def end(self, counters: Counters) -> None:
        """A segment ends here."""
        self._clock = self._timed(counters).at
        self._seen = remember(self._evidence.before[POD], counters)

    def saw(self, counters: Counters) -> None:
        """What the engine had counted at the end of another arm's segment: none of that is specpilot's to learn from."""
        self._seen = remember(self._seen, counters)

    def _timed(self, counters: Counters) -> Counters:
        return replace(counters, at=counters.at + self._ahead)
