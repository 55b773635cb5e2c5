"""SpeculativeDeployment and decision → every object that should exist for it."""

from __future__ import annotations

from typing import Any

from specpilot.api.base import API_VERSION
from specpilot.api.objects import SpeculativeDeployment
from specpilot.plan.arguments import live_support, speculates
from specpilot.plan.deployment import deployment
from specpilot.plan.hashing import stamped
from specpilot.plan.inputs import Inputs, ProfileIn
from specpilot.plan.labels import PROFILING, SERVING, labels
from specpilot.plan.profiling import profile_job
from specpilot.plan.services import (
    disruption_budget,
    network_policy,
    pod_monitor,
    profiled_config_map,
    schedule_config_map,
    service,
    service_account,
)


def render(sd: SpeculativeDeployment, inputs: Inputs) -> list[dict[str, Any]]:
    """Everything that should exist, in the order to apply it: what pods need before the pods.

    The same arguments give the same bytes. Each object has namespace, the six recommended labels, an
    owner reference (where the owner has a uid) and its own hash as an annotation.
    """
    objects = [(service_account(sd), SERVING)]
    if speculates(sd.spec):
        objects.append((schedule_config_map(sd, inputs.schedule), SERVING))
    if inputs.profiling.done and inputs.profiling.kept is not None:
        objects.append((profiled_config_map(sd, inputs.profiling.kept), PROFILING))
    objects += [(service(sd), SERVING), (disruption_budget(sd), SERVING)]
    if inputs.operator.network_policy and speculates(sd.spec):
        objects.append((network_policy(sd, inputs.operator), SERVING))
    if inputs.operator.pod_monitor:
        objects.append((pod_monitor(sd, speculates(sd.spec)), SERVING))
    if inputs.profiling.where is ProfileIn.JOB and inputs.profiling.request and live_support(sd.spec)[0]:
        objects.append((profile_job(sd, inputs), PROFILING))
    objects.append((deployment(sd, inputs), SERVING))
    return [stamped(_owned(obj, sd, component, inputs)) for obj, component in objects]


def _owned(obj: dict[str, Any], sd: SpeculativeDeployment, component: str, inputs: Inputs) -> dict[str, Any]:
    metadata = {
        **obj["metadata"],
        "namespace": sd.metadata.namespace,
        "labels": labels(sd, component),
        "annotations": {**inputs.annotations, **obj["metadata"].get("annotations", {})},
    }
    if sd.metadata.uid:  # there is none without a cluster
        metadata["ownerReferences"] = [owner_reference(sd)]
    return {**obj, "metadata": metadata}


def owner_reference(sd: SpeculativeDeployment) -> dict[str, Any]:
    """By which a child is garbage-collected with its owner."""
    return {
        "apiVersion": API_VERSION,
        "kind": sd.kind,
        "name": sd.metadata.name,
        "uid": sd.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
