"""Which cost profile a SpeculativeDeployment goes by, and whether and where one has to be measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from specpilot.api.objects import CostProfile, SpeculativeDeployment
from specpilot.api.profile import Fingerprint, Point
from specpilot.api.status import Condition
from specpilot.api.vocabulary import LABEL_INSTANCE, Reason
from specpilot.api.vocabulary import Condition as Type
from specpilot.control.conditions import Finding
from specpilot.plan.arguments import live_support
from specpilot.plan.fingerprint import fingerprint, mismatch, request_key
from specpilot.plan.inputs import ProfileIn, Profiling
from specpilot.plan.profiling import profile_request, where_to_profile
from specpilot.plan.revision import is_current, measures, recorded_request
from specpilot_engine.protocol import ProfilePoint

Body = Mapping[str, Any]

# Known only from a pod that runs; until then a profile is not refused for them.
_FROM_PODS = {"imageDigest": "image_digest", "gpu": "gpu"}


@dataclass(frozen=True, slots=True)
class Identity:
    """What a pod that runs tells about its engine: the image's digest and the device. `image` is what the spec asked
    for then."""

    image_digest: str = ""
    gpu: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """`profiling` goes into the plan; while `active`, points are read from pods that measure."""

    profiling: Profiling
    finding: Finding | None
    profile: CostProfile | None = None
    active: bool = False

    @property
    def points(self) -> tuple[ProfilePoint, ...]:
        return points_of(self.profile)


def choose(
    sd: SpeculativeDeployment,
    profiles: Sequence[Body],
    deployment: Body | None,
    job: Body | None,
    identity: Identity | None,
    room: bool,
) -> Choice:
    """`profiles` are the namespace's, `deployment` and `job` the children as observed; `identity` None
    while no pod runs. A Job that measures the right thing stays as it is: it is never started anew."""
    live, why = live_support(sd.spec)
    if not live:
        return Choice(Profiling(), Finding(Reason.PROFILING_DISABLED, why))
    mine = fingerprint(sd.spec, *((identity.image_digest, identity.gpu) if identity else ()))
    known = [profile for body in profiles if (profile := _parsed(body)) is not None]
    if sd.spec.profiling.profile_ref:
        return _named(sd.spec.profiling.profile_ref.name, known, mine)
    found = _matching(known, mine, sd.metadata.name)
    if found is not None and (outcome := outcome_of(found)) is not None:
        own = found.metadata.labels.get(LABEL_INSTANCE) == sd.metadata.name
        return Choice(Profiling(done=True), _finished(found, outcome, own), found)
    if sd.spec.profiling.policy == "Never":
        return Choice(
            Profiling(done=True), Finding(Reason.PROFILING_DISABLED, "spec.profiling.policy is Never"), found
        )
    return _measure(sd, found, deployment, job, room, _near(known, mine, sd.metadata.name))


def outcome_of(profile: CostProfile) -> Condition | None:
    """Its Succeeded condition once nothing more will be measured for it, whoever made it."""
    for condition in profile.status.conditions:
        if condition.type == Type.SUCCEEDED and condition.status != "Unknown":
            return condition
    if profile.spec.total and len(profile.spec.points) >= profile.spec.total:
        return Condition(type=Type.SUCCEEDED, status="True", reason=Reason.MEASURED)
    return None


def points_of(profile: CostProfile | None) -> tuple[ProfilePoint, ...]:
    """Points as the tuner wants them."""
    if profile is None:
        return ()
    return tuple(_point(p) for p in profile.spec.points)


def _point(p: Point) -> ProfilePoint:
    return ProfilePoint(p.tokens, p.batch_size, p.context_length, p.seconds, p.spread, p.steps)


def _named(name: str, known: Sequence[CostProfile], mine: Fingerprint) -> Choice:
    profile = next((p for p in known if p.metadata.name == name), None)
    if profile is None:
        message = (
            f"spec.profiling.profileRef names {name}, which is no CostProfile of this namespace: create it"
        )
        return Choice(Profiling(), Finding(Reason.PROFILE_NOT_FOUND, message))
    differing = _differing(mine, profile.spec.fingerprint)
    if differing:
        theirs, ours = profile.spec.fingerprint.to_json(), mine.to_json()
        what = ", ".join(f"{f} ({theirs.get(f)!r}, here {ours.get(f)!r})" for f in differing)
        message = f"CostProfile {name} is of another engine: it differs in {what}"
        return Choice(Profiling(), Finding(Reason.PROFILE_MISMATCH, message))
    found = Finding(Reason.REUSED, f"measured on {profile.spec.measured_on}")
    return Choice(Profiling(done=True), found, profile)


def measures_this(job: Body, sd: SpeculativeDeployment) -> bool:
    """Whether a Job measures what is wanted now: it stays as it is, running or failed, and no other does."""
    return measures(job, sd, request_key(sd.spec))


def keys_of(sd: SpeculativeDeployment, deployment: Body | None, job: Body | None) -> set[str]:
    """Keys under which profilers of this very spec measure; answers under others are of an earlier one,
    whose pods may still be there."""
    made = [
        deployment if deployment and is_current(deployment, sd) else None,
        job if job and measures_this(job, sd) else None,
    ]
    requests = [recorded_request(_pod_spec(obj)) for obj in made if obj is not None]
    return {request_key(sd.spec), *(request.key for request in requests if request is not None)}


def _matching(known: Sequence[CostProfile], mine: Fingerprint, name: str) -> CostProfile | None:
    """The best one of this fingerprint: finished before unfinished, more points, our own."""

    def rank(profile: CostProfile) -> tuple[bool, int, bool, str]:
        own = profile.metadata.labels.get(LABEL_INSTANCE) == name
        return (
            outcome_of(profile) is not None,
            len(profile.spec.points),
            own,
            profile.metadata.name,
        )

    fitting = [p for p in known if not _differing(mine, p.spec.fingerprint)]
    return max(fitting, key=rank, default=None)


def _near(known: Sequence[CostProfile], mine: Fingerprint, name: str) -> str:
    """Why the own profile that comes closest does not hold; "" where there is none."""
    own = [p for p in known if p.metadata.labels.get(LABEL_INSTANCE) == name]
    differing = {p.metadata.name: fields for p in own if (fields := _differing(mine, p.spec.fingerprint))}
    if not differing:
        return ""
    closest = min(differing, key=lambda profile: (len(differing[profile]), profile))
    return f"; CostProfile {closest} differs in {', '.join(differing[closest])}"


def _differing(mine: Fingerprint, theirs: Fingerprint) -> list[str]:
    unknown = {field for field, attribute in _FROM_PODS.items() if not getattr(mine, attribute)}
    return [field for field in mismatch(mine, theirs) if field not in unknown]


def _finished(profile: CostProfile, outcome: Condition, own: bool) -> Finding:
    if outcome.status == "True":
        reason = Reason.MEASURED if own else Reason.REUSED
        return Finding(reason, f"CostProfile {profile.metadata.name} has all step times")
    reason = Reason.PROFILE_INCOMPLETE if profile.spec.points else Reason.PROFILE_FAILED
    return Finding(reason, f"CostProfile {profile.metadata.name}: {outcome.message}")


def _measure(
    sd: SpeculativeDeployment,
    partial: CostProfile | None,
    deployment: Body | None,
    job: Body | None,
    room: bool,
    near: str,
) -> Choice:
    hold = sd.spec.profiling.block_serving
    where = where_to_profile(sd.spec, room or hold)
    if job and measures_this(job, sd):
        present = recorded_request(_pod_spec(job))
        failure = _failure(job)
        if failure:
            return Choice(Profiling(ProfileIn.JOB, present), _ended(failure, partial), partial)
        return _running(ProfileIn.JOB, sd, partial, hold)
    if deployment and is_current(deployment, sd):
        # Adding a profiler to pods that are there would restart them; a Job would not.
        if recorded_request(_pod_spec(deployment)):
            return _running(ProfileIn.POD, sd, partial, False)
        if where is not ProfileIn.JOB:
            message = (
                f"no profile is of this engine, and measuring in the serving pods would restart them{near}"
            )
            return Choice(Profiling(), Finding(Reason.PROFILE_INCOMPLETE, message), partial)
    return _running(where, sd, partial, hold and where is ProfileIn.JOB)


def _ended(failure: str, partial: CostProfile | None) -> Finding:
    """Of a Job that ended before its profiler did. Its deadline counts from its begin, loading the model included."""
    if failure == "DeadlineExceeded" and partial is not None and partial.spec.points:
        known = f"{len(partial.spec.points)} of {partial.spec.total}"
        message = (
            f"spec.profiling.deadline passed with {known} step times measured ({failure}): tuning goes on with these"
            " and learns the rest live; to measure all, raise it and delete the Job"
        )
        return Finding(Reason.PROFILE_INCOMPLETE, message)
    message = f"the profiling Job failed ({failure}): see its pod's log, and delete the Job to try again"
    return Finding(Reason.PROFILE_FAILED, message)


def _running(where: ProfileIn, sd: SpeculativeDeployment, partial: CostProfile | None, hold: bool) -> Choice:
    place = "in a Job of its own" if where is ProfileIn.JOB else "in the serving pods"
    message = f"step times are being measured {place}"
    profiling = Profiling(where, profile_request(sd.spec, where), hold_serving=hold)
    return Choice(profiling, Finding(Reason.PROFILING, message), partial, active=True)


def _failure(job: Body) -> str:
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition["type"] == "Failed" and condition["status"] == "True":
            return str(condition.get("reason") or "failed")
    return ""


def _pod_spec(obj: Body) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    return spec


def _parsed(body: Body) -> CostProfile | None:
    """None for one of another version of this API that this operator cannot read."""
    try:
        return CostProfile.model_validate(body)
    except ValidationError:
        return None
