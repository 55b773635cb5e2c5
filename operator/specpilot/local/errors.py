"""What `specpilot up` says when it cannot go on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


class LocalError(Exception):
    """One sentence that says what to do; nothing is left running."""


@contextmanager
def advice(what: str, to_do: str) -> Iterator[None]:
    """An OSError inside becomes one sentence: `what` (REASON): `to_do`."""
    try:
        yield
    except OSError as e:
        raise LocalError(f"{what} ({reason(e)}): {to_do}") from None


def reason(error: OSError) -> str:
    """The system's own words, also of a whole list of failures, as shutil has them."""
    if error.strerror:
        return error.strerror
    first = error.args[0] if error.args else ""
    text = str(first[0][2]) if isinstance(first, list) and first else str(error)
    return re.sub(r"^\[Errno \d+\] ", "", text).partition(":")[0]
