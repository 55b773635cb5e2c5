"""How far a Deployment has come and what keeps its pods from serving, read from observed bodies. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from specpilot.api.vocabulary import ENGINE_CONTAINER, Reason
from specpilot.cluster.ownership import own_fields
from specpilot.plan.revision import surges

Body = dict[str, Any]

# Each attempt of a ReplicaSet has another name.
_POD_NAME = re.compile(r'pods "[^"]*"')
RESCALED = "Rescaled"  # an event
# Waiting reasons of containers, as kubelets write them.
_PULLING = ("ErrImagePull", "ImagePullBackOff")  # by turns, for as long as it fails
_IMAGE = (*_PULLING, "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_CRASH = ("CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError")


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong, with a reason of specpilot.api.vocabulary and a sentence."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """Counts of pods; `updated` and `ready` are those of the Deployment's present template."""

    wanted: int
    exists: bool = False
    updated: int = 0
    ready: int = 0
    total: int = 0
    complete: bool = False  # the Deployment's controller has seen the template and replaced every pod
    deadline_exceeded: str = ""  # its message
    in_turn: bool = False  # a pod ends before its successor starts
    paused: bool = False  # by somebody: the Deployment's controller replaces no pod meanwhile
    troubles: tuple[Trouble, ...] = ()


def rollout_of(wanted: int, deployment: Body | None, pods: Iterable[Body]) -> Rollout:
    """`wanted` replicas of a Deployment as observed, with its pods."""
    troubles = [trouble for pod in pods if (trouble := trouble_of(pod)) is not None]
    if deployment is None:
        return Rollout(wanted, troubles=_distinct(troubles))
    status = deployment.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    failure = conditions.get("ReplicaFailure")
    if failure is not None and failure["status"] == "True":
        refusal = _POD_NAME.sub("a pod", str(failure.get("message", "")))
        troubles.insert(0, Trouble(Reason.PODS_REFUSED, f"pods cannot be created: {refusal}"))
    progressing = conditions.get("Progressing") or {}
    exceeded = progressing.get("reason") == "ProgressDeadlineExceeded"
    available = progressing.get("reason") == "NewReplicaSetAvailable"
    seen = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    updated, total = int(status.get("updatedReplicas") or 0), int(status.get("replicas") or 0)
    ready = int(status.get("readyReplicas") or 0)
    replicas = int(deployment["spec"].get("replicas") or 0)
    return Rollout(
        wanted,
        exists=True,
        updated=updated if seen else 0,
        # Old pods may be among the ready ones: what is certain is what is ready beyond them.
        ready=min(ready, max(0, ready - (total - updated))) if seen else 0,
        total=total,
        # Once available, a rollout stays complete: pods that fail later are no rollout.
        complete=seen and updated == total == replicas and (replicas == 0 or available),
        deadline_exceeded=str(progressing.get("message", "")) if exceeded and seen else "",
        in_turn=not surges(deployment),
        paused=bool(deployment["spec"].get("paused")),
        troubles=_distinct(troubles),
    )


def rescaled(before: Body | None, applied: Sequence[Body]) -> str:
    """What to tell whoever scaled the Deployment itself, when `applied` has taken that back; "" where nobody did.

    Left alone, an autoscaler that does it would start and end pods for ever."""
    after = next((body for body in applied if body["kind"] == "Deployment"), None)
    fields = own_fields(before) if before else None
    if after is None or before is None or not fields or "f:replicas" in fields.get("f:spec", {}):
        return ""
    was, now = before["spec"].get("replicas"), after["spec"].get("replicas")
    return (
        f"somebody else scaled Deployment {after['metadata']['name']} to {was}, and it is back at {now}: scale the"
        " SpeculativeDeployment, which an autoscaler can name as its target as well"
    )


