"""What building images tells a person."""

from __future__ import annotations

import sys


class ImageError(Exception):
    """What went wrong and what to do about it, in one sentence."""


def say(text: str) -> None:
    """One line of progress. Standard output stays free for what a script reads."""
    print(f"images: {text}", file=sys.stderr, flush=True)
