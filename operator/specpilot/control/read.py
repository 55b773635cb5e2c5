"""Bodies → what reconciling and retuning go by. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from specpilot.api import policies
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.status import SpeculativeDeploymentStatus
from specpilot.api.validate import Severity, problems, validate
from specpilot.api.vocabulary import ENGINE_CONTAINER, LABEL_COMPONENT, Reason
from specpilot.control.live import Parsed
from specpilot.control.rollout import Trouble, is_ready
from specpilot.decide.arm import SCHEDULE
from specpilot.plan.labels import SERVING
from specpilot.plan.problems import problems as rendering_problems
from specpilot_engine.protocol import (
    SCHEDULE_KEY,
    Budget,
    Caps,
    Exploration,
    Schedule,
    ScheduleError,
    Step,
    parse_schedule,
)

Body = dict[str, Any]


def parse(body: Body) -> Parsed:
    """The object, or what is wrong with it. What admission refuses may still be here: an object can be
    older than a rule."""
    version = version_of(body)
    try:
        # Without the status: it changes with each of our writes, and must never make a spec unreadable.
        sd = SpeculativeDeployment.parse({k: v for k, v in body.items() if k != "status"})
    except ValidationError as e:
        message = "; ".join(p.message for p in problems(body)) or str(e)
        return Parsed(version, None, Trouble(Reason.INVALID_SPEC, message))
    found, rendering = validate(sd.spec), rendering_problems(sd)
    wrong = [Trouble(p.reason, p.message) for p in policies.NAME if p.violated(sd.metadata.name)]
    wrong += [Trouble(p.reason, p.message) for p in found if p.severity is Severity.ERROR]
    if wrong:
        return Parsed(version, None, Trouble(wrong[0].reason, "; ".join(t.message for t in wrong)))
    return Parsed(
        version,
        sd,
        complaints=tuple(Trouble(p.reason, p.message) for p in rendering if p.severity is Severity.ERROR),
        warnings="; ".join(p.message for p in (*found, *rendering) if p.severity is Severity.WARNING),
    )


def status(body: Body) -> SpeculativeDeploymentStatus:
    """An object's status; an empty one where it is of another version's shape."""
    try:
        return SpeculativeDeploymentStatus.model_validate(body.get("status") or {})
    except ValidationError:
        return SpeculativeDeploymentStatus()


def version_of(body: Body) -> str:
    """Changes with whatever `parse` reads: the spec, and annotations that steer the rendering."""
    meta = body["metadata"]
    return f"{meta.get('generation')}/{meta.get('annotations')}"


def text_in(config_map: Body | None, key: str) -> str | None:
    """What a ConfigMap holds under `key`; None without it, and where somebody put there what is no text."""
    text = ((config_map or {}).get("data") or {}).get(key)
    return text if isinstance(text, str) else None


def schedule_in(config_map: Body | None) -> Schedule | None:
    """The schedule that a ConfigMap holds; None where there is none that an engine would take."""
    text = text_in(config_map, SCHEDULE_KEY)
    try:
        return None if text is None else parse_schedule(text)
    except ScheduleError:
        return None


def last_generation(config_map: Body | None, body: Body) -> int:
    """The highest generation that engines may have seen, also where the ConfigMap was deleted or edited."""
    present = schedule_in(config_map)
    desired = ((body.get("status") or {}).get("speculation") or {}).get("desired") or {}
    return max(present.generation if present else 0, int(desired.get("generation") or 0))


def wanted(status: SpeculativeDeploymentStatus, generation: int, budget: Budget) -> Schedule | None:
    """The depths that were wanted last, as a new generation: what engines go by where somebody has deleted or
    broken their ConfigMap, or put an earlier one back. None where nothing was wanted yet, or of engines that
    go by no schedule."""
    if status.arm is not None and status.arm.in_force != str(SCHEDULE):
        return None
    return _readable(Schedule(generation, _desired(status), Exploration(), budget))


def caps_wanted(status: SpeculativeDeploymentStatus) -> Caps | None:
    """The caps that were wanted last of engines that verify adaptively; None of others."""
    desired = status.speculation.desired if status.speculation else None
    steps = _desired(status)
    found = _readable(Schedule(1, steps, caps=Caps(steps))) if desired and desired.adaptive else None
    return found.caps if found else None


def _desired(status: SpeculativeDeploymentStatus) -> tuple[Step, ...]:
    desired = status.speculation.desired if status.speculation else None
    return tuple(Step(step.up_to, step.tokens) for step in desired.schedule or ()) if desired else ()


def _readable(schedule: Schedule) -> Schedule | None:
    """As an engine would read it; None where it would not: a status may be of another version, or by another hand."""
    try:
        return parse_schedule(schedule.dump())
    except ScheduleError:
        return None


def fits(schedule: Schedule, depths: Sequence[int]) -> bool:
    """Whether an engine with these candidates can run every depth of a schedule."""
    against = schedule.trial.against if schedule.trial else ()
    return all(step.tokens in depths for step in (*schedule.steps, *against))


def component(pod: Body) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LABEL_COMPONENT, ""))


def serving(pods: Sequence[Body]) -> list[Body]:
    """Pods of the Deployment, those on their way out aside."""
    return [p for p in pods if component(p) == SERVING and not p["metadata"].get("deletionTimestamp")]


def ready(pods: Sequence[Body]) -> list[Body]:
    """Serving pods that are ready."""
    return [p for p in serving(pods) if is_ready(p)]


def engine_image(pod: Body) -> tuple[str, str]:
    """(image as asked for, digest as it runs or "") of a pod's engine, which may be a sidecar."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    asked = next(
        (
            c.get("image", "")
            for c in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
            if c["name"] == ENGINE_CONTAINER
        ),
        "",
    )
    for c in [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]:
        if c["name"] == ENGINE_CONTAINER and "sha256:" in str(c.get("imageID", "")):
            return asked, "sha256:" + str(c["imageID"]).rpartition("sha256:")[2]
    return asked, ""
