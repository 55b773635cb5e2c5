"""What the status of a SpeculativeDeployment says, and which of its changes are worth an event. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from specpilot.api import status as api
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.vocabulary import Condition, Reason
from specpilot.control.acknowledge import Acknowledged
from specpilot.control.conditions import Facts, assess
from specpilot.control.profile_choice import Choice
from specpilot.decide.arm import SCHEDULE, Arm, Kind
from specpilot.plan.labels import selector_text
from specpilot_engine.protocol import Schedule, Step

Body = dict[str, Any]

# Reasons that a person should be warned of; their going away is told as well, normally.
_WARNINGS = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.NOT_SUPPORTED,
        Reason.INVALID_POD_TEMPLATE,
        Reason.PODS_REFUSED,
        Reason.APPLY_FAILED,
        Reason.INTERNAL_ERROR,
        Reason.IMAGE_PULL_FAILED,
        Reason.CRASH_LOOPING,
        Reason.UNSCHEDULABLE,
        Reason.DEADLINE_EXCEEDED,
        Reason.NO_DRAFTS,
        Reason.LIVE_TUNING_OFF,
        Reason.PROFILE_FAILED,
        Reason.PROFILE_INCOMPLETE,
        Reason.PROFILE_MISMATCH,
        Reason.PROFILE_NOT_FOUND,
        Reason.FALLBACK_SCRAPING,
        Reason.METRICS_UNAVAILABLE,
        Reason.UNKNOWN_ENDPOINT,
        Reason.ARM_FAILED,
    }
)
_TOLD = (
    Condition.READY,
    Condition.DEGRADED,
    Condition.SPECULATING,
    Condition.PROFILED,
    Condition.METRICS_AVAILABLE,
)
# What another version of the operator said may stand while nothing else is known.
_WORDS = frozenset(Reason)
# Part of every rollout, or no news: what a schedule change says stands in its own event.
_UNTOLD = frozenset({Reason.PODS_NOT_READY, Reason.ROLLING_OUT, Reason.DRAFTING, Reason.DEPTH_ZERO})

Told = tuple[Literal["Normal", "Warning"], Reason, str]


def status_of(
    sd: SpeculativeDeployment,
    facts: Facts,
    spoken: tuple[Schedule, Acknowledged] | None,
    choice: Choice,
    decision: api.LastDecision | None,
    now: str,
    arm: Arm = SCHEDULE,
    told: api.ArmStatus | None = None,
) -> api.SpeculativeDeploymentStatus:
    """`spoken`: the schedule wanted and what engines said to it, None where there is no drafter; `decision`
    None where nothing new was decided; `arm` is in force, and `told` what there is to say of it. What is not known (yet) stays as it was."""
    before = sd.status
    rollout = facts.rollout
    return api.SpeculativeDeploymentStatus(
        observed_generation=facts.generation,
        conditions=assess(facts, before.conditions, now),
        replicas=rollout.total,
        ready_replicas=rollout.ready,
        ready=f"{rollout.ready}/{rollout.wanted}",
        selector=selector_text(sd),
        speculation=_speculation(*spoken, before.speculation, arm) if spoken else None,
        arm=told,
        profile=_profile(choice),
        last_decision=decision or before.last_decision,
    )


def refused_status(
    before: api.SpeculativeDeploymentStatus, facts: Facts, now: str
) -> api.SpeculativeDeploymentStatus:
    """Of an object that cannot be read: all that is served still is, and only the conditions say otherwise."""
    rollout = facts.rollout
    return before.model_copy(
        update={
            "observed_generation": facts.generation,
            "conditions": assess(facts, before.conditions, now),
            "replicas": rollout.total,
            "ready_replicas": rollout.ready,
            "ready": f"{rollout.ready}/{rollout.wanted}",
        }
    )


def announcements(before: Sequence[api.Condition], after: Sequence[api.Condition]) -> list[Told]:
    """Events for what changed between two lists of conditions."""
    known = {c.type: c for c in before}
    told: list[Told] = []
    for condition in after:
        if condition.reason not in _WORDS or condition.type not in _TOLD or condition.status == "Unknown":
            continue
        old, reason = known.get(condition.type), Reason(condition.reason)
        if reason in _UNTOLD:
            continue
        if old is not None and old.reason == condition.reason:
            continue
        if reason is Reason.AS_EXPECTED and old is None:
            continue
        kind: Literal["Normal", "Warning"] = "Warning" if reason in _WARNINGS else "Normal"
        told.append((kind, reason, condition.message or f"{condition.type} is {condition.status}"))
    return told


def last_decision(
    reason: Reason,
    message: str,
    predicted: float | None,
    measured: tuple[float, float, float] | None,
    now: str,
) -> api.LastDecision:
    """Gains are shares: predicted, and (low, mean, high) as measured; `now` in RFC 3339."""
    low, mean, high = (f"{gain:.3f}" for gain in measured) if measured else (None, None, None)
    foreseen = None if predicted is None else f"{predicted:.3f}"
    return api.LastDecision(
        time=now,
        reason=reason,
        message=message,
        predicted_gain=foreseen,
        measured_gain=mean,
        measured_interval=f"{low} to {high}" if measured else None,
        gain=mean or foreseen,
    )


def summary(steps: Sequence[Step]) -> str:
    """Depths by rising load: 7,3,1."""
    return ",".join(str(step.tokens) for step in steps)


def _speculation(
    schedule: Schedule, acknowledged: Acknowledged, before: api.SpeculationStatus | None, arm: Arm
) -> api.SpeculationStatus:
    # vLLM does not start where it cannot verify adaptively: engines at this depth do.
    adaptive = arm.kind is Kind.ADAPTIVE
    desired = api.DesiredSpeculation(
        generation=schedule.generation, schedule=_steps(schedule.steps), adaptive=adaptive
    )
    effective = _effective(acknowledged, adaptive)
    if effective is None and acknowledged.ready and before is not None:
        effective = before.effective
    steps = effective.schedule if effective and effective.schedule else desired.schedule
    return api.SpeculationStatus(
        desired=desired, effective=effective, summary=",".join(str(step.tokens) for step in steps)
    )


def _effective(acknowledged: Acknowledged, adaptive: bool) -> api.EffectiveSpeculation | None:
    """The newest that a ready pod runs; None while none has said."""
    running = [a for a in acknowledged.answers if a.generation is not None]
    if not running:
        return None
    newest = max(running, key=lambda answer: answer.generation or 0)
    return api.EffectiveSpeculation(
        generation=newest.generation or 0,
        schedule=_steps(newest.schedule),
        adaptive=adaptive and acknowledged.current > 0,
        acknowledged=acknowledged.current,
        pods=f"{acknowledged.current}/{acknowledged.ready}",
    )


def _steps(steps: Sequence[Step]) -> list[api.ScheduleStep]:
    return [api.ScheduleStep(up_to=step.up_to, tokens=step.tokens) for step in steps]


def _profile(choice: Choice) -> api.ProfileStatus | None:
    profile = choice.profile
    if profile is None:
        return None
    return api.ProfileStatus(
        name=profile.metadata.name,
        fingerprint=profile.spec.key,
        measured_at=profile.status.measured_at,
        progress=f"{len(profile.spec.points)}/{profile.spec.total}",
    )
