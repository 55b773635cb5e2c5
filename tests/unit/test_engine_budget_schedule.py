"""The budget in the schedule file: read by engines that know it, read past by those that do not."""

import hashlib
import json

import pytest

from specpilot_engine.protocol import Budget, Schedule, ScheduleError, Step, canonical, parse_schedule

PLAIN = Schedule(3, (Step(8, 3),))
WITH = Schedule(3, (Step(8, 3),), budget=Budget(0.005))


def digest(parts: dict) -> str:
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:16]


def test_a_schedule_with_a_budget_is_read_back_as_it_was_written():
    assert parse_schedule(WITH.dump()) == WITH
    assert parse_schedule(WITH.dump()).budget == Budget(0.005)


def test_a_schedule_without_one_is_the_bytes_it_always_was():
    assert "optional" not in json.loads(PLAIN.dump())
    assert parse_schedule(PLAIN.dump()).budget.price == 0.0


def test_an_engine_that_knows_no_budget_accepts_the_file_and_acknowledges_it():
    """It hashes what it knows: the document without the optional parts."""
    document = json.loads(WITH.dump())
    del document["optional"]
    assert canonical(document) == PLAIN.dump()
    assert PLAIN.hash == WITH.hash


def test_an_optional_part_of_a_later_version_is_read_past():
    document = json.loads(WITH.dump())
    parts = {"budget": {"price": 0.01}, "something": [1]}
    with_both = Schedule(3, (Step(8, 3),), budget=Budget(0.01))
    document["optional"] = {**parts, "hash": digest(parts)}
    assert parse_schedule(canonical(document)) == with_both


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"budget": {"price": 0.02}, "hash": "0" * 16}, "optional.hash does not match"),
        ({"budget": {"price": 0.02}}, "optional.hash does not match"),
        ([1], "optional is not an object"),
    ],
)
def test_a_damaged_optional_part_is_refused_by_name(part, message):
    document = json.loads(WITH.dump()) | {"optional": part}
    with pytest.raises(ScheduleError, match=message):
        parse_schedule(canonical(document))


def test_a_price_that_is_none_is_refused_by_name():
    parts = {"budget": {"price": 2}}
    document = json.loads(PLAIN.dump())
    document["optional"] = {**parts, "hash": digest(parts)}
    with pytest.raises(ScheduleError, match=r"budget\.price must be a number from 0 to 1, not 2"):
        parse_schedule(canonical(document))


def test_a_file_that_nests_without_end_is_refused() -> None:
    with pytest.raises(ScheduleError, match="not JSON"):
        parse_schedule("[" * 100_000)
