"""What happened between two readings of one engine's counters, or why that cannot be said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from specpilot.estimate.constants import LONGEST_WINDOW, PROMPT_HEAVY
from specpilot.estimate.counters import Cell, Counters
from specpilot_engine.protocol import bucket, exported_cells


class Discard(StrEnum):
    """Why two readings make no window."""

    OTHER_LIFE = "OtherLife"
    CLOCK_BACK = "ClockBack"
    GAP = "Gap"
    NOT_A_NUMBER = "NotANumber"
    RESET = "Reset"
    IDLE = "Idle"
    PROMPT_HEAVY = "PromptHeavy"
    PREEMPTED = "Preempted"
    NOTHING_CLEAN = "NothingClean"


@dataclass(frozen=True, slots=True)
class Discarded:
    """No window: `message` is one sentence with the numbers."""

    reason: Discard
    message: str


@dataclass(frozen=True, slots=True)
class Window:
    """Counter differences of one engine's life.

    `cells` are clean decode steps by (depth, bucket's upper edge), `drafted` and `accepted` counts by
    0-based position. `from_latency`: the engine package's series were missing, and there is one cell,
    made of the request-weighted means that vLLM's own series give.
    """

    life: str
    start: float
    end: float
    cells: Mapping[tuple[int, int], Cell] = field(default_factory=dict)
    drafted: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    context: float | None = None  # mean tokens of context per request in clean steps
    generated: float | None = None  # tokens
    from_latency: bool = False

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.end - self.start

    @property
    def steps(self) -> float:
        """Clean decode steps."""
        return sum(c.steps for c in self.cells.values())

    @property
    def goodput(self) -> float | None:
        """Tokens generated per second, prefill and idle time included."""
        return None if self.generated is None else self.generated / self.seconds


def between(before: Counters, after: Counters, *, longest: float = LONGEST_WINDOW) -> Window | Discarded:
    """The window from `before` to `after`, or why there is none. Never raises.

    Engines list their most recently used cells only. Where `before` does not list one, what it remembers of it is
    the baseline; where it knows nothing of it, the cell is skipped, unless `before` leaves no room for others than it
    knows: then it counts from zero. Where all would then hold more steps than the engine took, some of these are of an
    earlier time (they were taken and displaced between two looks), and none of them counts.
    """
    trouble = _unrelated(before, after, longest) or _impossible(before, after)
    if trouble:
        return trouble
    cells = _cells(before, after)
    if isinstance(cells, Discarded):
        return cells
    drafted, accepted = _positions(before, after)
    window = Window(
        life=after.life,
        start=before.at,
        end=after.at,
        cells=cells,
        drafted=drafted,
        accepted=accepted,
        context=_context(before, after, cells),
        generated=_delta(before.generated, after.generated),
    )
    if cells:
        return window
    if trimmed := (after.trimmed_rows or 0.0) - (before.trimmed_rows or 0.0):
        # What vLLM counts then is of no depth, and acceptance among what was verified is too good.
        message = f"no step was timed in which all drafts were verified: {trimmed:.0f} rows were left out"
        return Discarded(Discard.NOTHING_CLEAN, message)
    return _from_latency(window, before, after)


def remember(before: Counters | None, after: Counters) -> Counters:
    """`after` with what is known of cells that it does not list, from the reading `before` of the same life.

    A load that comes back brings cells back that were not listed meanwhile: without their baseline the first look at
    it would teach nothing, and what exploring showed in it would be lost.
    """
    if after.all_steps is None:
        return after  # nothing was heard of the engine package: what it took meanwhile is of no window
    whole = after.all_steps == 0 or len(after.cells) < exported_cells(len(after.drafted))
    if before is None or before.life != after.life:
        return replace(after, whole=whole)
    known = {**before.hidden, **before.cells}
    hidden = {key: cell for key, cell in known.items() if key not in after.cells}
    return replace(after, hidden=hidden, whole=whole or before.whole)


def waiting(before: Counters, after: Counters) -> Counters:
    """`before` for a window that is to begin there and end later than `after`, which is no end of one.

    What `after` lists and `before` knows nothing of counts from `after` on, or no later reading would find a
    baseline for it.
    """
    known = before.cells.keys() | before.hidden.keys()
    new = {key: cell for key, cell in after.cells.items() if key not in known}
    return before if before.whole else replace(before, hidden={**before.hidden, **new})


def _unrelated(before: Counters, after: Counters, longest: float) -> Discarded | None:
    if before.life != after.life:
        return Discarded(Discard.OTHER_LIFE, f"{after.life} is not the engine life of {before.life}")
    if not (math.isfinite(before.at) and math.isfinite(after.at)):
        return Discarded(Discard.NOT_A_NUMBER, "a reading has no time")
    seconds = after.at - before.at
    if seconds <= 0:
        return Discarded(Discard.CLOCK_BACK, f"the second reading is {-seconds:.1f} s before the first")
    if seconds > longest:
        return Discarded(Discard.GAP, f"{seconds:.0f} s between readings is more than {longest:.0f} s")
    return None


# What only grows while an engine lives, the cells and positions aside.
_MONOTONE = (
    "all_steps",
    "explored_steps",
    "trimmed_rows",
    "generated",
    "prompt",
    "preemptions",
    "latency_sum",
    "latency_count",
    "first_tokens",
    "drafts",
    "drafted_tokens",
    "accepted_tokens",
)


def _impossible(before: Counters, after: Counters) -> Discarded | None:
    for counters in (before, after):
        for name, value in _values(counters):
            if not math.isfinite(value) or value < 0:
                return Discarded(Discard.NOT_A_NUMBER, f"{name} is {value}")
    for name in _MONOTONE:
        a, b = getattr(before, name), getattr(after, name)
        if a is not None and b is not None and b < a:
            return Discarded(Discard.RESET, f"{name} went back from {a:g} to {b:g}")
    for name in ("drafted", "accepted"):
        for j, (a, b) in enumerate(zip(getattr(before, name), getattr(after, name), strict=False)):
            if b < a:
                return Discarded(Discard.RESET, f"{name} at position {j} went back from {a:g} to {b:g}")
    return None


def _values(counters: Counters) -> Iterator[tuple[str, float]]:
    for name in (*_MONOTONE, "context_tokens", "running", "waiting"):
        value = getattr(counters, name)
        if value is not None:
            yield name, value
    for name in ("drafted", "accepted"):
        for j, value in enumerate(getattr(counters, name)):
            yield f"{name} at position {j}", value
    for (k, edge), cell in counters.cells.items():
        for name in ("steps", "seconds", "requests", "emitted", "context"):
            yield f"{name} at depth {k}, batch {edge}", getattr(cell, name)


def _cells(before: Counters, after: Counters) -> dict[tuple[int, int], Cell] | Discarded:
    # Engines list as many cells at any time: fewer than later are all there were, if they were heard.
    heard = before.all_steps is not None
    complete = heard and (before.whole or before.all_steps == 0 or len(before.cells) < len(after.cells))
    known = {**before.hidden, **before.cells}
    deltas = {}
    for key, cell in after.cells.items():
        base = known.get(key)
        if base is None:
            if not complete:
                continue
            base = Cell(0.0, 0.0, 0.0, 0.0)
        delta = Cell(
            cell.steps - base.steps,
            cell.seconds - base.seconds,
            cell.requests - base.requests,
            cell.emitted - base.emitted,
            cell.context - base.context,
        )
        if min(delta.steps, delta.seconds, delta.requests, delta.emitted, delta.context) < 0:
            return Discarded(Discard.RESET, f"the steps at depth {key[0]}, batch {key[1]} went back")
        # A cell read while its step was being counted has time without steps, or the reverse.
        if delta.steps >= 1 and delta.seconds > 0 and delta.requests >= delta.steps:
            deltas[key] = delta
    taken, told = _delta(before.all_steps, after.all_steps), sum(d.steps for d in deltas.values())
    if taken is None or told <= taken + 1:  # a reading may fall into a step
        return deltas
    return {key: delta for key, delta in deltas.items() if key in before.cells}


def _delta(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _positions(before: Counters, after: Counters) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Drafted and accepted by position; accepted is clipped, the two are not read in the same instant."""
    columns = (before.drafted, before.accepted, after.drafted, after.accepted)
    if len({len(c) for c in columns}) != 1:
        return (), ()
    drafted = tuple(b - a for a, b in zip(before.drafted, after.drafted, strict=True))
    accepted = (b - a for a, b in zip(before.accepted, after.accepted, strict=True))
    return drafted, tuple(min(a, d) for a, d in zip(accepted, drafted, strict=True))


def _context(before: Counters, after: Counters, cells: Mapping[tuple[int, int], Cell]) -> float | None:
    requests = sum(c.requests for c in cells.values())
    if not requests:
        return None
    tokens: float | None = sum(c.context for c in cells.values())
    if not tokens:
        # The total is over the cells exported at the moment: comparable only between equal sets.
        same = before.cells.keys() == after.cells.keys()
        tokens = _delta(before.context_tokens, after.context_tokens) if same else None
    return tokens / requests if tokens and tokens > 0 else None


def _from_latency(window: Window, before: Counters, after: Counters) -> Window | Discarded:
    """Fill in what vLLM's own series tell: one latency observation per request and engine output."""
    steps = _delta(before.all_steps, after.all_steps)
    outputs = _delta(before.latency_count, after.latency_count)
    waited = _delta(before.latency_sum, after.latency_sum)
    if not outputs or not waited:
        if steps:
            return Discarded(Discard.NOTHING_CLEAN, f"none of {steps:.0f} steps was a clean decode step")
        return Discarded(Discard.IDLE, f"no decoding in {window.seconds:.0f} s")
    preempted = _delta(before.preemptions, after.preemptions) or 0.0
    if preempted:
        return Discarded(Discard.PREEMPTED, f"{preempted:.0f} preemptions lengthened the steps between")
    generated = window.generated or 0.0
    prompt = _delta(before.prompt, after.prompt) or 0.0
    if prompt > PROMPT_HEAVY * generated:
        return Discarded(
            Discard.PROMPT_HEAVY,
            f"{prompt:.0f} prompt tokens for {generated:.0f} generated ones: the steps were prefill as well",
        )
    first = _delta(before.first_tokens, after.first_tokens) or 0.0
    batch = waited / window.seconds
    drafts = _delta(before.drafts, after.drafts)
    depth = round((_delta(before.drafted_tokens, after.drafted_tokens) or 0.0) / drafts) if drafts else 0
    drafted, accepted = window.drafted, window.accepted
    if not any(drafted) and depth:
        drafted, accepted = _from_totals(drafts or 0.0, depth, before, after)
    # Each request observes each step once: outputs are steps times the batch.
    cell = Cell(outputs / max(batch, 1.0), waited / max(batch, 1.0), outputs, max(generated - first, 0.0))
    cells = {(depth, bucket(max(round(batch), 1))): cell} if cell.steps >= 1 else {}
    return replace(window, cells=cells, drafted=drafted, accepted=accepted, from_latency=True)


def _from_totals(
    drafts: float, depth: int, before: Counters, after: Counters
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Drafted and accepted by position from totals: as if each slot were accepted with one probability.

    Only the mean is known, so deeper slots are a guess; the first ones are about right.
    """
    accepted = _delta(before.accepted_tokens, after.accepted_tokens)
    if accepted is None:
        return (), ()
    mean = min(accepted / drafts, depth * 0.999)
    low, high = 0.0, 1.0
    for _ in range(40):
        q = (low + high) / 2
        low, high = (q, high) if sum(q**j for j in range(1, depth + 1)) < mean else (low, q)
    return (drafts,) * depth, tuple(drafts * low**j for j in range(1, depth + 1))
