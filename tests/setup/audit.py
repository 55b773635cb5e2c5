"""Reading the API server's audit log: who wrote what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Write:
    """One request that changed, or meant to change, an object."""

    user: str
    verb: str  # create, update, patch, delete, deletecollection
    resource: str  # plural, with the subresource: "deployments", "pods/status"
    namespace: str
    name: str
    code: int  # HTTP status of the answer


class AuditLog:
    """The log of a cluster that was brought up with one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def position(self) -> int:
        """A place in the log, to be given to `writes` later. Writes may arrive a moment late."""
        return self._path.stat().st_size

    def writes(self, after: int = 0, user: str | None = None) -> list[Write]:
        """Writes logged after a place, all of them or one user's."""
        with self._path.open("rb") as log:
            log.seek(after)
            lines = log.read().splitlines(keepends=True)
        # The last line may still be on its way.
        events = (json.loads(line) for line in lines if line.endswith(b"\n"))
        found = [_write(event) for event in events if event["stage"] == "ResponseComplete"]
        return [write for write in found if user is None or write.user == user]


def _write(event: dict[str, Any]) -> Write:
    target = event.get("objectRef", {})
    resource = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
    return Write(
        user=event["user"].get("username", ""),
        verb=event["verb"],
        resource=resource,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
    )
