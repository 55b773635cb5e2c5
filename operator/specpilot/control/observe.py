"""What one step showed → what the conditions Speculating and Tuned should hear of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specpilot.api.vocabulary import Reason
from specpilot.control.acknowledge import Acknowledged
from specpilot.control.conditions import Finding, Speculation
from specpilot.control.live import Live
from specpilot.control.profile_choice import Choice
from specpilot.control.step import Pod, Taken, first_schedule
from specpilot.decide.settings import Settings
from specpilot.decide.trying import ALTERNATING
from specpilot.estimate.counters import Counters
from specpilot.estimate.windows import Window
from specpilot_engine.protocol import Schedule

UNDRAFTED_TICKS = 2  # in a row before drafts are said to be missing: one may straddle a change
LEAST_STEPS = 16  # clean steps of a window that should have drafted
_OF_MODE = {Reason.OBSERVING: "Observe", Reason.RECOMMENDED: "Recommend"}


def drafting(
    live: Live, taken: Taken, schedule: Schedule, counters: Mapping[Pod, Counters]
) -> tuple[Speculation, int]:
    """(what engines do, ticks in a row without drafts). Without traffic both stay as they were."""
    before = live.speculation
    stock = [c for c in counters.values() if c.live is False]
    known = [c for c in counters.values() if c.live is not None]
    is_live = not stock if known else before.live
    reason = stock[0].live_reason if stock else ""
    windows = taken.windows.values()
    drafted, undrafted = before.drafted, live.undrafted
    if any(_drafts(window) > 0 for window in windows):
        drafted, undrafted = True, 0
    elif any(_should_draft(window, schedule) for window in windows):
        undrafted += 1
        drafted = False if undrafted >= UNDRAFTED_TICKS else drafted
    return Speculation(drafted=drafted, live=is_live, live_reason=reason), undrafted


def tuning(mode: str, taken: Taken, before: Finding | None) -> Finding | None:
    """One word for many kinds of holding still: they change with every tick, and nobody would want a
    status that does. The details of a change stand in lastDecision."""
    decision = taken.decision
    if decision.reason is Reason.VERIFYING or (taken.schedule and taken.schedule.trial):
        return Finding(Reason.VERIFYING, ALTERNATING)
    if before is not None and before.reason in _OF_MODE and _OF_MODE[before.reason] != mode:
        before = Finding(Reason.WAITING_FOR_EVIDENCE)  # it was of another mode
    if mode == "Observe":
        return Finding(Reason.OBSERVING, "spec.tuning.mode is Observe: nothing is changed")
    if mode == "Recommend":
        if decision.steps_changed:
            return Finding(Reason.RECOMMENDED, "a better schedule is known: see lastDecision")
        if before is not None and decision.reason is Reason.WAITING_FOR_EVIDENCE:
            return before
    if decision.reason is Reason.WAITING_FOR_EVIDENCE:
        # After a restart, or while there is no traffic, what was known before still holds.
        return before
    return Finding(Reason.HOLDING)


def confirmed(found: Finding | None, acknowledged: Acknowledged, overdue: bool) -> Finding | None:
    """The finding, unless the engines do not do what was found best. `overdue`: they had their time."""
    stock = next((a for a in acknowledged.answers if not a.live), None)
    if stock is not None:
        detail = f": {stock.reason}" if stock.reason else ""
        return Finding(Reason.LIVE_TUNING_OFF, f"an engine keeps its start-up schedule{detail}")
    if overdue and acknowledged.current < acknowledged.ready:
        wrong = next((f": {a.file_error}" for a in acknowledged.answers if a.file_error), "")
        text = f"{acknowledged.current} of {acknowledged.ready} ready pods run the schedule{wrong}"
        return Finding(Reason.AWAITING_ACKNOWLEDGEMENT, text)
    return found


def from_profile(taken: Taken, choice: Choice | None, to: Settings) -> Taken:
    """The step, or the schedule that a profile suggests where that is all there is to go by."""
    memory = taken.evidence.memory
    if choice is None or choice.active or not choice.points or memory.cost.cells or memory.load.seconds:
        return taken
    schedule = first_schedule(choice.points, to, to.in_force.generation + 1)
    if schedule.steps == to.in_force.steps:
        return taken
    decision = replace(
        taken.decision,
        change=True,
        steps=schedule.steps,
        steps_changed=True,
        reason=Reason.INITIAL,
        message="by the measured step times, before any traffic",
    )
    return replace(taken, decision=decision, schedule=schedule)


def _drafts(window: Window) -> float:
    if window.drafted:
        return window.drafted[0]
    return sum(cell.steps for (depth, _), cell in window.cells.items() if depth > 0)


def _should_draft(window: Window, schedule: Schedule) -> bool:
    """Whether the schedule asks for drafts at the batch sizes that a window has seen."""
    wanted = sum(
        cell.steps
        for cell in window.cells.values()
        if schedule.tokens_at(max(1, round(cell.requests / cell.steps))) > 0
    )
    return wanted >= LEAST_STEPS
