"""What `specpilot up` says when it cannot go on."""

from __future__ import annotations


class LocalError(Exception):
    """One sentence that says what to do; nothing is left running."""
