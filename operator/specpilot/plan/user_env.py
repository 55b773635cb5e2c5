"""The environment that the user gives the engine, wherever it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.vocabulary import ENGINE_CONTAINER


def variables(spec: SpeculativeDeploymentSpec) -> dict[str, Mapping[str, Any]]:
    """Entries by name, of spec.engine.env and of the engine's container in spec.podTemplate, which wins. What comes by
    envFrom is not known."""
    containers = ((spec.pod_template or {}).get("spec") or {}).get("containers") or ()
    engine: Mapping[str, Any] = next((c for c in containers if c["name"] == ENGINE_CONTAINER), {})
    theirs = engine.get("env")
    entries = [*spec.engine.env, *(theirs if isinstance(theirs, list) else ())]
    return {str(entry.get("name", "")): entry for entry in entries if isinstance(entry, dict)}


def value(spec: SpeculativeDeploymentSpec, name: str) -> str | None:
    """Of one variable; None where it is not set, or its value comes from elsewhere."""
    text = variables(spec).get(name, {}).get("value")
    return None if text is None else str(text)
