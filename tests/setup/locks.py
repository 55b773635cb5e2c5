"""One process at a time, whoever started it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.console import cache


@contextmanager
def alone(what: str) -> Iterator[None]:
    """Wait until no other process of this user is in a block of the same name, and keep others out."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
