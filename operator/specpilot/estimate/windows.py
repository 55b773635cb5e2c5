"""What happened between two readings of one engine's counters, or why that cannot be said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from specpilot.estimate import latency
from specpilot.estimate.constants import CHURN_STEPS, LONGEST_WINDOW
from specpilot.estimate.counters import Cell, Counters, increase
from specpilot.estimate.discards import Discard, Discarded
from specpilot_engine.protocol import exported_cells


@dataclass(frozen=True, slots=True)
class Window:
    """Counter differences of one engine's life.

    `cells` are clean decode steps by (depth, bucket's upper edge), `drafted` and `accepted` counts by
    0-based position. Where the engine package's series are missing, or know no clean step among very many, there is
    one cell, made of the request-weighted means that vLLM's own series give.
    """

    life: str
    start: float
    end: float
    cells: Mapping[tuple[int, int], Cell] = field(default_factory=dict)
    drafted: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    context: float | None = None  # mean tokens of context per request in clean steps
    generated: float | None = None  # tokens

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
        generated=increase(before.generated, after.generated),
    )
    if cells:
        return window
    steps = increase(before.all_steps, after.all_steps)
    trimmed = increase(before.trimmed_rows, after.trimmed_rows)
    # Where a prompt is in every step, waiting for one without is in vain. Of cut drafts and of depths that alternate
    # vLLM's own series know no step time and no acceptance, however long.
    in_vain = (
        steps is not None and steps >= CHURN_STEPS and not trimmed and latency.of_one_depth(before, after)
    )
    if steps is None or in_vain:
        return _from_latency(window, before, after)
    if not steps:
        return Discarded(Discard.IDLE, f"no decoding in {window.seconds:.0f} s")
    text = f"none of {steps:.0f} steps was a clean decode step"
    if trimmed:
        text += f" in which all drafts were verified: {trimmed:.0f} rows were left out"
    return Discarded(Discard.NOTHING_CLEAN, text)


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


def waiting(before: Counters, after: Counters) -> Counters | None:
    """`before` for a window that is to begin there and end later than `after`, which is no end of one. None where
    nothing was decoded since the look before `after`: a window over idle time would count it as time with traffic.
    The same reading once more (it was not scraped anew) says nothing of that.

    What `after` lists and `before` knows nothing of counts from `after` on, or no later reading would find a
    baseline for it.
    """
    at, steps = before.waited or (before.at, math.nan)
    if after.at <= at:
        return before
    if after.all_steps == steps:
        return None
    before = replace(before, waited=(after.at, after.all_steps or 0.0))
    known = before.cells.keys() | before.hidden.keys()
    new = {key: cell for key, cell in after.cells.items() if key not in known}
    return before if before.whole else replace(before, hidden={**before.hidden, **new})


def _unrelated(before: Counters, after: Counters, longest: float) -> Discarded | None:
    if before.life != after.life:
        return Discarded(Discard.OTHER_LIFE, f"{after.life} is not the engine life of {before.life}")
    if not (math.isfinite(before.at) and math.isfinite(after.at)):
        return Discarded(Discard.NOT_A_NUMBER, "a reading has no time")
    if after.clock > before.clock:
        return Discarded(Discard.CLOCK_SET, "the clock was set between the readings")
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
    taken, told = increase(before.all_steps, after.all_steps), sum(d.steps for d in deltas.values())
    if taken is None or told <= taken + 1:  # a reading may fall into a step
        return deltas
    return {key: delta for key, delta in deltas.items() if key in before.cells}


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
        tokens = increase(before.context_tokens, after.context_tokens) if same else None
    return tokens / requests if tokens and tokens > 0 else None


def _from_latency(window: Window, before: Counters, after: Counters) -> Window | Discarded:
    """Fill in what vLLM's own series tell."""
    cells = latency.cells(before, after)
    if isinstance(cells, Discarded):
        return cells
    known = any(window.drafted)
    drafted, accepted = (window.drafted, window.accepted) if known else latency.positions(before, after)
    return replace(window, cells=cells, drafted=drafted, accepted=accepted)
