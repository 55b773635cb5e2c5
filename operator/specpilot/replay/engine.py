"""One simulated engine between two scrapes: its pace, what it explores, which of its steps are clean."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specpilot.estimate.counters import Counters, TrialCount
from specpilot.replay.counting import Ledger, Stretch
from specpilot.replay.truth import Truth
from specpilot.replay.world import Phase
from specpilot_engine.explore import Explorer
from specpilot_engine.protocol import Schedule
from specpilot_engine.trial import Slice, TrialRun

# A step is timed where both its neighbours have its requests and its depth, so each run of equal steps
# loses two.
NEIGHBOURS = 2


class ScheduleRefused(ValueError):
    """A policy asked for what cannot be run; one sentence."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The next steps: their depth, why it is that, how many at most, their mean time in seconds."""

    depth: int
    index: int
    explores: bool
    of: Slice | None  # of a trial that compares them
    most: float
    mean: float


class Engine:
    """Runs what the schedule says and counts it.

    `earned` are the tokens expected of the steps taken and `could` those of the best depth in the same
    time: what a policy lost, free of luck. Both grow for ever.
    """

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.ledger = Ledger(truth.depths[-1])
        self.earned = self.could = 0.0
        self._explorer = Explorer()
        self._index = {k: i for i, k in enumerate(truth.depths)}
        self._ahead = 0.0  # seconds by which the last step ended after its window
        self._lead, self._depth = 0, -1  # equal steps up to now, and their depth
        self.schedule = self._against = Schedule(0, ())
        self.trial: TrialRun | None = None
        self.phase: Phase

    def put(self, schedule: Schedule) -> None:
        """Run `schedule` from now on. Raises ScheduleRefused."""
        trial = schedule.trial
        wanted = {step.tokens for step in (*schedule.steps, *(trial.against if trial else ()))}
        if schedule.exploration.price > 0:
            wanted.add(schedule.exploration.tokens)
        if not schedule.steps or not wanted <= self._index.keys():
            raise ScheduleRefused(
                f"asked for the depths {sorted(wanted)} where only {list(self.truth.depths)} can be drafted"
            )
        if schedule != self.schedule:
            self.trial = TrialRun(trial, schedule.generation) if trial is not None else None
            self._against = Schedule(0, trial.against) if trial is not None else schedule
        self.schedule = schedule

    def begin(self, phase: Phase) -> None:
        """Another load from now on."""
        self.phase = phase
        factor = self.truth.factor(phase.context)
        self._mean = self.truth.seconds * factor
        self._lengths = self.truth.lengths(phase)
        self._best = self.truth.goodput(phase).max(axis=0)
        self.apart()

    def apart(self) -> None:
        """The requests that run are others than before: the next steps have other neighbours."""
        self._lead = 0

    def turn(self, batch: int, factor: float) -> Turn:
        """What the next steps are, with `batch` requests running; `factor` is the window's."""
        depth, x = self.schedule.tokens_at(batch), self.schedule.exploration
        explores, of = False, None
        if self.trial is not None:
            old = self._against.tokens_at(batch)
            now = self.trial.next(old != depth)
            if self.trial.running and old != depth:
                of = now
            depth = depth if self.trial.new_runs else old
            most = math.inf if of is None else 1
        else:
            explores, most = self._explorer.stretch(x, x.tokens != depth and batch <= x.max_batch, batch)
            depth = x.tokens if explores else depth
        index = self._index[depth]
        return Turn(depth, index, explores, of, most, float(self._mean[index, batch - 1]) * factor)

    def took(self, turn: Turn, batch: int, steps: int) -> int:
        """Account for `steps` of a turn; returns how many of them, the last ones, were clean."""
        if self.trial is None:
            self._explorer.took(self.schedule.exploration, turn.explores, batch, steps)
        else:  # exploring pauses meanwhile
            self.trial.took()
        self.ledger.explored, self.ledger.share = self._explorer.explored, self._explorer.share
        self.earned += steps * batch * self._lengths[turn.index]
        self.could += steps * self._mean[turn.index, batch - 1] * self._best[batch - 1]
        skipped = self.unclean(turn)
        if turn.depth != self._depth:
            self._depth, self._lead = turn.depth, 0
        self._lead += steps
        return max(steps - skipped, 0)

    def unclean(self, turn: Turn) -> int:
        """How many of a turn's first steps are not clean."""
        return max(NEIGHBOURS - self._lead, 0) if turn.depth == self._depth else NEIGHBOURS

    def count(self, turn: Turn, it: Stretch) -> None:
        """What the steps of a turn did."""
        self.ledger.add(it)
        if turn.of is not None and self.trial is not None:
            if it.clean:
                turn.of.add(it.batch, it.clean_tokens, it.clean_seconds)
            self.trial.landed(turn.of)

    def counters(self, now: float, running: int, waiting: int) -> Counters:
        """What a scrape at `now` shows."""
        trial = TrialCount()
        if self.trial is not None:
            trial = TrialCount(self.schedule.generation, self.trial.pairs, self.trial.running)
        return self.ledger.counters(now, self.schedule.generation, trial, running, waiting)

    def start_after_last(self, seconds: float) -> float:
        """How much of a window of `seconds` is left once the step in flight at its start has ended."""
        left, self._ahead = seconds - self._ahead, 0.0
        if left <= 0:
            self._ahead = -left
        return left

    def overshoot(self, seconds: float) -> None:
        """The window's last step ends so much after the window."""
        self._ahead = seconds
