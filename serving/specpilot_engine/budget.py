"""How many draft rows of a step are worth verifying, and whose.

A batch of r requests with n rows that are no drafts emits r + (sum of the survivals of the b draft slots it
verifies) in D(r) + V(n + b) seconds. So the slots most likely to survive are taken, as many as give the
most tokens per second:

    b* = argmax_b (r + sum of the top b survivals) / (D(r) + V(n + b))

This is the rule, and D and V are the tables, of vLLM's adaptive verification (0.33,
v1/worker/gpu/spec_decode/adaptive_verification.py), which needs CUDA graphs and a confidence head. Here
survival comes from what each request's drafts were lately worth (`Beliefs`), and the seconds from the steps
that were timed (`StepTimes`). Pure: no clock, no randomness.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from operator import mul
from statistics import fmean, median

from specpilot_engine.protocol import bucket

Curve = Sequence[tuple[int, float]]  # rows or requests, seconds; sizes rise

PRIOR_ACCEPTANCE = 0.65  # of a slot nothing is known of, given the one before
PRIOR_TRIES = 4.0  # what that counts; deeper slots lean on the one before by as much
POOL_DRAFTS = 100.0  # half-life of what all requests share, in whole drafts
REQUEST_STEPS = 8.0  # half-life of what is known of one request, in steps whether it was verified or not
LIKE_OTHERS = 2.0  # tries of each slot that a request is taken to have had with all requests' result
LEAST, MOST = 0.02, 0.98  # acceptance is never believed surer: a request can always come back
SAMPLES = 25  # latest steps at a row count, of which the median counts
FEWEST = 2  # steps before that median is used: the first at a new shape may have compiled something


def cost_table(curve: Curve, sizes: range, graph_limit: int | None = None) -> list[float]:
    """Seconds at each of `sizes`, from samples at a few.

    As vLLM makes its tables: cumulative maximum; up to `graph_limit`, the largest captured size, each size is
    padded to the next sample; above it linear between samples that are also above; after the last sample
    its slope goes on. 0 pads everywhere up to the last sample; None is for engines that capture nothing,
    linear everywhere and constant before the first sample.
    """
    xs = [size for size, _ in curve]
    ys = list(accumulate((seconds for _, seconds in curve), max))
    slope = (ys[-1] - ys[-2]) / (xs[-1] - xs[-2]) if len(xs) > 1 else 0.0
    # The first sample that is interpolated from; those before it pad.
    first = len(xs) if graph_limit == 0 else bisect_right(xs, -1 if graph_limit is None else graph_limit)
    table = []
    for size in sizes:
        i = bisect_left(xs, size)
        if i == len(xs):
            table.append(ys[-1] + slope * (size - xs[-1]))
        elif i > first:
            table.append(ys[i - 1] + (ys[i] - ys[i - 1]) * (size - xs[i - 1]) / (xs[i] - xs[i - 1]))
        else:
            table.append(ys[i])
    return table


@dataclass(frozen=True, slots=True)
class Choice:
    """What to verify: `rows` draft rows; tokens and seconds of a step with 0, 1, … of them.

    `order` names the request of each slot, the slot most likely to survive first.
    """

    rows: int
    tokens: Sequence[float]
    seconds: Sequence[float]
    order: Sequence[int]
    requests: int

    @property
    def gain(self) -> float:
        """How much more goodput than verifying every row: 0.5 is half as much again."""
        return self.goodput(self.rows) / self.goodput(-1) - 1.0

    def goodput(self, rows: int) -> float:
        """Tokens per second."""
        return self.tokens[rows] / self.seconds[rows]

    def cost(self, rows: int, usual: int) -> float:
        """Lost by one step with `rows` rows among steps with `usual` rows, in the tokens of one of these."""
        return self.seconds[rows] / self.seconds[usual] - self.tokens[rows] / self.tokens[usual]

    def kept(self, rows: int) -> list[int]:
        """How many slots of each request the best `rows` of all are. They are the first ones of each."""
        counts = [0] * self.requests
        for request in self.order[:rows]:
            counts[request] += 1
        return counts


def choose(
    survival: Sequence[Sequence[float]], draft_seconds: float, verify_seconds: Sequence[float]
) -> Choice:
    """The best number of draft rows.

    `survival[i][j]` is that of slot j of request i, falling in j, as long as its draft; `verify_seconds[b]` is
    V(n + b) for b up to the number of slots, `draft_seconds` D(r). Of equal slots the earlier goes first.
    """
    slots = sorted(
        (-survived, slot, request)
        for request, draft in enumerate(survival)
        for slot, survived in enumerate(draft)
    )
    tokens = list(accumulate((-negative for negative, _, _ in slots), initial=float(len(survival))))
    seconds = [draft_seconds + verify for verify in verify_seconds]
    goodput = [n / s for n, s in zip(tokens, seconds, strict=True)]
    rows = max(range(len(goodput)), key=goodput.__getitem__)
    return Choice(rows, tokens, seconds, [request for _, _, request in slots], len(survival))


class _Record:
    """How often each slot was tried lately, and how often it was accepted."""

    __slots__ = ("accepted", "step", "tried")

    def __init__(self, max_tokens: int, step: int) -> None:
        self.tried = [0.0] * max_tokens
        self.accepted = [0.0] * max_tokens
        self.step = step

    def fade(self, keep: float) -> None:
        self.tried = [n * keep for n in self.tried]
        self.accepted = [n * keep for n in self.accepted]

    def add(self, length: int, accepted: int) -> None:
        for slot in range(accepted):
            self.tried[slot] += 1
            self.accepted[slot] += 1
        if accepted < length:
            self.tried[accepted] += 1


class Beliefs:
    """Survival of the draft slots of each request, from what was accepted.

    Acceptance of a slot given the one before is a Beta posterior mean: its prior for a request is what holds
    for all requests, and for a slot of these the slot before. A request's record fades with the engine's
    steps even while nothing of it is verified: who was cut off comes back by itself, as far as the
    others are good.

    All requests' acceptance is learnt from whole drafts alone. Of drafts that were cut, only the good
    requests' reach a deep slot, and the pool would look ever better; within one request cutting biases
    nothing, because whether a slot is tried depends on earlier drafts only.
    """

    def __init__(self, max_tokens: int) -> None:
        self._pool = _Record(max_tokens, 0)
        self._prior = [PRIOR_ACCEPTANCE] * max_tokens
        self._records: dict[str, _Record] = {}
        self._step = 0

    def step(self) -> None:
        """Another step begins."""
        self._step += 1

    def learn(self, drafts: Sequence[tuple[str, int, int]], whole: bool) -> None:
        """Take in what became of a step's drafts: (request, slots verified, slots accepted).

        `whole`: they were not cut, whatever they looked like.
        """
        for request, length, accepted in drafts:
            self._of(request).add(length, accepted)
        if whole and drafts:
            self._pool.fade(0.5 ** (len(drafts) / POOL_DRAFTS))
            for _, length, accepted in drafts:
                self._pool.add(length, accepted)
            before, prior = PRIOR_ACCEPTANCE, []
            for n, passed in zip(self._pool.tried, self._pool.accepted, strict=True):
                before = (passed + PRIOR_TRIES * before) / (n + PRIOR_TRIES)
                prior.append(min(max(before, LEAST), MOST))
            self._prior = prior

    def survival(self, request: str, length: int) -> list[float]:
        """Of each of the `length` slots of the request's draft."""
        if request not in self._records:
            return list(accumulate(self._prior[:length], mul))
        record = self._of(request)
        slots = zip(record.accepted, record.tried, self._prior, strict=True)
        acceptance = ((a + LIKE_OTHERS * q) / (n + LIKE_OTHERS) for a, n, q in islice(slots, length))
        return list(accumulate(acceptance, mul))

    def keep(self, requests: Sequence[str]) -> None:
        """Forget all requests but these."""
        if len(self._records) > 2 * len(requests) + 16:
            wanted = set(requests)
            self._records = {i: record for i, record in self._records.items() if i in wanted}

    def _of(self, request: str) -> _Record:
        record = self._records.get(request)
        if record is None:
            record = self._records[request] = _Record(len(self._prior), self._step)
        elif record.step != self._step:
            record.fade(0.5 ** ((self._step - record.step) / REQUEST_STEPS))
            record.step = self._step
        return record


