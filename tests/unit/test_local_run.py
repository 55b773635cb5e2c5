"""What a run takes over from the one before, on a spec that may have changed meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.control.step import settings
from specpilot.local.points import renew
from specpilot.local.run import _to_begin_with
from specpilot_engine.profiler.store import PointStore
from specpilot_engine.protocol import Budget, Exploration, ProfilePoint, Schedule, Step, Trial

STORED = Schedule(7, (Step(4, 7), Step(128, 1)), Exploration(0.005, 3, 0.1, 64), Budget(0.005))
POINT = ProfilePoint(3, 8, 512, 0.02, 0.02, 16)


def begun(stored: Schedule, deepest: int = 7, **tuning: Any) -> Schedule:
    spec = SpeculativeDeploymentSpec.model_validate(
        {
            "model": {"name": "m"},
            "engine": {"image": "vllm:v0.33.0-cpu"},
            "speculation": {"method": "DraftModel", "maxTokens": deepest, "draftModel": {"name": "d"}},
            "tuning": tuning,
        }
    )
    return _to_begin_with(stored, (), settings(spec, stored))


def test_a_run_begins_with_the_schedule_of_the_one_before() -> None:
    assert begun(STORED) == STORED


@pytest.mark.parametrize("tuning", [{"mode": "Observe"}, {"mode": "Recommend"}, {"explorationPrice": 0.0}])
def test_leave_that_was_withdrawn_between_two_runs_is_withdrawn(tuning: dict[str, Any]) -> None:
    found = begun(STORED, **tuning)
    assert (found.generation, found.steps) == (8, STORED.steps)
    assert (found.exploration, found.budget) == (Exploration(), Budget())


@pytest.mark.parametrize(
    "stored", [STORED, Schedule(7, (Step(128, 1),), trial=Trial((Step(128, 7),), 8, 60))]
)
def test_a_schedule_that_engines_can_run_no_longer_gives_way_to_a_first_one(stored: Schedule) -> None:
    found = begun(stored, deepest=3)
    assert found.generation == 8
    assert max(step.tokens for step in found.steps) <= 3
    assert found.trial is None


def test_what_an_earlier_run_measured_stays_and_what_it_spent_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "points.jsonl"
    before = PointStore(str(file), "key")
    before.measuring(True)
    before.append(POINT, 29.5)
    with file.open("a") as cut:
        cut.write('{"key": "key", "poi')
    renew(file)
    after = PointStore(str(file), "key")
    assert (list(after.points.values()), after.spent, after.cut_short) == ([POINT], 0.0, 0)
    renew(tmp_path / "none")
    assert list(tmp_path.iterdir()) == [file]
