"""SGLang's adaptive speculative decoding: steps from an average of the accepted length.

Source: SGLang's documentation, "Adaptive Speculative Decoding" (docs.sglang.io/docs/advanced_features/
adaptive_speculative_decoding), its pull requests 21599 and 24055, and the defaults of its latest
release. Batch ranges each have their own ladder of steps and their own exponential average of the draft
tokens accepted per request (weight 0.2 a verified batch, ten of them to warm up). Every five batches

    target = clamp(round(average) + 1, lowest, highest)

chooses from the ladder, with a margin for moving down and one for moving up. Where 0 is on the ladder it
is taken when less than half a token is accepted, and the lowest positive step is tried again after
every interval at 0. `ceiling` caps moving down at that multiple of the average.

To its favour: the average has no noise (see `common`), trying again takes a fifth of the steps at 0
where it really takes half of them, and ladders are mapped to the nearest candidates of the world.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specpilot.estimate.counters import Counters
from specpilot.estimate.windows import Window
from specpilot.replay.peers.common import QUIET, Schedules, Windows, follow, load, nearest
from specpilot.replay.policy import Setup
from specpilot_engine.protocol import Exploration, Schedule

ALPHA, WARM_UP = 0.2, 10
INITIAL = 3  # --speculative-num-steps of the documentation's example
TRIAL = Exploration(price=0.2, cost=1.0)  # as many steps as an engine explores at most


@dataclass(frozen=True, slots=True)
class Range:
    """From `first` running requests on: which steps, and the margins of the rule."""

    first: int
    ladder: tuple[int, ...]
    down: float = 0.0
    up: float = 0.0
    ceiling: float = 0.0  # 0: none


# The release's default, and the configuration that the documentation recommends for strong drafters.
DEFAULT = (
    Range(1, (1, 3, 5, 7), down=-0.25),
    Range(8, (0, 1, 3)),
    Range(32, (0, 1)),
    Range(64, (0,)),
)
AGGRESSIVE = (
    Range(1, (1, 3, 7), down=-0.25),
    Range(8, (1, 3, 7), down=-0.25, ceiling=3.0),
    Range(64, (1, 3), down=-0.25, ceiling=1.67),
    Range(128, (1, 3), down=-0.25, ceiling=1.2),
)


@dataclass(slots=True)
class Slot:
    """One range at work: `average` is of accepted draft tokens per request and step."""

    rule: Range
    ladder: tuple[int, ...]  # mapped to candidates, ascending
    current: int
    average: float
    batches: float = 0.0

    @classmethod
    def of(cls, rule: Range, setup: Setup) -> Slot:
        """At the initial steps, or in the middle of a ladder without them."""
        ladder = tuple(sorted({nearest(k, setup.depths) for k in rule.ladder}))
        initial = nearest(INITIAL, setup.depths)
        current = initial if initial in ladder else ladder[len(ladder) // 2]
        return cls(rule, ladder, current, current - 1.0)

    def see(self, drafting: float, accepted: float, steps: float) -> None:
        """`accepted` draft tokens per request over `drafting` of the `steps` in this range."""
        self.batches += steps
        if drafting:
            self.average = follow(self.average, accepted, ALPHA, drafting)
        if self.batches <= WARM_UP:
            return
        if self.current == 0:
            positive = [k for k in self.ladder if k > 0]
            if not positive or not drafting:
                return
            self.current = positive[0]
        self.current = self._target()

    def _target(self) -> int:
        rule, average = self.rule, self.average
        left = [k for k in self.ladder if k < self.current and average <= (k - 0.5 if k else 0.5) + rule.down]
        if left:
            target = left[0]
        else:
            enough = (k for k in self.ladder if k >= self.current and average <= k - 0.5 + rule.up)
            target = next(enough, self.ladder[-1])
        if rule.ceiling and target <= self.current:
            cap = max(1, math.ceil(average * rule.ceiling))
            target = max((k for k in self.ladder if k <= min(target, cap)), default=self.ladder[0])
        return target

    @property
    def trial(self) -> int | None:
        """The steps to try again while at 0."""
        return next((k for k in self.ladder if k > 0), None) if self.current == 0 else None


class AcceptLengthEma:
    """The policy: one slot per batch range."""

    def __init__(self, ranges: Sequence[Range] = DEFAULT) -> None:
        self._ranges = ranges

    def start(self, setup: Setup) -> Schedule:
        self._slots = [Slot.of(rule, setup) for rule in self._ranges]
        self._max_batch = setup.max_batch
        self._windows, self._schedules = Windows(), Schedules(setup)
        return self._schedules.by_batch(self._depth_at)

    def look(self, counters: Counters, now: float) -> Schedule:  # noqa: ARG002
        window = self._windows.since_last(counters)
        if window is None:
            return self._schedules.by_batch(self._depth_at)
        for slot in self._slots:
            self._show(slot, window)
        busy = self._slot(load(window))
        exploration = (
            QUIET if busy.trial is None else replace(TRIAL, tokens=busy.trial, max_batch=self._last(busy))
        )
        return self._schedules.by_batch(self._depth_at, exploration)

    def _show(self, slot: Slot, window: Window) -> None:
        """The cells of the slot's range; a bucket on its edge counts by its mean batch."""
        own = [(k, c) for (k, _), c in window.cells.items() if self._slot(c.requests / c.steps) is slot]
        drafting = [c for k, c in own if k > 0]
        requests = sum(c.requests for c in drafting)
        accepted = sum(c.emitted for c in drafting) / requests - 1.0 if requests else 0.0
        slot.see(sum(c.steps for c in drafting), accepted, sum(c.steps for _, c in own))

    def _slot(self, batch: float) -> Slot:
        return next(slot for slot in reversed(self._slots) if slot.rule.first <= max(batch, 1.0))

    def _last(self, slot: Slot) -> int:
        after = [other.rule.first for other in self._slots if other.rule.first > slot.rule.first]
        return min(after, default=self._max_batch + 1) - 1

    def _depth_at(self, batch: int) -> int:
        return self._slot(batch).current


def aggressive() -> AcceptLengthEma:
    """With the configuration for strong drafters."""
    return AcceptLengthEma(AGGRESSIVE)