@dataclass(slots=True)
class _Bin:
    rows: deque[int] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    last: int = 0  # sequence number of its latest step
    point: tuple[int, float] | None = None  # mean rows and median seconds, unless a step came since

    def summary(self) -> tuple[int, float]:
        if self.point is None:
            self.point = round(fmean(self.rows)), median(self.seconds)
        return self.point


class StepTimes:
    """Seconds of a step by its rows, for each depth drafted and batch bucket: drafting is in them.

    Rows within half an octave are one bin; its median is robust against a step that was interrupted, and its
    latest SAMPLES steps follow a context that grows. D(r) is constant at one depth and batch, so that
    what is learnt is D + V, in which the argmax is the same.
    """

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], dict[int, _Bin]] = {}
        self._count = 0

    def add(self, tokens: int, batch: int, rows: int, seconds: float) -> None:
        """One step that drafted `tokens` for each of `batch` requests and verified `rows` rows in all."""
        self._count += 1
        cell = self._cells.setdefault((tokens, bucket(batch)), {})
        found = cell.setdefault(_bin(rows), _Bin())
        found.rows.append(rows)
        found.seconds.append(seconds)
        found.last, found.point = self._count, None

    def curve(self, tokens: int, batch: int) -> Curve:
        """(rows, seconds) of what is known well enough, sizes rising."""
        cell = self._cells.get((tokens, bucket(batch)), {})
        return sorted(dict(b.summary() for b in cell.values() if len(b.seconds) >= FEWEST).items())

    def last(self, tokens: int, batch: int, rows: int) -> int:
        """When about so many rows were last timed, as a number that grows with each step; 0: not well enough."""
        found = self._cells.get((tokens, bucket(batch)), {}).get(_bin(rows))
        return found.last if found is not None and len(found.seconds) >= FEWEST else 0


def _bin(rows: int) -> int:
    return round(2 * math.log2(max(rows, 1)))
