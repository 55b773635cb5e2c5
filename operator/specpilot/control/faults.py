"""What keeps this operator from working for one object, as its owner should hear of it. Pure."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from pathlib import Path

from specpilot.api import status as api
from specpilot.api.vocabulary import Condition, Reason
from specpilot.cluster.apply import Foreign
from specpilot.cluster.errors import ClusterError, Forbidden, Invalid
from specpilot.control.conditions import Finding
from specpilot.control.rollout import Trouble

_PACKAGE = Path(__file__).parents[1]
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_LONGEST = 300  # characters of an exception's own words
# What Progressing says of a spec that has been applied; every other reason is why one was not.
_APPLIED = (Reason.ROLLED_OUT, Reason.ROLLING_OUT, Reason.WAITING_FOR_PROFILE, Reason.DEADLINE_EXCEEDED)
_LASTING = (Forbidden, Invalid)
# Failures in a row that may pass unsaid; one more is told, as of a webhook that is broken for good.
PASSING = 5
_ALLOW = "raise the quota, or give the operator the rights that its chart has"


def trouble_of(error: Exception) -> Trouble:
    """What to say of an exception that nobody foresaw; the same words each time that it comes back, or
    every retry would write a status."""
    said = _ADDRESS.sub("0x…", " ".join(f"{type(error).__name__}: {error}".split()))[:_LONGEST]
    return Trouble(
        Reason.INTERNAL_ERROR,
        f"the operator has a bug that this object meets ({said}{_place(error)}); schedule and pods stay as they"
        " are: take the last change of the object back, and report this with the operator's log",
    )


def unwritten(error: ClusterError, in_a_row: int) -> Finding | None:
    """The word on Tuned when a schedule or the tuner's memory is refused, or failed so many times in a row; None for
    what may pass by itself."""
    if _may_pass(error, in_a_row):
        return None
    return Finding(
        Reason.APPLY_FAILED,
        f"the schedule in force stays, since what was learnt cannot be written {_advised(error)}",
    )


def unstored(error: ClusterError, in_a_row: int) -> str:
    """The word on Profiled when measured points are refused, or failed so many times in a row; "" for what may pass by
    itself."""
    if _may_pass(error, in_a_row):
        return ""
    return f"what was measured cannot be written {_advised(error)}"


def _may_pass(error: ClusterError, in_a_row: int) -> bool:
    return not isinstance(error, _LASTING) and in_a_row <= PASSING


def _advised(error: ClusterError) -> str:
    if isinstance(error, Foreign):
        return f"({error.message})"
    if isinstance(error, _LASTING):
        return f"({error.message}): {_ALLOW}"
    return f"({error.message}): it is tried again"


def was_applied(before: Sequence[api.Condition], generation: int) -> bool:
    """Whether an earlier status says that this generation of the spec is what pods are made of."""
    progressing = next((c for c in before if c.type == Condition.PROGRESSING), None)
    return (
        progressing is not None
        and progressing.observed_generation == generation
        and progressing.reason in _APPLIED
    )


def _place(error: Exception) -> str:
    """Where in our own code, as deep as it is ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f" at {path.relative_to(_PACKAGE)}:{frame.lineno}"
    return ""
