"""Facts → conditions. Pure: policies in ordered chains, the first that has something to say wins.

A policy that cannot know (no counters yet, a freshly started operator) says nothing, and the condition
stays as it was: silence must neither look like a fault nor rewrite a status.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from specpilot.api import status as api
from specpilot.api.vocabulary import Condition, Reason
from specpilot.control.rollout import Rollout, Trouble

Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Speculation:
    """What the engines really do; None where it is not known (yet)."""

    drafter: bool = True  # False: the spec has none
    depth: int | None = None  # deepest step of the schedule in force
    drafted: bool | None = None  # whether drafts were counted where the schedule wants some
    live: bool | None = None  # False: an engine runs as stock vLLM
    live_reason: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A part's own word on its condition: the reason decides the status."""

    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the conditions of one SpeculativeDeployment depend on."""

    generation: int
    rollout: Rollout
    problem: Trouble | None = None  # what kept the plan from being made or applied
    complaints: tuple[Trouble, ...] = ()  # parts of the spec that were left out of what was applied
    warnings: str = ""  # what is served, but not quite as written
    waiting_for_profile: bool = False
    speculation: Speculation = Speculation()
    profile: Finding | None = None
    tuning: Finding | None = None
    metrics: Finding | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    status: Status
    reason: Reason
    message: str = ""


Policy = Callable[[Facts], Verdict | None]

# Which status a reason means, for the conditions whose reason another part finds.
_STATUS: dict[Reason, Status] = {
    Reason.MEASURED: "True",
    Reason.REUSED: "True",
    Reason.PROFILING: "False",
    Reason.PROFILING_DISABLED: "False",
    Reason.PROFILE_INCOMPLETE: "False",
    Reason.PROFILE_FAILED: "False",
    Reason.PROFILE_MISMATCH: "False",
    Reason.PROFILE_NOT_FOUND: "False",
    Reason.HOLDING: "True",
    Reason.VERIFYING: "True",
    Reason.DEPTH_ZERO: "True",
    Reason.WAITING_FOR_EVIDENCE: "False",
    Reason.AWAITING_ACKNOWLEDGEMENT: "False",
    Reason.OBSERVING: "False",
    Reason.RECOMMENDED: "False",
    Reason.LIVE_TUNING_OFF: "False",
    Reason.NOT_SUPPORTED: "False",
    Reason.APPLY_FAILED: "False",
    Reason.INTERNAL_ERROR: "False",
    Reason.PROMETHEUS: "True",
    Reason.SCRAPING: "True",
    Reason.FALLBACK_SCRAPING: "True",
    Reason.METRICS_UNAVAILABLE: "False",
    Reason.UNKNOWN_ENDPOINT: "False",
}


def _no_plan(f: Facts) -> Verdict | None:
    return Verdict("True", f.problem.reason, f.problem.message) if f.problem else None


def _troubled(f: Facts) -> Verdict | None:
    troubles = (*f.rollout.troubles, *f.complaints)
    if not troubles:
        return None
    return Verdict("True", troubles[0].reason, "; ".join(t.message for t in troubles))


def _stuck(f: Facts) -> Verdict | None:
    exceeded = f.rollout.deadline_exceeded
    return Verdict("True", Reason.DEADLINE_EXCEEDED, exceeded) if exceeded else None


def _as_expected(f: Facts) -> Verdict:
    return Verdict("False", Reason.AS_EXPECTED, f.warnings)


def _held(f: Facts) -> Verdict | None:
    if not f.waiting_for_profile:
        return None
    return Verdict("False", Reason.WAITING_FOR_PROFILE, "serving starts once the profile is measured")


def _scaled_to_zero(f: Facts) -> Verdict | None:
    return Verdict("False", Reason.SCALED_TO_ZERO, "spec.replicas is 0") if f.rollout.wanted == 0 else None


def _serving(f: Facts) -> Verdict | None:
    r = f.rollout
    if not r.exists or r.ready < r.wanted:
        return None
    return Verdict("True", Reason.SERVING, "every wanted pod of this generation serves")


def _not_applied(f: Facts) -> Verdict | None:
    if f.problem is None:
        return None
    r = f.rollout
    return Verdict(
        "False", f.problem.reason, f"this spec is not served; {r.ready} pods of an earlier one are"
    )


def _rolling_ready(f: Facts) -> Verdict | None:
    r = f.rollout
    if r.complete or not r.exists:
        return None
    return Verdict("False", Reason.ROLLING_OUT, f"{r.ready} of {r.wanted} pods of this generation serve")


def _not_ready(f: Facts) -> Verdict:
    return Verdict("False", Reason.PODS_NOT_READY, f"{f.rollout.ready} of {f.rollout.wanted} pods serve")


def _deadline(f: Facts) -> Verdict | None:
    exceeded = f.rollout.deadline_exceeded
    return Verdict("False", Reason.DEADLINE_EXCEEDED, exceeded) if exceeded else None


def _blocked(f: Facts) -> Verdict | None:
    return Verdict("False", f.problem.reason, "the spec is not rolled out") if f.problem else None


def _waits(f: Facts) -> Verdict | None:
    verdict = _held(f)
    return Verdict("True", verdict.reason, verdict.message) if verdict else None


def _rolled_out(f: Facts) -> Verdict | None:
    return Verdict("False", Reason.ROLLED_OUT) if f.rollout.complete else None


def _rolling(f: Facts) -> Verdict:
    r = f.rollout
    message = f"{r.updated} of {r.wanted} pods are of this generation"
    if r.in_turn:
        message += "; each ends before its successor starts, as one more would not fit beside them"
    if r.paused:
        message += "; the Deployment is paused: go on with `kubectl rollout resume deployment`"
    return Verdict("True", Reason.ROLLING_OUT, message)


def _not_live(f: Facts) -> Verdict | None:
    s = f.speculation
    if s.live is not False:
        return None
    detail = f": {s.live_reason}" if s.live_reason else ""
    message = f"the engine keeps its start-up schedule{detail}"
    return Verdict("False" if s.drafted is False else "True", Reason.LIVE_TUNING_OFF, message)


def _no_drafter(f: Facts) -> Verdict | None:
    if f.speculation.drafter:
        return None
    return Verdict("True", Reason.DEPTH_ZERO, "spec.speculation.method is None")


def _depth_zero(f: Facts) -> Verdict | None:
    return (
        Verdict("True", Reason.DEPTH_ZERO, "drafting does not pay at any load")
        if f.speculation.depth == 0
        else None
    )


def _drafting(f: Facts) -> Verdict | None:
    return Verdict("True", Reason.DRAFTING) if f.speculation.drafted else None


def _no_drafts(f: Facts) -> Verdict | None:
    if f.speculation.drafted is not False:
        return None
    return Verdict(
        "False",
        Reason.NO_DRAFTS,
        "there is traffic at a depth above 0, but nothing is drafted: see the engine's log",
    )


def _finding(get: Callable[[Facts], Finding | None]) -> Policy:
    def policy(f: Facts) -> Verdict | None:
        found = get(f)
        return Verdict(_STATUS[found.reason], found.reason, found.message) if found else None

    return policy


CHAINS: dict[Condition, tuple[Policy, ...]] = {
    Condition.READY: (_not_applied, _held, _scaled_to_zero, _serving, _rolling_ready, _not_ready),
    Condition.PROGRESSING: (_blocked, _deadline, _waits, _rolled_out, _rolling),
    Condition.DEGRADED: (_no_plan, _troubled, _stuck, _as_expected),
    Condition.SPECULATING: (_no_drafter, _not_live, _depth_zero, _drafting, _no_drafts),
    Condition.PROFILED: (_finding(lambda f: f.profile),),
    Condition.TUNED: (_finding(lambda f: f.tuning),),
    Condition.METRICS_AVAILABLE: (_finding(lambda f: f.metrics),),
}

# What a condition says while nothing is known and nothing was said before.
_FIRST: dict[Condition, Reason] = {
    Condition.SPECULATING: Reason.NO_TRAFFIC,
    Condition.PROFILED: Reason.WAITING_FOR_EVIDENCE,
    Condition.TUNED: Reason.WAITING_FOR_EVIDENCE,
    Condition.METRICS_AVAILABLE: Reason.WAITING_FOR_EVIDENCE,
}


def assess(facts: Facts, before: Sequence[api.Condition], now: str) -> list[api.Condition]:
    """Conditions in a fixed order; `now` is an RFC 3339 time for those whose status changes."""
    known = {c.type: c for c in before}
    return [_next(condition, facts, known.get(condition), now) for condition in CHAINS]


def _next(type_: Condition, facts: Facts, before: api.Condition | None, now: str) -> api.Condition:
    verdict = next((v for policy in CHAINS[type_] if (v := policy(facts)) is not None), None)
    if verdict is None:
        if before is not None and before.reason == Reason.INTERNAL_ERROR:
            before = None  # met no longer, and nothing else is known yet
        # Its generation stays too: it is not known to hold for a newer one.
        return before or _condition(type_, Verdict("Unknown", _FIRST[type_]), facts.generation, now)
    changed = before is None or before.status != verdict.status
    since = now if changed or before is None else before.last_transition_time
    return _condition(type_, verdict, facts.generation, since)


def _condition(type_: Condition, verdict: Verdict, generation: int, since: str) -> api.Condition:
    return api.Condition(
        type=type_,
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message,
        observed_generation=generation,
        last_transition_time=since,
    )
