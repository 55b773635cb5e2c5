"""Samples, from a scrape's text or a Prometheus result, to the Counters of one engine.

A value that cannot be true (NaN, infinite, negative) is absent, and so is every sum or cell that it
would have been part of: a partial sum looks like a counter that went back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from specpilot.estimate.counters import Cell, Counters, TrialCount
from specpilot_engine import protocol
from specpilot_engine.protocol import BUCKETS, MAX_TOKENS, ModelShape, Pairs, parse_shape

# Series that stand for one number; with data parallelism each engine has its own, and they are summed.
_SUMS = {
    protocol.M_ALL_STEPS: "all_steps",
    protocol.M_EXPLORED_STEPS: "explored_steps",
    protocol.M_CONTEXT: "context_tokens",
    protocol.M_ROWS_TRIMMED: "trimmed_rows",
    "vllm:generation_tokens_total": "generated",
    "vllm:prompt_tokens_total": "prompt",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:inter_token_latency_seconds_sum": "latency_sum",
    "vllm:inter_token_latency_seconds_count": "latency_count",
    "vllm:time_to_first_token_seconds_count": "first_tokens",
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "drafted_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
}
_CELLS = {
    protocol.M_STEPS: "steps",
    protocol.M_SECONDS: "seconds",
    protocol.M_REQUESTS: "requests",
    protocol.M_EMITTED: "emitted",
    protocol.M_CONTEXT: "context",
}
_POSITIONS = {protocol.M_DRAFTED: "drafted", protocol.M_ACCEPTED: "accepted"}
_STATES = (protocol.M_LIVE, protocol.M_GENERATION, protocol.M_EXPLORATION, protocol.M_SHAPE)
_TRIAL = (
    protocol.M_TRIAL_PAIRS,
    protocol.M_TRIAL_GENERATION,
    protocol.M_TRIAL_GAIN,
    protocol.M_TRIAL_SQUARES,
    protocol.M_TRIAL_RUNNING,
)

# Of the engine package's port, and of vLLM's own.
ENGINE_SERIES = tuple(
    n for n in (*_SUMS, *_CELLS, *_POSITIONS, *_STATES, *_TRIAL) if n.startswith("specpilot_")
)
VLLM_SERIES = tuple(n for n in _SUMS if n.startswith("vllm:"))
SERIES = (*ENGINE_SERIES, *VLLM_SERIES)
_WANTED = frozenset(SERIES)
_DIGITS = 9  # of a depth, batch or position


class Sample(NamedTuple):
    """One series' value."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse_text(text: str) -> list[Sample]:
    """The samples of a text exposition that matter here.

    Raises ValueError when a line of them is not in the format. Everything else (vLLM exports some
    thousand lines of histograms) is left out before parsing, which is what takes the time.
    """
    lines = [line for line in text.splitlines() if _name(line) in _WANTED]
    return [
        Sample(s.name, s.labels, s.value)
        for family in text_string_to_metric_families("\n".join(lines) + "\n")
        for s in family.samples
    ]


def _name(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]


def to_counters(life: str, at: float, samples: Iterable[Sample]) -> Counters | None:
    """Counters at one moment, or None when no wanted sample with a value is there.

    `samples` of several engines in one pod (label `engine`) are summed; the schedule generation is
    then the oldest, live tuning is on only where all have it.
    """
    tally = _Tally()
    for sample in samples:
        tally.add(sample)
    return tally.counters(life, at) if tally.seen else None


class _Tally:
    """Adds up samples. A NaN stays NaN through every sum, so that one check at the end suffices."""

    def __init__(self) -> None:
        self.seen = False
        self.sums: dict[str, float] = {}
        self.cells: dict[tuple[int, int], dict[str, float]] = {}
        self.positions: dict[str, dict[int, float]] = {"drafted": {}, "accepted": {}}
        self.generations: list[float] = []
        self.shares: list[float] = []
        self.live: list[float] = []
        self.reasons: list[str] = []
        self.shapes: list[ModelShape | None] = []
        self.trial: dict[str, list[float]] = {name: [] for name in _TRIAL}

    def add(self, sample: Sample) -> None:
        name, labels, value = sample
        if name in self.trial and math.isfinite(value):
            self.trial[name].append(value)  # a sum of logs may be negative
        value = _true(value)
        self.seen = self.seen or (name in _WANTED and not math.isnan(value))
        if field := _SUMS.get(name):
            self.sums[field] = self.sums.get(field, 0.0) + value
        if field := _CELLS.get(name):
            k, edge = _index(labels, "k"), _index(labels, "batch")
            # Others are no cells of an engine package, and what is remembered of cells is bounded by these.
            if k is not None and k <= MAX_TOKENS and edge in BUCKETS:
                cell = self.cells.setdefault((k, edge), {})
                cell[field] = cell.get(field, 0.0) + value
        elif field := _POSITIONS.get(name):
            at = _index(labels, "position")
            if at is not None and at < MAX_TOKENS:
                values = self.positions[field]
                values[at] = values.get(at, 0.0) + value
        elif name == protocol.M_GENERATION:
            self.generations.append(value)
        elif name == protocol.M_EXPLORATION:
            self.shares.append(value)
        elif name == protocol.M_SHAPE:
            self.shapes.append(parse_shape(labels))
        elif name == protocol.M_LIVE:
            self.live.append(value)
            if value != 1 and labels.get("reason"):
                self.reasons.append(labels["reason"])

    def counters(self, life: str, at: float) -> Counters:
        generation = _known(self.generations, min)
        live = _known(self.live, min)
        return Counters(
            life=life,
            at=at,
            cells={key: Cell(**cell) for key, cell in sorted(self.cells.items()) if _whole(cell)},
            drafted=_row(self.positions["drafted"]),
            accepted=_row(self.positions["accepted"]),
            exploration_share=_known(self.shares, max),
            generation=None if generation is None else int(generation),
            live=None if live is None else live == 1,
            live_reason="; ".join(sorted(set(self.reasons))),
            trial=self._trial(),
            shape=self.shapes[0] if len(set(self.shapes)) == 1 else None,
            hidden={},
            whole=False,
            waited=None,
            clock=0,
            **{field: value for field, value in self.sums.items() if not math.isnan(value)},
        )

    def _trial(self) -> TrialCount | None:
        """Engines of one pod count together while they try the same generation, all of them."""
        counts, generations, totals, squares, running = (self.trial[name] for name in _TRIAL)
        if not counts:
            return None
        known = {len(generations), len(totals), len(squares), len(running)} == {len(counts)}
        if not known or len(set(generations)) != 1:
            return TrialCount()
        pairs = Pairs(sum(counts), sum(totals), sum(squares))
        return TrialCount(int(generations[0]), pairs, any(running))


def _true(value: float) -> float:
    return value if math.isfinite(value) and value >= 0 else math.nan


def _index(labels: Mapping[str, str], name: str) -> int | None:
    text = labels.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def _whole(cell: Mapping[str, float]) -> bool:
    needed = _CELLS.keys() - {protocol.M_CONTEXT}
    return all(_CELLS[n] in cell for n in needed) and not any(math.isnan(v) for v in cell.values())


def _row(values: Mapping[int, float]) -> tuple[float, ...]:
    """By position up to the first that is missing: a hole cannot be told from a zero afterwards."""
    row: list[float] = []
    while not math.isnan(value := values.get(len(row), math.nan)):
        row.append(value)
    return tuple(row)


def _known(values: Sequence[float], pick: Callable[[Sequence[float]], float]) -> float | None:
    return pick(values) if values and not any(math.isnan(v) for v in values) else None
