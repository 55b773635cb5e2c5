"""The six recommended labels, and the selectors that tell serving pods from profiling ones."""

from __future__ import annotations

import re

from specpilot.api import vocabulary as v
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.versions import engine_version

SERVING = "serving"
PROFILING = "profiling"
APPLICATION = "vllm"
_LABEL_LENGTH = 63


def labels(sd: SpeculativeDeployment, component: str) -> dict[str, str]:
    """The version is vLLM's, never the operator's, whose upgrade must not roll pods."""
    version = engine_version(sd.spec.engine.image, sd.spec.engine.vllm_version)
    return {
        v.LABEL_NAME: APPLICATION,
        v.LABEL_INSTANCE: sd.metadata.name,
        v.LABEL_VERSION: label_value(str(version or "")) or "unknown",
        v.LABEL_COMPONENT: component,
        v.LABEL_PART_OF: v.MANAGER,
        v.LABEL_MANAGED_BY: v.MANAGER,
    }


def selector(sd: SpeculativeDeployment, component: str = SERVING) -> dict[str, str]:
    """Immutable on a Deployment: never add what could change."""
    return {
        v.LABEL_NAME: APPLICATION,
        v.LABEL_INSTANCE: sd.metadata.name,
        v.LABEL_COMPONENT: component,
    }


def selector_text(sd: SpeculativeDeployment, component: str = SERVING) -> str:
    """The selector as `status.selector` and list requests want it."""
    return ",".join(f"{key}={value}" for key, value in selector(sd, component).items())


def label_value(text: str) -> str:
    """The nearest valid label value: 0.33.0+cu128 is a version, but `+` is no label character."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:_LABEL_LENGTH].strip("-_.")
