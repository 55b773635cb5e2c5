"""What a bug of the operator's says on the object that meets it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from specpilot.api.status import Condition
from specpilot.api.vocabulary import Reason
from specpilot.cluster.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unavailable,
    from_status,
)
from specpilot.control.faults import PASSING, trouble_of, unstored, unwritten, was_applied
from specpilot.plan.flags import parse


def caught(argument: Any) -> Exception:
    try:
        parse(argument)
    except Exception as e:
        return e
    raise AssertionError("no exception")


def test_the_sentence_names_the_exception_its_place_in_our_code_and_what_to_do() -> None:
    trouble = trouble_of(caught(7))
    assert trouble.reason is Reason.INTERNAL_ERROR
    assert re.fullmatch(
        r"the operator has a bug that this object meets \(TypeError: 'int' object is not iterable at"
        r" plan/flags\.py:\d+\); schedule and pods stay as they are: take the last change of the object back, and"
        r" report this with the operator's log",
        trouble.message,
    )


def test_the_same_bug_says_the_same_each_time() -> None:
    first, second = (trouble_of(ValueError(f"no good: {object()!r}\n  and more")) for _ in range(2))
    assert first == second
    assert "no good: <object object at 0x…> and more" in first.message


def test_an_endless_exception_is_cut() -> None:
    assert len(trouble_of(ValueError("x" * 10_000)).message) < 600


def test_a_write_that_is_refused_for_good_is_told_and_one_that_may_pass_is_not() -> None:
    refused = unwritten(
        from_status(403, '{"message": "exceeded quota: q"}', "apply of ConfigMap flash-tuner"), 1
    )
    assert refused is not None
    assert refused.reason is Reason.APPLY_FAILED
    assert "(apply of ConfigMap flash-tuner: exceeded quota: q): raise the quota" in refused.message
    assert "(apply of ConfigMap flash-tuner: exceeded quota: q): raise the quota" in unstored(
        from_status(403, '{"message": "exceeded quota: q"}', "apply of ConfigMap flash-tuner"), 1
    )
    for passing in (from_status(status, None, "apply") for status in (404, 409, 429, 500)):
        assert (unwritten(passing, PASSING), unstored(passing, PASSING)) == (None, "")


def test_a_write_that_fails_again_and_again_is_told_without_advice_that_would_not_help() -> None:
    failed = from_status(500, '{"message": "failed calling webhook w"}', "apply of ConfigMap flash-tuner")
    told = unwritten(failed, PASSING + 1)
    assert told is not None
    assert told.reason is Reason.APPLY_FAILED
    assert told.message.endswith(
        "cannot be written (apply of ConfigMap flash-tuner: failed calling webhook w): it is tried again"
    )
    assert unstored(failed, PASSING + 1).endswith("failed calling webhook w): it is tried again")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Unavailable),  # a list that changed between two of its pages: the kind is there all the same
        (422, Invalid),
        (429, Unavailable),
        (500, Unavailable),
        (0, Unavailable),
    ],
)
def test_what_an_answer_means_for_trying_again(status: int, kind: type[ClusterError]) -> None:
    assert type(from_status(status, None, "list")) is kind


@pytest.mark.parametrize(
    ("reason", "generation", "applied"),
    [
        ("RolledOut", 3, True),
        ("RollingOut", 3, True),
        ("RolledOut", 2, False),
        ("InternalError", 3, False),
        ("InvalidPodTemplate", 3, False),
    ],
)
def test_a_spec_counts_as_applied_once_its_rollout_was_told(
    reason: str, generation: int, applied: bool
) -> None:
    told = Condition(
        type="Progressing",
        status="False",
        reason=reason,
        observed_generation=generation,
        last_transition_time="2026-01-01T00:00:00Z",
    )
    assert was_applied([told], 3) is applied
    assert was_applied([], 3) is False
