"""Whether an object still is as we last applied it, read from its managed fields.

Comparing values would need every defaulting and normalising rule of the API server ("1000m" is stored
as "1"). Its own record of field owners needs none: whoever changes or removes a field that we applied
takes it out of our set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specpilot.api.vocabulary import ANNOTATION_HASH, MANAGER

Body = dict[str, Any]

_NOT_FIELDS = ("apiVersion", "kind")
_NOT_FIELDS_OF_METADATA = ("name", "namespace")


def is_current(desired: Body, observed: Body) -> bool:
    """Whether applying `desired` (stamped with its hash) would change nothing of `observed`."""
    recorded = (observed["metadata"].get("annotations") or {}).get(ANNOTATION_HASH)
    if recorded != desired["metadata"]["annotations"][ANNOTATION_HASH]:
        return False
    fields = own_fields(observed)
    return fields is not None and still_ours(desired, fields)


def own_fields(observed: Body) -> Mapping[str, Any] | None:
    """Our fieldsV1 on an object, or None where we never applied it."""
    for entry in observed["metadata"].get("managedFields") or []:
        if (
            entry.get("manager") == MANAGER
            and entry.get("operation") == "Apply"
            and not entry.get("subresource")
        ):
            fields: Mapping[str, Any] = entry.get("fieldsV1") or {}
            return fields
    return None


def still_ours(desired: Body, fields: Mapping[str, Any]) -> bool:
    """Whether every field of a body that we apply is in our set `fields` (fieldsV1)."""
    content = {key: value for key, value in desired.items() if key not in _NOT_FIELDS}
    content["metadata"] = {
        key: value for key, value in desired["metadata"].items() if key not in _NOT_FIELDS_OF_METADATA
    }
    return _covers(fields, content)


def _covers(fields: Mapping[str, Any], value: Any) -> bool:
    if not fields:
        return True  # a leaf: a scalar, or a list or map that is owned as a whole
    if isinstance(value, dict):
        return all(
            f"f:{key}" in fields and _covers(fields[f"f:{key}"], inner) for key, inner in value.items()
        )
    if isinstance(value, list):
        return all(_covers_item(fields, item) for item in value)
    return True


def _covers_item(fields: Mapping[str, Any], item: Any) -> bool:
    for name, inner in fields.items():
        if name.startswith("k:"):
            # Keys that the API server defaults (a port's protocol) may be absent in what we apply.
            keys = json.loads(name[2:])
            if isinstance(item, dict) and all(item.get(key, want) == want for key, want in keys.items()):
                return _covers(inner, item)
        elif name.startswith("v:") and json.loads(name[2:]) == item:
            return True
    return False
