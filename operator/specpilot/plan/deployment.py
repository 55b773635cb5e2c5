"""The Deployment: how many serving pods, and how they are replaced."""

from __future__ import annotations

from typing import Any

from specpilot.api import vocabulary as v
from specpilot.api.base import seconds
from specpilot.api.objects import SpeculativeDeployment
from specpilot.plan.arguments import base_arm
from specpilot.plan.inputs import Inputs, ProfileIn
from specpilot.plan.labels import selector
from specpilot.plan.pods import serving_template
from specpilot.plan.revision import newest, read, rendering, spec_hash

_PROGRESS_MARGIN_SECONDS = 600  # image pull, and a replaced pod that drains first


def deployment(sd: SpeculativeDeployment, inputs: Inputs) -> dict[str, Any]:
    """The Deployment without what all children share (see render)."""
    revision = inputs.revision or newest()
    look = rendering(revision)
    profiling, own = inputs.profiling, base_arm(read(sd.spec, look))
    arm = inputs.arm or own
    request = profiling.request if profiling.where is ProfileIn.POD else profiling.kept
    annotations = {
        v.ANNOTATION_REVISION: revision,
        v.ANNOTATION_SPEC_HASH: spec_hash(sd),
    }
    if opted := sd.metadata.annotations.get(v.ANNOTATION_UPGRADE):
        annotations[v.ANNOTATION_UPGRADE] = opted
    if arm != own:
        annotations[v.ANNOTATION_ARM] = str(arm)
        request = None  # depths are measured by changing them live
    waits = seconds(sd.spec.profiling.deadline) if request is not None else 0
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": sd.metadata.name, "annotations": annotations},
        "spec": {
            # Autoscalers act on the SpeculativeDeployment's scale subresource, so the count is ours.
            "replicas": 0 if profiling.hold_serving else sd.spec.replicas,
            "selector": {"matchLabels": selector(sd)},
            # A surge pod that finds no room would wait for ever beside pods that hold it all.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}
                if inputs.surge
                else {"maxSurge": 0, "maxUnavailable": 1},
            },
            "progressDeadlineSeconds": int(look.startup_seconds + waits) + _PROGRESS_MARGIN_SECONDS,
            "revisionHistoryLimit": 3,
            "template": serving_template(sd, look, inputs.operator, request, arm),
        },
    }
