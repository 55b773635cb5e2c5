"""From a pydantic model to the structural OpenAPI schema that a CustomResourceDefinition takes."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from kube_custom_resource.schema import resolve_refs, schema_apply
from pydantic import BaseModel

Schema = dict[str, Any]


def structural(model: type[BaseModel]) -> Schema:
    """The model's schema without references, nulls and titles, with defaults the API server can fill in."""
    whole: Schema = resolve_refs(model.model_json_schema(by_alias=True))
    cleaned: Schema = schema_apply(whole, _clean)
    return cleaned


def _clean(node: Schema) -> Schema:
    """One node, its children already clean."""
    node = _without_null({k: v for k, v in node.items() if k != "title"})
    if "const" in node:
        node["enum"] = [node.pop("const")]
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if bound in node and not isinstance(node[bound], bool):  # OpenAPI 3.0 has a flag beside the limit
            node[limit], node[bound] = node[bound], True
    if node.get("additionalProperties") is True:  # what its properties leave open, the open flag says
        del node["additionalProperties"]
    if node.get("type") == "array":
        node.setdefault("x-kubernetes-list-type", "atomic")
    if "default" in node:
        node = _default(node)
    return {key: node[key] for key in sorted(node, key=_place)}


def _place(key: str) -> int:
    """What a person looks for first comes first, and long things last."""
    order = ("description", "type", "default", "enum")
    last = ("required", "x-kubernetes-validations", "properties", "items")
    return order.index(key) if key in order else 50 + last.index(key) if key in last else 10


def _without_null(node: Schema) -> Schema:
    """`X | None` is the plain X, absent or there: a stored null would break server-side apply."""
    choices = [c for c in node.get("anyOf", ()) if c.get("type") != "null"]
    if len(choices) != 1:
        return node
    outer = {k: v for k, v in node.items() if k != "anyOf"}
    return {**choices[0], **outer}


def _default(node: Schema) -> Schema:
    """None is no default. An object's is what its fields default to: the server tries the rules on it."""
    default = node.pop("default")
    if isinstance(default, dict):
        fields = node.get("properties", {})
        default = {name: deepcopy(field["default"]) for name, field in fields.items() if "default" in field}
    return node if default is None else {**node, "default": default}


def unknown_fields(schema: Schema, value: Any, path: str) -> Iterator[str]:
    """Paths in `value` that the schema does not know: strict validation refuses them, the API server else
    drops them without a word."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(schema.get("items", {}), item, f"{path}[{index}]")
    if not isinstance(value, dict) or "additionalProperties" in schema:
        return
    known = schema.get("properties", {})
    for name, field in value.items():
        if name in known:
            yield from unknown_fields(known[name], field, f"{path}.{name}")
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}"
