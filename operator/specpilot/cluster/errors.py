"""What can go wrong at the API server, as few exceptions with one sentence for people."""

from __future__ import annotations

import json
from typing import Any


class ClusterError(Exception):
    """A request that did not succeed; `message` is fit for a condition."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Forbidden(ClusterError):
    """The operator may not do this, or an admission plug-in (quota, pod security) refused it."""


class Invalid(ClusterError):
    """The object is wrong: its author has to change it, and trying again does not help."""


class NotFound(ClusterError):
    pass


class Conflict(ClusterError):
    """Somebody else wrote first, or the object exists already."""


class Unavailable(ClusterError):
    """The API server does not answer, or not now, or no longer knows the list whose next page is asked for (410): try
    again later."""


class Terminating(ClusterError):
    """The namespace is being deleted, with everything in it."""


# Server-side apply reports a field that the schema does not have as an internal error.
_USER_ERRORS_AS_500 = (
    "not declared in schema",
    "failed to create typed",
    "error decoding",
    "unable to convert",
)


def from_status(status: int, body: str | bytes | None, what: str) -> ClusterError:
    """The exception for an HTTP status and the Status object that came with it.

    `what` names the request, for example "apply of Deployment llm/flash".
    """
    message = f"{what}: {_message(body) or f'the API server answered {status}'}"
    if status == 403 and "because it is being terminated" in message:
        return Terminating(message)
    if status in (401, 403):
        return Forbidden(message)
    if status == 404:
        return NotFound(message)
    if status == 409:
        return Conflict(message)
    if status in (400, 405, 406, 413, 415, 422) or any(text in message for text in _USER_ERRORS_AS_500):
        return Invalid(message)
    return Unavailable(message)


def _message(body: str | bytes | None) -> str:
    try:
        doc: Any = json.loads(body or "")
    except ValueError:
        return ""
    message = doc.get("message", "") if isinstance(doc, dict) else ""
    return " ".join(str(message).split())
