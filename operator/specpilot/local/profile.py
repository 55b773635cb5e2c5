"""Collects what the replicas' profilers measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specpilot.local.errors import LocalError
from specpilot.local.replica import Replica
from specpilot.local.state import State
from specpilot.metrics.http import MetricsError
from specpilot.metrics.source import Metrics
from specpilot_engine.protocol import ProfilePoint

Place = tuple[int, int, int]


class Profile:
    """The points known so far: those of earlier runs, and every replica's new ones, the first of each."""

    def __init__(self, state: State, metrics: Metrics, measuring: bool, say: Callable[[str], None]) -> None:
        self.points, self.total = state.points()
        self._state, self._metrics, self._say = state, metrics, say
        self._finished: set[str] = set()
        self.done = not measuring
        if self.points and self.done:
            say(f"the profile of an earlier run is used: {state.profile_file}")

    async def read(self, replicas: Sequence[Replica]) -> bool:
        """Ask the profilers once; True at the moment when all have finished."""
        if self.done:
            return False
        for replica in replicas:
            await self._ask(replica)
        self.done = len(self._finished) == len(replicas)
        if self.done:
            self._say(f"profiled: {len(self.points)} of {self.total} step times are known")
        return self.done

    async def _ask(self, replica: Replica) -> None:
        if replica.pod.name in self._finished:
            return
        try:
            answer = await self._metrics.profile(replica.target, len(self.points))
        except MetricsError:
            return  # it is starting, or its engine is
        known: dict[Place, ProfilePoint] = {(p.tokens, p.batch, p.context): p for p in self.points}
        fresh = [p for p in answer.points if (p.tokens, p.batch, p.context) not in known]
        self.total = max(self.total, answer.total)
        if fresh:
            self.points = (*self.points, *fresh)
            try:
                self._state.write_points(self.points, self.total)
            except LocalError as e:
                self._say(str(e))
        if answer.finished:
            self._finished.add(replica.pod.name)
            if answer.error:
                self._say(f"{replica.pod.name}: the profile is incomplete: {answer.error}")
