"""The tuner's memory: small, exact enough, and never a reason to fail."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuner_world import Phase, Run, World, play

from specpilot.decide.memory import Memory, materially_differs
from specpilot.estimate.cost import Costs
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.survival import SurvivalMemory, believe
from specpilot_engine.protocol import Step

DEPTHS = (0, 1, 3)
WORLD = World(
    DEPTHS, (1, 16, 64), [[0.010, 0.012, 0.020], [0.012, 0.017, 0.037], [0.016, 0.027, 0.070]], max_batch=64
)
SURVIVAL = (0.75, 0.55, 0.4)


@pytest.fixture(scope="module")
def memory() -> Memory:
    """After half an hour of traffic at two loads."""
    return play(WORLD, [Phase(900, 16, SURVIVAL), Phase(900, 40, SURVIVAL)], WORLD.profile()).memory


def test_what_is_read_back_decides_as_what_was_written(memory: Memory) -> None:
    back = Memory.from_json(memory.to_json())
    assert (back.steps, back.exploration, back.changed_at) == (
        memory.steps,
        memory.exploration,
        memory.changed_at,
    )
    assert believe(back.survival, 3).survival == pytest.approx(believe(memory.survival, 3).survival, rel=1e-4)
    prior = CostPrior(WORLD.profile())
    one, other = (Costs(m.cost, prior, DEPTHS, 64, None) for m in (memory, back))
    assert other.log_seconds == pytest.approx(one.log_seconds, abs=1e-4)
    assert other.differences() == pytest.approx(one.differences(), abs=1e-5)
    assert back.load.weights(64) == pytest.approx(memory.load.weights(64), abs=1e-4)
    assert not materially_differs(back, memory)


def test_writing_twice_gives_the_same_text_and_it_is_small(memory: Memory) -> None:
    text = memory.to_json()
    assert Memory.from_json(text).to_json() == Memory.from_json(Memory.from_json(text).to_json()).to_json()
    assert len(text) < 16_000


def test_fresh_evidence_is_not_persisted(memory: Memory) -> None:
    assert memory.fresh > 100
    assert Memory.from_json(memory.to_json()).fresh == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"version":99}',
        '{"version":1}',
        '{"version":1,"survival":3}',
        "{",
        '"x"',
        "1e999",
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_an_unreadable_memory_starts_afresh_and_says_so(text: str) -> None:
    found = Memory.from_json(text)
    assert found.note
    assert replace(found, note="") == Memory()


@given(st.data())
def test_a_damaged_memory_never_raises(memory: Memory, data: st.DataObject) -> None:
    document = json.loads(memory.to_json())
    path = data.draw(st.sampled_from(["survival", "cost", "load", "schedule", "exploration", "changedAt"]))
    document[path] = data.draw(
        st.one_of(st.none(), st.floats(), st.text(max_size=3), st.lists(st.floats(), max_size=3), st.just({}))
    )
    assert isinstance(Memory.from_json(json.dumps(document)), Memory)


def numbers(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers stand in a JSON document."""
    inside = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inside:
        if isinstance(value, dict | list):
            yield from numbers(value, (*path, key))
        elif isinstance(value, int | float):
            yield (*path, key)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_number_stands_in_a_memory_the_tuner_goes_on(memory: Memory, data: st.DataObject) -> None:
    document = json.loads(memory.to_json())
    *path, last = data.draw(st.sampled_from(list(numbers(document))))
    part = document
    for key in path:
        part = part[key]
    part[last] = data.draw(st.sampled_from([0, -1, 5e-324, 1e308, math.nan, math.inf, 1e6]))
    spoiled = Run(memory=Memory.from_json(json.dumps(document)))
    with np.errstate(all="raise", under="ignore"):
        play(WORLD, [Phase(45, 16, SURVIVAL)], WORLD.profile(), resume=spoiled)


def test_a_steady_state_is_not_worth_a_write(memory: Memory) -> None:
    assert not materially_differs(memory, memory)
    trembling = replace(
        memory,
        fresh=memory.fresh + 10,
        survival=replace(memory.survival, accepted=tuple(a * 1.005 for a in memory.survival.accepted)),
    )
    assert not materially_differs(memory, trembling)
    assert not materially_differs(trembling, memory)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": (Step(64, 1),)},
        {"changed_at": 1.0},
        {"shifted_at": 2.0},
        {"survival": SurvivalMemory((5e4,) * 3, (1e4,) * 3)},
    ],
)
def test_what_a_restart_would_lose_is(memory: Memory, change: dict[str, object]) -> None:
    assert materially_differs(memory, replace(memory, **change))  # type: ignore[arg-type]


def test_first_evidence_is_worth_a_write(memory: Memory) -> None:
    assert materially_differs(Memory(), memory)
