"""What both resources share: the model base, durations and small Kubernetes shapes."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP, VERSION = "specpilot.io", "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

_DURATION = r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"
Duration = Annotated[
    str, Field(min_length=2, max_length=32, pattern=_DURATION, description="For example 30s, 2m or 40ms.")
]
Free = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""A Kubernetes object that its own API validates, not ours."""

Rules = list[dict[str, str]]


def rule(expression: str, message: str, **more: str) -> dict[str, str]:
    """One x-kubernetes-validations entry; `message` names the field and the fix."""
    return {"rule": expression, "message": message, **more}


def rules(*entries: dict[str, str]) -> dict[str, Any]:
    """Extra JSON schema that carries CEL rules, for a model's config or a field."""
    return {"x-kubernetes-validations": list(entries)}


class Model(BaseModel):
    """camelCase outside, snake_case inside; fields that another version added are ignored, not refused:
    the API server has already dropped or refused what its schema does not know."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    def to_json(self) -> dict[str, Any]:
        """As Kubernetes wants it: camelCase, and absent where None (null fails server-side apply)."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


def seconds(duration: str) -> float:
    """Seconds of a Duration. Raises ValueError for anything its pattern refuses."""
    match = re.match(_DURATION, duration)
    if not duration or not match:
        raise ValueError(f"not a duration: {duration!r} (for example 30s, 2m or 40ms)")
    return sum(
        float(part[: -len(unit)]) * factor
        for part, unit, factor in zip(
            match.groups(), ("h", "m", "s", "ms"), (3600, 60, 1, 0.001), strict=True
        )
        if part
    )