def trouble_of(pod: Body) -> Trouble | None:
    """What keeps a pod from starting or running, if its status says so."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    # One that has ended, such as an evicted one, may lie there for long after its successor serves.
    if pod["metadata"].get("deletionTimestamp") or status.get("phase") in ("Failed", "Succeeded"):
        return None
    for container in [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, detail = str(waiting.get("reason", "")), str(waiting.get("message", ""))
        where = f"container {container['name']} of pod {name}"
        if reason in _IMAGE:
            reason = _PULLING[0] if reason in _PULLING else reason
            return Trouble(
                Reason.IMAGE_PULL_FAILED,
                f"{where} cannot get its image {container.get('image', '')}: check the name, the tag and the"
                f" pull secret ({reason})",
            )
        if reason in _CRASH or _failed_before(container):
            return Trouble(Reason.CRASH_LOOPING, f"{where} keeps failing: {_last_words(container, detail)}")
    scheduled: Body = next((c for c in status.get("conditions") or [] if c["type"] == "PodScheduled"), {})
    if scheduled.get("reason") == "Unschedulable":
        return Trouble(Reason.UNSCHEDULABLE, f"pod {name}: {scheduled.get('message', 'no node fits')}")
    return None


def is_ready(pod: Body) -> bool:
    """Whether a pod serves: its Ready condition is True and it is not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def startup_seconds(pods: Iterable[Body]) -> float | None:
    """From a pod's start until it was ready, of the middle one of those that are; None where none is."""
    found = []
    for pod in pods:
        status = pod.get("status") or {}
        ready: Body = next((c for c in status.get("conditions") or [] if c["type"] == "Ready"), {})
        started = status.get("startTime") or pod["metadata"].get("creationTimestamp")
        if started and is_ready(pod) and ready.get("lastTransitionTime"):
            found.append(max(_epoch(ready["lastTransitionTime"]) - _epoch(started), 0.0))
    return statistics.median_low(found) if found else None


def broken(pods: Iterable[Body], deployment: Body | None) -> str:
    """Why a pod whose engine has the arguments of the Deployment's template does not start, if it cannot; ""
    while all may. Creation times do not tell such pods: they are made as soon as the template is written."""
    wanted = _engine_args(((deployment or {}).get("spec") or {}).get("template") or {})
    for pod in pods:
        trouble = trouble_of(pod)
        if trouble is None or trouble.reason is Reason.UNSCHEDULABLE:
            continue
        if _engine_args(pod) == wanted:
            return trouble.message
    return ""


def _engine_args(pod: Body) -> list[str] | None:
    containers = (pod.get("spec") or {}).get("containers") or []
    return next((c.get("args") for c in containers if c.get("name") == ENGINE_CONTAINER), None)


def _epoch(rfc3339: str) -> float:
    return datetime.fromisoformat(rfc3339).timestamp()


def life_of(pod: Body) -> str:
    """Changes whenever an engine's counters start again: the pod's uid and its container's id."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    found: Body = next((c for c in statuses if c["name"] == ENGINE_CONTAINER), {})
    return f"{pod['metadata'].get('uid', '')}/{found.get('containerID', '')}"


def _failed_before(container: Body) -> bool:
    """Whether it is on its way to serving, or to its next failure, after one: a crash loop goes on between two
    waits, and what is said of it must not come and go with each."""
    ended = (container.get("lastState") or {}).get("terminated") or {}
    return bool(ended.get("exitCode")) and container.get("ready") is False and not _succeeded(container)


def _succeeded(container: Body) -> bool:
    ended = (container.get("state") or {}).get("terminated")
    return ended is not None and not ended.get("exitCode")


def _last_words(container: Body, detail: str) -> str:
    ended = (container.get("lastState") or {}).get("terminated") or {}
    if not ended:
        return detail or "see its log"
    said = " ".join(str(ended.get("message") or "").split())[-200:]
    return f"exit code {ended.get('exitCode')}{f' ({said})' if said else ''}: see its log"


def _distinct(troubles: list[Trouble]) -> tuple[Trouble, ...]:
    """One per reason: fifty pods of one bad image are one trouble."""
    return tuple({t.reason: t for t in reversed(troubles)}.values())[::-1]
