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
from itertools import accumulate
from statistics import fmean, median

from specpilot_engine.protocol import bucket

Curve = Sequence[tuple[int, float]]  # rows or requests, seconds; sizes rise

PRIOR_ACCEPTANCE = 0.65  # of a slot nothing is known of, given the one before
PRIOR_TRIES = 4.0  # what that counts; deeper slots lean on the one before by as much
POOL_DRAFTS = 100.0  # half-life of what all requests share, in whole drafts
REQUEST_STEPS = 12.0  # half-life of what is known of one request, in steps whether it was verified or not
EVEN = 1.0  # a request's record is read as if it had one acceptance and one rejection more
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
    """What to verify: `rows` draft rows, and the goodput of 0, 1, … rows in tokens per second.

    `order` names the request of each slot, the slot most likely to survive first.
    """

    rows: int
    goodput: Sequence[float]
    order: Sequence[int]
    requests: int

    @property
    def gain(self) -> float:
        """How much more goodput than verifying every row: 0.5 is half as much again."""
        return self.goodput[self.rows] / self.goodput[-1] - 1.0

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
    tokens = accumulate((-negative for negative, _, _ in slots), initial=float(len(survival)))
    goodput = [n / (draft_seconds + seconds) for n, seconds in zip(tokens, verify_seconds, strict=True)]
    rows = max(range(len(goodput)), key=goodput.__getitem__)
    return Choice(rows, goodput, [request for _, _, request in slots], len(survival))


@dataclass(slots=True)
class _Record:
    """One request's slots lately tried, those accepted, and how many of them all requests' would have been."""

    tried: float = 0.0
    accepted: float = 0.0
    expected: float = 0.0
    step: int = 0


class Beliefs:
    """Survival of the draft slots of each request, from what was accepted.

    Acceptance of slot j given the one before is q_j over all requests, and for a request those odds times a
    factor of its own: the odds of its record to those that the pool would have had in its place, both
    with EVEN added to each side, so that a request without a record is like the pool. A record fades
    with the engine's steps even while nothing of the request is verified: who was cut off comes back by itself
    as far as the others are good.

    q_j learns from whole drafts alone. Of drafts that were cut, only the good requests' reach slot j, and
    the pool would look ever better; within one request cutting biases nothing, because whether a slot
    is tried depends on earlier drafts only.
    """

    def __init__(self, max_tokens: int) -> None:
        self._tried = [0.0] * max_tokens
        self._accepted = [0.0] * max_tokens
        self._pool = [PRIOR_ACCEPTANCE] * max_tokens
        self._expected = list(accumulate(self._pool, initial=0.0))  # of as many slots tried
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
            tried = min(accepted + 1, length)
            record = self._faded(request)
            record.tried += tried
            record.accepted += accepted
            record.expected += self._expected[tried]
        if whole and drafts:
            self._learn_pool(drafts)

    def _learn_pool(self, drafts: Sequence[tuple[str, int, int]]) -> None:
        keep = 0.5 ** (len(drafts) / POOL_DRAFTS)
        before = PRIOR_ACCEPTANCE
        for j in range(len(self._pool)):
            tried = sum(length > j and accepted >= j for _, length, accepted in drafts)
            passed = sum(accepted > j for _, _, accepted in drafts)
            self._tried[j] = self._tried[j] * keep + tried
            self._accepted[j] = self._accepted[j] * keep + passed
            before = (self._accepted[j] + PRIOR_TRIES * before) / (self._tried[j] + PRIOR_TRIES)
            self._pool[j] = before
        self._expected = list(accumulate(self._pool, initial=0.0))

    def survival(self, request: str, length: int) -> list[float]:
        """Of each of the `length` slots of the request's draft."""
        factor = self._factor(request)
        survived, row = 1.0, []
        for q in self._pool[:length]:
            q = min(max(q, LEAST), MOST)
            odds = factor * q / (1 - q)
            survived *= min(max(odds / (1 + odds), LEAST), MOST)
            row.append(survived)
        return row

    def keep(self, requests: Sequence[str]) -> None:
        """Forget all requests but these."""
        if len(self._records) > 2 * len(requests) + 16:
            wanted = set(requests)
            self._records = {i: record for i, record in self._records.items() if i in wanted}

    def _factor(self, request: str) -> float:
        if request not in self._records:
            return 1.0
        r = self._faded(request)
        odds = (EVEN + r.accepted) / (EVEN + r.tried - r.accepted)
        return odds * (EVEN + r.tried - r.expected) / (EVEN + r.expected)

    def _faded(self, request: str) -> _Record:
        record = self._records.get(request)
        if record is None:
            record = self._records[request] = _Record(step=self._step)
        elif record.step != self._step:
            keep = 0.5 ** ((self._step - record.step) / REQUEST_STEPS)
            record.tried *= keep
            record.accepted *= keep
            record.expected *= keep
            record.step = self._step
        return record


@dataclass(slots=True)
class _Bin:
    rows: deque[int] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    last: int = 0  # sequence number of its latest step


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
        found.last = self._count

    def curve(self, tokens: int, batch: int) -> Curve:
        """(rows, seconds) of what is known well enough, sizes rising."""
        cell = self._cells.get((tokens, bucket(batch)), {})
        known = (b for b in cell.values() if len(b.seconds) >= FEWEST)
        points = {round(fmean(b.rows)): median(b.seconds) for b in known}
        return sorted(points.items())

    def last(self, tokens: int, batch: int, rows: int) -> int:
        """When about so many rows were last timed, as a number that grows with each step; 0: not well enough."""
        found = self._cells.get((tokens, bucket(batch)), {}).get(_bin(rows))
        return found.last if found is not None and len(found.seconds) >= FEWEST else 0


def _bin(rows: int) -> int:
    return round(2 * math.log2(max(rows, 1)))
