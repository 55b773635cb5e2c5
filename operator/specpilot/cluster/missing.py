"""Fields of a status that the cluster's CustomResourceDefinition does not have: it is older than the operator."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]

TRIED_AGAIN = 300.0  # seconds after which a field is tried again: the definition may be another by then
_NOT_DECLARED = re.compile(r"\.status\.([A-Za-z]+(?:\.[A-Za-z]+)*): field not declared in schema")


@dataclass(slots=True)
class Missing:
    """Of one kind: paths below status, and until when (monotonic seconds) each is left out."""

    until: dict[tuple[str, ...], float] = field(default_factory=dict)

    def without(self, status: Body, now: float) -> Body:
        """`status` without what is missing; itself is not changed."""
        for path, until in self.until.items():
            if now < until:
                status = _without(status, path)
        return status

    def learn(self, message: str, status: Body, now: float) -> bool:
        """Whether an API server's refusal of `status` names fields that it does not know."""
        found = [tuple(path.split(".")) for path in _NOT_DECLARED.findall(message)]
        found = [path for path in found if _has(status, path)]
        self.until.update(dict.fromkeys(found, now + TRIED_AGAIN))
        return bool(found)

    def forget(self, written: Body) -> None:
        """What was written is missing no longer."""
        self.until = {path: until for path, until in self.until.items() if not _has(written, path)}


def _has(status: Body, path: tuple[str, ...]) -> bool:
    found: Any = status
    for part in path:
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True


def _without(status: Body, path: tuple[str, ...]) -> Body:
    if not _has(status, path):
        return status
    if len(path) == 1:
        return {key: value for key, value in status.items() if key != path[0]}
    return {**status, path[0]: _without(status[path[0]], path[1:])}
