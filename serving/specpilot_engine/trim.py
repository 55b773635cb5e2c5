"""Applies the row budget to a scheduler: shortens drafts before a step, where that pays.

The drafts are there already, or placeholders of theirs where vLLM schedules asynchronously, as long as the
schedule's depth; what is decided is how many of them the target model verifies. Two states:

- *whole*: every draft is verified, as vLLM would. Now and then a few steps are cut, to learn what
  fewer rows cost; once that promises START more goodput, the state changes.
- *cutting*: each step verifies the rows that pay. Now and then a few steps are whole, so that requests
  come back when their drafts turn good, and so that what the operator is told stays unbiased: only steps
  that were whole by plan are counted and timed for it. It costs what may be explored for, or a tenth of what cutting
  gains where that is more.

Knows vLLM's requests by shape only, and replaces their list of drafts: the list itself may be shared.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from specpilot_engine.budget import Beliefs, Choice, Curve, StepTimes, choose, cost_table
from specpilot_engine.explore import Explorer
from specpilot_engine.protocol import Exploration

START, STOP = 0.03, 0.01  # gain over whole drafts from which steps are cut, and below which no more
GAIN_STEPS = 16  # over which that gain is averaged
PROBE_SHARE = 0.1  # of what cutting gains goes into whole steps, the price of exploring at least,
PROBE_PRICE = 0.02  # but no more than this of the goodput where that price is lower,
FIRST_PRICE = 0.1  # and this for a start, so that the operator sees soon what traffic has become:
FIRST_DRAFTS = 200  # until so many whole drafts were seen since cutting began


class Trimmer:
    """Asked once per step; told what became of each."""

    def __init__(self, max_tokens: int) -> None:
        self.active = False  # the schedule asks for a budget
        self.cutting = False
        self.rows_verified = self.rows_trimmed = 0  # draft rows
        self.probes = 0  # whole steps while cutting
        self._beliefs = Beliefs(max_tokens)
        self._times = StepTimes()
        self._looks = Explorer()
        self._target: int | None = None  # rows that the present run of looks verifies
        self._gain = 0.0
        self._seen = 0  # whole drafts since cutting began
        self._cut: list[str] = []  # requests whose drafts the coming step cuts
        self._left: set[str] = set()  # cut, and not scheduled since

    def before_schedule(self, running: Sequence[Any], tokens: int, price: float, whole: bool) -> bool:
        """Shorten drafts for the coming step; returns whether it verifies all of them by plan.

        `tokens`: the depth that is drafted; `price` as in protocol.Budget; `whole`: it explores a depth,
        and must not be cut.
        """
        self._cut, self.active = [], price > 0
        if not (self.active or self._left):
            return True
        ids = [request.request_id for request in running]
        # Who is not there any more was ended, or preempted, which drops drafts.
        self._left.intersection_update(ids)
        if not self.active:
            return not self._left
        self._beliefs.step()
        self._beliefs.keep(ids)
        curve = self._times.curve(tokens, len(running))
        total = sum(len(request.spec_token_ids) for request in running)
        if whole or not total or not curve:
            return not self._left
        choice = self._choose(running, total, curve)
        self._judge(choice)
        if self.cutting:
            if self._probe(price, choice, len(running)):
                self.probes += 1
                return not self._left
            self._apply(running, choice.kept(choice.rows))
            return False
        target = self._look(price, choice, tokens, len(running))
        if target is None:
            return not self._left
        self._apply(running, choice.kept(target))
        return False

    def after_schedule(self, scheduled: Container[str]) -> None:
        """Told which requests the step has: a cut draft that it left out is still cut in a later one."""
        if self._cut or self._left:
            self._left = {i for i in (*self._left, *self._cut) if i not in scheduled}

    def landed(self, drafts: Sequence[tuple[str, int, int]], whole: bool) -> None:
        """Learn from a step's drafts: (request, slots verified, slots accepted)."""
        if self.active:
            self.rows_verified += sum(length for _, length, _ in drafts)
            self._seen += len(drafts) if whole else 0
            self._beliefs.learn(drafts, whole)

    def timed(self, tokens: int, batch: int, rows: int, seconds: float) -> None:
        """Learn what a step of so many rows took."""
        if self.active:
            self._times.add(tokens, batch, rows, seconds)

    def _choose(self, running: Sequence[Any], total: int, curve: Curve) -> Choice:
        survival = [self._beliefs.survival(r.request_id, len(r.spec_token_ids)) for r in running]
        batch = len(running)
        return choose(survival, 0.0, cost_table(curve, range(batch, batch + total + 1)))

    def _judge(self, choice: Choice) -> None:
        self._gain += (choice.gain - self._gain) / GAIN_STEPS
        before, self.cutting = self.cutting, self._gain > (STOP if self.cutting else START)
        if self.cutting and not before:
            self._seen = 0

    def _probe(self, price: float, choice: Choice, batch: int) -> bool:
        most = FIRST_PRICE if self._seen < FIRST_DRAFTS else PROBE_PRICE
        price = max(price, min(most, PROBE_SHARE * self._gain))
        whole = Exploration(price, cost=max(choice.cost(-1, choice.rows), 0.0))
        return self._looks.step(whole, True, batch, _always)

    def _look(self, price: float, choice: Choice, tokens: int, batch: int) -> int | None:
        """Draft rows to verify in order to learn what they cost; None: verify all."""
        most = len(choice.order)
        target = self._target
        if target is None:
            # What was timed longest ago; an unknown number of rows is believed to cost nothing to try.
            target = min((0, most // 2), key=lambda rows: self._times.last(tokens, batch, batch + rows))
        target = min(target, most)
        known = self._times.last(tokens, batch, batch + target)
        cost = max(choice.cost(target, most), 0.0) if known else 0.0
        looks = self._looks.step(Exploration(price, cost=cost), True, batch, _always)
        self._target = target if looks else None
        return self._target

    def _apply(self, running: Sequence[Any], kept: Sequence[int]) -> None:
        for request, keep in zip(running, kept, strict=True):
            trimmed = len(request.spec_token_ids) - keep
            if trimmed:
                request.spec_token_ids = request.spec_token_ids[:keep]
                self._cut.append(request.request_id)
                self.rows_trimmed += trimmed


def _always() -> bool:
    return True
