"""What one engine has counted so far: the only shape in which measurements enter the decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specpilot_engine.protocol import ModelShape, Pairs


@dataclass(frozen=True, slots=True)
class Cell:
    """Clean decode steps at one (depth, batch bucket), cumulative."""

    steps: float
    seconds: float
    requests: float  # running requests summed over the steps
    emitted: float  # tokens
    context: float = 0.0  # context tokens summed over steps and requests; 0 where not exported by cell


@dataclass(frozen=True, slots=True)
class TrialCount:
    """How far one engine's trial has come; generation 0 where it has none."""

    generation: int = 0
    pairs: Pairs = field(default_factory=Pairs)
    running: bool = False  # the two schedules alternate still


@dataclass(frozen=True, slots=True)
class Counters:
    """Cumulative counters of one engine at one moment; None where the engine does not export it.

    `life` changes whenever counters may start again (another pod, a restarted container): a window
    never spans two lives. `at` is when the values were true, in epoch seconds.
    """

    life: str
    at: float
    # from the engine package
    cells: Mapping[tuple[int, int], Cell] = field(default_factory=dict)  # (depth, bucket's upper edge)
    drafted: tuple[float, ...] = ()  # by 0-based position
    accepted: tuple[float, ...] = ()
    context_tokens: float | None = None  # summed over all cells; falls when one leaves the export
    all_steps: float | None = None
    explored_steps: float | None = None
    exploration_share: float | None = None
    trimmed_rows: float | None = None  # drafts that were not verified; None without a row budget
    generation: int | None = None  # of the schedule in force
    live: bool | None = None
    live_reason: str = ""
    trial: TrialCount | None = None  # None: this engine cannot compare schedules
    shape: ModelShape | None = None  # of its model; None where the engine package does not understand it
    # vLLM's own
    generated: float | None = None  # vllm:generation_tokens_total
    prompt: float | None = None
    preemptions: float | None = None
    latency_sum: float | None = None  # vllm:inter_token_latency_seconds
    latency_count: float | None = None
    first_tokens: float | None = None  # vllm:time_to_first_token_seconds_count
    drafts: float | None = None  # vllm:spec_decode_num_drafts_total
    drafted_tokens: float | None = None
    accepted_tokens: float | None = None
    running: float | None = None
    waiting: float | None = None
    # remembered
    # Of cells that this reading does not list, what earlier readings of the same life told last; `whole`: there are
    # no others (windows.remember).
    hidden: Mapping[tuple[int, int], Cell] = field(default_factory=dict)
    whole: bool = False
    # `at` and all_steps of the latest reading that ended no window (windows.waiting).
    waited: tuple[float, float] | None = None
    # how it was dated
    clock: int = 0


def increase(before: float | None, after: float | None) -> float | None:
    """What one counter rose by; None where either reading lacks it."""
    return None if before is None or after is None else after - before
