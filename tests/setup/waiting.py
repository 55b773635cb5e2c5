"""Waiting for what will be true in a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
BUSY = 3  # times as long as on a machine that does nothing else


def eventually(probe: Callable[[], T | None], seconds: float, what: str, every: float = 0.4) -> T:
    """The first answer of `probe` that is true; it should take at most `seconds` where nothing else runs.

    AssertionError after a multiple of that, with `what` was waited for and the last answer or error.
    """
    limit = BUSY * seconds
    deadline = time.monotonic() + limit
    while True:
        try:
            answer: object = probe()
            if answer:
                return answer  # type: ignore[return-value]
        except Exception as error:
            answer = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {limit:g} s; last: {answer!r}")
        time.sleep(every)
