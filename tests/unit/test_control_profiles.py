"""What profilers answer becomes a CostProfile that the API server never has a reason to refuse."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.api.growth import POINT, PROFILE
from specpilot.api.profile import MAX_POINTS, CostProfileSpec, Fingerprint, Point
from specpilot.control.profiles import merged, outcome
from specpilot.metrics.scrape import ProfileAnswer
from specpilot_engine.protocol import ProfilePoint

FULL = f"a CostProfile holds {MAX_POINTS} points: delete it to have others measured"


def answer(*points: ProfilePoint) -> ProfileAnswer:
    return ProfileAnswer("k", points, 4, finished=False)


def measured(tokens: int, batch: int, seconds: float = 0.01) -> ProfilePoint:
    return ProfilePoint(tokens, batch, 64, seconds, 0.1, 16)


def spec(points: Sequence[Point]) -> CostProfileSpec:
    return CostProfileSpec(key="k", fingerprint=Fingerprint(model="m", method="MTP"), points=list(points))


def test_points_of_all_pods_are_put_together_and_stored_ones_stay() -> None:
    first, _ = merged([], [answer(measured(1, 8))])
    both, left_out = merged(
        first, [answer(measured(1, 8, 0.02), measured(0, 8, 0.005)), answer(measured(3, 8, 0.03))]
    )
    assert [(p.tokens, p.seconds) for p in both] == [(0, 0.005), (1, 0.01), (3, 0.03)]
    assert left_out == ""


def test_a_full_profile_keeps_what_it_has_and_says_why_it_takes_no_more() -> None:
    stored, _ = merged([], [answer(*(measured(8, batch) for batch in range(2, MAX_POINTS + 2)))])
    assert len(stored) == MAX_POINTS
    again, left_out = merged(stored, [answer(measured(0, 1), measured(8, 2))])
    assert again == stored
    assert left_out == FULL


def test_the_points_answered_first_are_those_that_still_find_room() -> None:
    stored, _ = merged([], [answer(*(measured(8, batch) for batch in range(1, MAX_POINTS)))])
    found, left_out = merged(stored, [answer(measured(9, 1), measured(0, 1))])
    assert {(p.tokens, p.batch_size) for p in found} - {(p.tokens, p.batch_size) for p in stored} == {(9, 1)}
    assert left_out == FULL


def test_points_that_no_costprofile_may_hold_are_told_and_keep_no_other_out() -> None:
    found, left_out = merged([], [answer(measured(99, 8), measured(1, 100_000), measured(1, 8))])
    assert [(p.tokens, p.batch_size) for p in found] == [(1, 8)]
    assert left_out == "2 measured points are beyond what a CostProfile may say"


_ANSWERS = st.lists(
    st.lists(
        st.builds(
            ProfilePoint,
            st.integers(-1, 34),
            st.integers(0, 4100),
            st.sampled_from([0, 64, 8192]),
            st.floats(1e-6, 1.0),
            st.floats(0.0, 1.0),
            st.integers(0, 99),
        ),
        max_size=400,
    ),
    max_size=3,
)


@given(before=_ANSWERS, after=_ANSWERS)
def test_whatever_profilers_answer_a_profile_only_grows(
    before: list[list[ProfilePoint]], after: list[list[ProfilePoint]]
) -> None:
    old = spec(merged([], [answer(*points) for points in before])[0])
    new = spec(merged(old.points, [answer(*points) for points in after])[0])
    CostProfileSpec.model_validate(new.to_json())  # no longer than its list may be
    assert not any(policy.violated((old, new)) for policy in PROFILE)
    kept = {(p.tokens, p.batch_size, p.context_length): p for p in new.points}
    for point in old.points:
        now = kept[point.tokens, point.batch_size, point.context_length]
        assert not any(policy.violated((point, now)) for policy in POINT)


@pytest.mark.parametrize(
    ("stored", "finished", "expected"),
    [
        (1, False, ("Unknown", "Profiling")),
        (4, True, ("True", "Measured")),
        (3, True, ("False", "ProfileIncomplete")),
        (0, True, ("False", "ProfileFailed")),
    ],
)
def test_the_outcome_of_a_measurement(stored: int, finished: bool, expected: tuple[str, str]) -> None:
    condition = outcome(stored, 4, finished, "the budget is spent")
    assert (condition.status, condition.reason) == expected
    assert condition.message == ("the budget is spent" if finished else "")
