"""The environment that the user gives the engine, wherever it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.vocabulary import ENGINE_CONTAINER
from specpilot.plan.protect import split


def engine_container(spec: SpeculativeDeploymentSpec) -> Mapping[str, Any]:
    """The engine's container in spec.podTemplate, without what is refused there: the engine never gets that."""
    containers = (split(spec)[0].get("spec") or {}).get("containers") or ()
    return next((c for c in containers if c.get("name") == ENGINE_CONTAINER), {})


def variables(spec: SpeculativeDeploymentSpec) -> dict[str, Mapping[str, Any]]:
    """Entries by name, of spec.engine.env and of the engine's container in spec.podTemplate, which wins. What comes by
    envFrom is not known."""
    entries = (*spec.engine.env, *(engine_container(spec).get("env") or ()))
    return {str(entry.get("name", "")): entry for entry in entries}


def value(spec: SpeculativeDeploymentSpec, name: str) -> str | None:
    """Of one variable; None where it is not set, or its value comes from elsewhere."""
    text = variables(spec).get(name, {}).get("value")
    return None if text is None else str(text)
