"""Render revisions: what an upgrade of the operator may change about pods, and when it does.

A Deployment records the revision it was rendered with and keeps it until the part of its spec that
pods come from changes, or its user opts in: so an upgrade rolls no pod. Whatever a revision looks like
stands in REVISIONS, one row each; code reads the row and never asks for a revision by name. To change
what pods look like, add a row (and a field, where none says it yet); the rows before stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specpilot.api import vocabulary as v
from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.objects import SpeculativeDeployment
from specpilot.decide import arm as arms
from specpilot.decide.arm import Arm
from specpilot.plan.arguments import base_arm
from specpilot.plan.hashing import digest
from specpilot.plan.inputs import Inputs, OperatorFacts, ProfileIn
from specpilot.plan.reading import as_at_first
from specpilot_engine.protocol import ENV_PROFILE, ProfileRequest, parse_profile_request


@dataclass(frozen=True, slots=True)
class Rendering:
    """How pods of one revision look, as far as revisions differ or may."""

    user: int = 1000  # pods run as this user and group
    startup_seconds: int = 7200  # a large model from a cold hub cache
    liveness_seconds: int = 300  # unanswered health checks before a restart
    deregister_seconds: int = 10  # endpoints must be gone before the socket closes
    drain_seconds: int = 120  # requests in flight may still finish
    adaptive_caps: bool = False  # engines that verify adaptively can have their depths capped live
    reads_as_vllm: bool = False  # arguments by prefix, -O0, variables of the podTemplate
    profiler_env_from: bool = False  # the profiler has the engine's sources of variables too


REVISIONS: dict[str, Rendering] = {
    "r1": Rendering(),
    "r2": Rendering(adaptive_caps=True),
    "r3": Rendering(adaptive_caps=True, reads_as_vllm=True, profiler_env_from=True),
}


def newest() -> str:
    return next(reversed(REVISIONS))


def rendering(revision: str) -> Rendering:
    """A revision that this operator does not know (it is older than the one that rendered) and "" render
    as the newest it knows."""
    return REVISIONS.get(revision) or REVISIONS[newest()]


def read(spec: SpeculativeDeploymentSpec, look: Rendering) -> SpeculativeDeploymentSpec:
    """The spec that pods of a revision are planned by: what their operator did not understand of it counts for nothing."""
    return spec if look.reads_as_vllm else as_at_first(spec)


def spec_hash(sd: SpeculativeDeployment) -> str:
    """Of the part of the spec that pods come from: what may change without a restart is left out, and so
    is what equals its default, or a field that a later version adds would look like a change."""
    spec = sd.spec.model_dump(by_alias=True, exclude_defaults=True, mode="json")
    return digest({k: spec.get(k) for k in ("model", "engine", "parallelism", "podTemplate", "speculation")})


def revision_for(existing: Mapping[str, Any] | None, sd: SpeculativeDeployment) -> str:
    """The recorded revision while nothing that pods come from has changed and nobody opted in anew."""
    recorded = _annotations(existing).get(v.ANNOTATION_REVISION, "")
    return recorded if recorded in REVISIONS and is_current(existing, sd) else newest()


def is_current(existing: Mapping[str, Any] | None, sd: SpeculativeDeployment) -> bool:
    """Whether the Deployment was rendered from this spec, with no opt-in to a newer rendering since.

    An opt-in is a value of the annotation that the Deployment has not recorded yet: it counts once,
    so that leaving it in place does not roll pods at every later upgrade."""
    recorded = _annotations(existing)
    opted = sd.metadata.annotations.get(v.ANNOTATION_UPGRADE, "")
    return recorded.get(v.ANNOTATION_SPEC_HASH) == spec_hash(sd) and (
        not opted or opted == recorded.get(v.ANNOTATION_UPGRADE)
    )


def recorded_arm(existing: Mapping[str, Any] | None, sd: SpeculativeDeployment) -> Arm:
    """The arm that a Deployment was rendered with, which holds for as long as its spec does; else the spec's
    own. It stands on the object whose pods have it, so the two are never apart."""
    recorded = _annotations(existing)
    if recorded.get(v.ANNOTATION_SPEC_HASH) != spec_hash(sd):
        return base_arm(sd.spec)
    own = base_arm(read(sd.spec, rendering(revision_for(existing, sd))))
    return arms.parse(recorded.get(v.ANNOTATION_ARM, "")) or own


def measures(job: Mapping[str, Any], sd: SpeculativeDeployment, key: str) -> bool:
    """Whether a profiling Job was made of this spec, and so is left alone whatever would be rendered now.

    One that does not record its spec is told by the request's `key`, which knows nothing of podTemplate."""
    recorded = _annotations(job).get(v.ANNOTATION_SPEC_HASH)
    if recorded:
        return recorded == spec_hash(sd)
    request = recorded_request(_pod_spec(job))
    return request is not None and request.key == key


def carry_over(
    existing: Mapping[str, Any] | None,
    sd: SpeculativeDeployment,
    inputs: Inputs,
    job: Mapping[str, Any] | None = None,
) -> Inputs:
    """`inputs` with everything kept that would needlessly change pods which are already there.

    `existing`: the Deployment as the API server has it, `job`: a profiling Job likewise. Kept are the
    revision, the engine package's image and pull policy, the profiler container with its request (or its
    absence), the rollout strategy and the arm, none of which the user asked to change.
    """
    inputs = replace(inputs, arm=inputs.arm or recorded_arm(existing, sd))
    if existing is not None and (existing.get("spec") or {}).get("replicas"):
        # Pods that serve are not taken away to wait for a profile.
        inputs = replace(inputs, profiling=replace(inputs.profiling, hold_serving=False))
    if existing is None or not is_current(existing, sd):
        source = None if job is None else _pod_spec(job)
        return replace(inputs, revision=newest(), operator=_operator(inputs.operator, source))
    pod = _pod_spec(existing)
    profiling = inputs.profiling
    if profiling.where is ProfileIn.POD:  # adding a profiler would restart pods, another request too
        profiling = replace(profiling, where=ProfileIn.NOWHERE, request=None)
    return replace(
        inputs,
        revision=revision_for(existing, sd),
        operator=_operator(inputs.operator, pod),
        surge=surges(existing),
        profiling=replace(profiling, kept=recorded_request(pod)),
    )


def recorded_request(pod: Mapping[str, Any]) -> ProfileRequest | None:
    """The request of the profiler container in a pod spec; None where there is no such container."""
    for container in pod.get("containers") or ():
        if container.get("name") == v.PROFILER_CONTAINER:
            env = {e.get("name"): e.get("value") for e in container.get("env") or ()}
            try:
                return parse_profile_request(env.get(ENV_PROFILE) or "")
            except (ValueError, KeyError, TypeError):
                return None
    return None


def _operator(facts: OperatorFacts, pod: Mapping[str, Any] | None) -> OperatorFacts:
    for container in (pod or {}).get("initContainers") or ():
        if container.get("name") == v.INIT_CONTAINER and container.get("image"):
            policy = container.get("imagePullPolicy") or facts.pull_policy
            return replace(facts, engine_image=container["image"], pull_policy=policy)
    return facts


def surges(deployment: Mapping[str, Any]) -> bool:
    """Whether a rollout of this Deployment starts a pod before it ends one."""
    strategy = (deployment.get("spec") or {}).get("strategy") or {}
    return (strategy.get("rollingUpdate") or {}).get("maxSurge") not in (0, "0", "0%")


def _pod_spec(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}


def _annotations(obj: Mapping[str, Any] | None) -> Mapping[str, str]:
    return ((obj or {}).get("metadata") or {}).get("annotations") or {}
