"""What a simulated engine has counted, exported as the engine package exports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specpilot.estimate.counters import Cell, Counters, TrialCount
from specpilot_engine.protocol import bucket, exported_cells


@dataclass(slots=True)
class Tally:
    """Totals over the clean steps of one cell; `last` orders cells by their latest step."""

    steps: int = 0
    seconds: float = 0.0
    requests: int = 0
    emitted: int = 0
    context: float = 0.0
    last: int = 0


@dataclass(slots=True)
class Stretch:
    """Steps in a row of one depth and batch: all of them, and the clean ones among them.

    Tokens are those emitted to users.
    """

    depth: int
    batch: int
    context: float
    steps: int
    clean: int
    seconds: float
    clean_seconds: float
    tokens: int
    clean_tokens: int


@dataclass(slots=True)
class Ledger:
    """Cumulative since the engine's start; `positions` is the deepest depth it may draft."""

    positions: int
    steps: int = 0
    explored: int = 0
    tokens: int = 0
    share: float = 0.0
    latency_sum: float = 0.0
    latency_count: int = 0
    drafts: int = 0
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    _cells: dict[tuple[int, int], Tally] = field(default_factory=dict)
    _latest: int = 0

    def __post_init__(self) -> None:
        self.drafted, self.accepted = [0] * self.positions, [0] * self.positions

    def add(self, it: Stretch) -> None:
        """Count a stretch."""
        self.steps += it.steps
        self.tokens += it.tokens
        self.latency_sum += it.batch * it.seconds
        self.latency_count += it.batch * it.steps
        if it.depth:
            rows = it.steps * it.batch
            self.drafts += rows
            for j in range(it.depth):
                self.drafted[j] += rows
        if it.clean:
            self._latest += it.clean
            cell = self._cells.setdefault((it.depth, bucket(it.batch)), Tally())
            cell.steps += it.clean
            cell.seconds += it.clean_seconds
            cell.requests += it.clean * it.batch
            cell.emitted += it.clean_tokens
            cell.context += it.clean * it.batch * it.context
            cell.last = self._latest

    def accept(self, depth: int, counts: Sequence[int]) -> None:
        """Count drafts of `depth` by how many were accepted at each position."""
        for j in range(depth):
            self.accepted[j] += counts[j]

    def counters(self, at: float, generation: int, trial: TrialCount, running: int, waiting: int) -> Counters:
        """What a scrape at `at` shows: the most recently active cells only, as of a replica."""
        recent = sorted(self._cells, key=lambda key: self._cells[key].last, reverse=True)
        cells = {
            key: Cell(c.steps, c.seconds, c.requests, c.emitted, c.context)
            for key, c in (
                (key, self._cells[key]) for key in sorted(recent[: exported_cells(self.positions)])
            )
        }
        return Counters(
            life="replay",
            at=at,
            cells=cells,
            drafted=tuple(map(float, self.drafted)),
            accepted=tuple(map(float, self.accepted)),
            context_tokens=sum(cell.context for cell in cells.values()),
            all_steps=self.steps,
            explored_steps=self.explored,
            exploration_share=self.share,
            generation=generation,
            live=True,
            trial=trial,
            generated=self.tokens,
            prompt=0,
            preemptions=0,
            latency_sum=self.latency_sum,
            latency_count=self.latency_count,
            first_tokens=0,
            drafts=self.drafts,
            drafted_tokens=sum(self.drafted),
            accepted_tokens=sum(self.accepted),
            running=running,
            waiting=waiting,
        )
