"""Where a profile is measured, what is measured, and the Job that does it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specpilot.api import vocabulary as v
from specpilot.api.base import seconds
from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.objects import SpeculativeDeployment
from specpilot.plan import names
from specpilot.plan.arguments import live_support
from specpilot.plan.fingerprint import request_key
from specpilot.plan.inputs import Inputs, ProfileIn
from specpilot.plan.labels import PROFILING, labels
from specpilot.plan.limits import limits
from specpilot.plan.pods import serving_template
from specpilot.plan.protect import split
from specpilot.plan.revision import newest, rendering, spec_hash
from specpilot_engine.protocol import ProfileRequest

POD_BUDGET_SECONDS = 30.0  # how long a pod stays out of the Service where serving must not wait
_CONTEXT = 8192  # vLLM's own profiling context
_CONTEXT_UNKNOWN = 2048  # where the model's length is not given: every served model holds this many
_MAX_BATCH_SIZES = 16
_COUNT = re.compile("[1-9][0-9]{0,5}")
_GRACE_SECONDS = 30  # there are no requests of anybody's to drain


def where_to_profile(spec: SpeculativeDeploymentSpec, room: bool) -> ProfileIn:
    """`room`: a pod of its own would fit beside the serving pods.

    Nowhere without a depth to tune, with policy Never, or with a profile given."""
    profiling = spec.profiling
    if profiling.policy == "Never" or profiling.profile_ref or not live_support(spec)[0]:
        return ProfileIn.NOWHERE
    if profiling.where != "Auto":
        return ProfileIn(profiling.where)
    return ProfileIn.JOB if devices_wanted(spec) and room else ProfileIn.POD


def devices_wanted(spec: SpeculativeDeploymentSpec) -> dict[str, int]:
    """Devices that one pod asks for, by resource name, read from the podTemplate's limits and requests."""
    found: dict[str, int] = {}
    pod = split(spec)[0].get("spec") or {}
    for container in pod.get("containers") or ():
        for name, count in devices_of(container).items():
            found[name] = found.get(name, 0) + count
    return found


def devices_of(container: Mapping[str, Any]) -> dict[str, int]:
    """Devices that one container asks for, by resource name."""
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {
        name: int(amount)
        for name, amount in sorted(asked.items())
        if "/" in name and not name.startswith("hugepages") and _COUNT.fullmatch(str(amount))
    }


def profile_request(spec: SpeculativeDeploymentSpec, where: ProfileIn) -> ProfileRequest:
    """What to measure: the user's grid, or one that follows from candidates and limits."""
    bounds = limits(spec)
    grid = spec.profiling.grid
    deadline = seconds(spec.profiling.deadline)
    waits = where is ProfileIn.JOB or spec.profiling.block_serving
    return ProfileRequest(
        key=request_key(spec),
        tokens=tuple(grid.tokens or spec.speculation.depths),
        batch_sizes=tuple(grid.batch_sizes or batch_sizes(bounds.max_num_seqs)),
        context_lengths=tuple(grid.context_lengths or (context_length(bounds.max_model_len),)),
        budget=deadline if waits else min(POD_BUDGET_SECONDS, deadline),
        then="exit" if where is ProfileIn.JOB else "serve",
    )


def batch_sizes(widest: int) -> list[int]:
    """Powers of four and the widest batch: cost bends slowly between them, and the grid stays small."""
    sizes = [4**i for i in range(_MAX_BATCH_SIZES) if 4**i < widest]
    return [*sizes, widest]


def context_length(max_model_len: int | None) -> int:
    """Half of what a request may hold, at most vLLM's own profiling context."""
    return min(_CONTEXT, max_model_len // 2) if max_model_len else _CONTEXT_UNKNOWN


def profile_job(sd: SpeculativeDeployment, inputs: Inputs) -> dict[str, Any]:
    """The serving pod turned into a measurement: vLLM as a sidecar, the profiler as the task.

    The user's other containers become sidecars too, or the Job would never end. Requires a request."""
    request = inputs.profiling.request
    assert request is not None
    template = serving_template(sd, rendering(inputs.revision or newest()), inputs.operator, request)
    pod = dict(template["spec"])
    beside = [c for c in pod["containers"] if c["name"] not in (v.ENGINE_CONTAINER, v.PROFILER_CONTAINER)]
    engine, profiler = (
        next(c for c in pod["containers"] if c["name"] == name)
        for name in (v.ENGINE_CONTAINER, v.PROFILER_CONTAINER)
    )
    # The engine's startup probe stays: it holds the profiler back until the engine answers.
    sidecars = [*beside, _without(engine, "readinessProbe", "livenessProbe", "lifecycle")]
    pod["initContainers"] = [
        *pod.get("initContainers", []),
        *({**c, "restartPolicy": "Always"} for c in sidecars),
    ]
    pod["containers"] = [_without(profiler, "startupProbe")]
    pod["restartPolicy"] = "Never"
    pod["terminationGracePeriodSeconds"] = _GRACE_SECONDS
    metadata = {**template["metadata"], "labels": {**template["metadata"]["labels"]}}
    metadata["labels"] |= labels(sd, PROFILING)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.profile_job(sd.metadata.name),
            "annotations": {v.ANNOTATION_SPEC_HASH: spec_hash(sd)},
        },
        "spec": {
            "backoffLimit": 0,  # a measurement that failed is looked at, not repeated blindly
            "activeDeadlineSeconds": max(int(seconds(sd.spec.profiling.deadline)), 1),
            # Being preempted or drained is no failure of the measurement.
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
                ]
            },
            "template": {"metadata": metadata, "spec": pod},
        },
    }


def _without(container: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {k: value for k, value in container.items() if k not in fields}
