"""What both resources share: the model base, rules, durations and small Kubernetes shapes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from specpilot.api.vocabulary import Reason

GROUP, VERSION = "specpilot.io", "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

# Six digits: more would overflow the API server's own duration type inside a rule.
_DURATION = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?([0-9]{1,6}ms)?$"
Duration = Annotated[str, Field(min_length=2, max_length=32, pattern=_DURATION)]
"""For example 30s, 2m or 40ms."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Policy(Generic[T]):
    """One thing that must not be said, in both languages: CEL for the API server, Python for the rest.

    `field` is the full path a person sees; `at`, where given, the same field relative to the schema that
    carries the rule, so that the API server points there. `cel` states what must hold, `violated` the
    opposite; `message` names the field and the fix. `younger`: than objects that may be stored, which are served
    all the same.
    """

    field: str
    message: str
    cel: str
    violated: Callable[[T], bool]
    at: str = ""
    reason: Reason = Reason.INVALID_SPEC
    younger: bool = False

    def rule(self) -> dict[str, str]:
        """The x-kubernetes-validations entry."""
        return {
            "rule": self.cel,
            "message": self.message,
            **({"fieldPath": self.at} if self.at else {}),
        }


def rules(*policies: Policy[Any]) -> dict[str, Any]:
    """Extra JSON schema that carries the policies' CEL, for a model's config or a field."""
    return {"x-kubernetes-validations": [p.rule() for p in policies]}


def timestamp(epoch: float) -> str:
    """RFC 3339 in UTC of epoch seconds, as Kubernetes writes times."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Model(BaseModel):
    """camelCase outside, snake_case inside; fields that another version added are ignored, not refused:
    the API server has already dropped or refused what its schema does not know."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, use_attribute_docstrings=True
    )

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
