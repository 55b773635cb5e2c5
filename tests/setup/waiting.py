"""Waiting for what will be true in a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(probe: Callable[[], T | None], seconds: float, what: str, every: float = 0.2) -> T:
    """The first answer of `probe` that is true.

    AssertionError after `seconds`, with `what` was waited for and the last answer or error.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer: object = probe()
            if answer:
                return answer  # type: ignore[return-value]
        except Exception as error:
            answer = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s; last: {answer!r}")
        time.sleep(every)
