"""Hashes of desired state: equal means that there is nothing to write."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from specpilot.api.vocabulary import ANNOTATION_HASH


def digest(value: Any) -> str:
    """Sixteen hex digits over canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def desired_hash(obj: Mapping[str, Any]) -> str:
    """Of a rendered object, without the annotation that will hold it."""
    bare = copy.deepcopy(dict(obj))
    bare.get("metadata", {}).get("annotations", {}).pop(ANNOTATION_HASH, None)
    return digest(bare)


def stamped(obj: dict[str, Any]) -> dict[str, Any]:
    """The object with its hash recorded in its annotations."""
    metadata = {**obj["metadata"], "annotations": dict(obj["metadata"].get("annotations", {}))}
    result = {**obj, "metadata": metadata}
    metadata["annotations"][ANNOTATION_HASH] = desired_hash(result)
    return result
