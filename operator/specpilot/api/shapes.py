"""Pieces of Kubernetes' own API inside ours: open, but for the fields that a rule of ours looks at.

Kubernetes itself knows the rest, in whatever version it is; what is wrong there ends in a condition.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from specpilot.api import policies
from specpilot.api.base import rules


def _env_var(var: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(var.get("name"), str) or not var["name"]:
        raise ValueError("needs a name")
    if not isinstance(var.get("value", ""), str):
        raise ValueError("has a value that is not text: put it into quotes")
    return var


def _pod_template(template: dict[str, Any]) -> dict[str, Any]:
    for part in ("metadata", "spec"):
        if not isinstance(template.get(part) or {}, dict):
            raise ValueError(f"has a {part} that is not an object")
    if not isinstance((template.get("metadata") or {}).get("labels") or {}, dict):
        raise ValueError("has metadata.labels that are not an object")
    containers = (template.get("spec") or {}).get("containers") or []
    if not isinstance(containers, list) or not all(
        isinstance(c, dict) and isinstance(c.get("name"), str) for c in containers
    ):
        raise ValueError("has spec.containers that are not a list of objects with a name each")
    if len({c["name"] for c in containers}) < len(containers):
        raise ValueError("has spec.containers of one name twice: rename one")
    return template


_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
EnvVar = Annotated[
    dict[str, Any],
    AfterValidator(_env_var),
    Field(
        json_schema_extra={
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 253},
                "value": {"type": "string"},
                "valueFrom": _OPEN,
            },
        }
    ),
]
PodTemplate = Annotated[
    dict[str, Any],
    AfterValidator(_pod_template),
    Field(
        json_schema_extra={
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {
                "metadata": {
                    **_OPEN,
                    "properties": {
                        "labels": {
                            "type": "object",
                            "maxProperties": 64,
                            "additionalProperties": {"type": "string", "maxLength": 63},
                        }
                    },
                },
                "spec": {
                    **_OPEN,
                    "properties": {
                        "containers": {
                            "type": "array",
                            "maxItems": 32,
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["name"],
                            "items": {
                                **_OPEN,
                                "required": ["name"],
                                "properties": {
                                    "name": {"type": "string", "maxLength": 63},
                                    "image": {"type": "string"},
                                    "command": {"type": "array", "items": {"type": "string"}},
                                    "args": {"type": "array", "items": {"type": "string"}},
                                },
                            },
                        }
                    },
                },
            },
            **rules(*policies.POD_TEMPLATE),
        }
    ),
]
