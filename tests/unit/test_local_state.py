"""What is kept between runs on one machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from specpilot.api.objects import CostProfile, SpeculativeDeployment
from specpilot.decide.memory import Memory
from specpilot.local.errors import LocalError
from specpilot.local.state import State, default_folder
from specpilot_engine.protocol import ProfilePoint, Schedule, Step

SD = SpeculativeDeployment.parse(
    {
        "metadata": {"name": "flash", "namespace": "llm"},
        "spec": {"model": {"name": "m"}, "engine": {"image": "vllm/vllm-openai:v0.33.0"}},
    }
)
KEY = "0123456789abcdef"
POINTS = (ProfilePoint(0, 1, 512, 0.01, 0.02, 16), ProfilePoint(3, 8, 512, 0.02, 0.02, 16))


def test_a_second_run_finds_what_the_first_has_learnt(tmp_path: Path) -> None:
    first = State(tmp_path / "new" / "state", SD, KEY)
    with first.held():
        assert (first.schedule(), first.points(), first.memory()) == (None, ((), 0), Memory())
        first.write_schedule(Schedule(4, (Step(8, 3),)))
        first.write_points(POINTS, 20)
        first.write_memory(Memory(shift="survival", shifted_at=9.0))
    second = State(tmp_path / "new" / "state", SD, KEY)
    with second.held():
        assert second.schedule() == Schedule(4, (Step(8, 3),))
        assert second.points() == (POINTS, 20)
        assert second.memory().shift == "survival"


def test_a_profile_of_another_engine_is_not_used(tmp_path: Path) -> None:
    State(tmp_path, SD, KEY).write_points(POINTS, 2)
    assert State(tmp_path, SD, "f" * 16).points() == ((), 0)


def test_the_profile_is_a_cost_profile_that_a_cluster_would_take(tmp_path: Path) -> None:
    state = State(tmp_path, SD, KEY)
    state.write_points(POINTS, 20)
    profile = CostProfile.model_validate_json(state.profile_file.read_text())
    assert profile.metadata.name == "flash-01234567"
    assert (profile.kind, profile.spec.key, len(profile.spec.points)) == ("CostProfile", KEY, 2)


def test_the_engine_package_is_copied_whole(tmp_path: Path) -> None:
    with State(tmp_path, SD, KEY).held():
        assert (tmp_path / "engine" / "specpilot_engine" / "scheduler.py").exists()
        assert (tmp_path / "engine" / "specpilot_engine" / "protocol").exists()


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    with (
        State(tmp_path, SD, KEY).held(),
        pytest.raises(
            LocalError, match=r"another run uses .* end that one, or name another folder with --state"
        ),
        State(tmp_path, SD, KEY).held(),
    ):
        pass
    with State(tmp_path, SD, KEY).held():
        pass


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(LocalError, match=r"cannot be used for state .*: name another folder with --state"),
        State(tmp_path / "file" / "state", SD, KEY).held(),
    ):
        pass


def test_a_schedule_file_is_whole_or_not_there(tmp_path: Path) -> None:
    state = State(tmp_path, SD, KEY)
    state.write_schedule(Schedule(1, (Step(8, 3),)))
    state.write_schedule(Schedule(2, (Step(8, 1),)))
    assert [p.name for p in (tmp_path / "flash-schedule").iterdir()] == ["schedule.json"]


def deployment(name: str, namespace: str = "llm", **spec: object) -> SpeculativeDeployment:
    body = {"model": {"name": "m"}, "engine": {"image": "vllm/vllm-openai:v0.33.0"}, **spec}
    return SpeculativeDeployment.parse({"metadata": {"name": name, "namespace": namespace}, "spec": body})


def test_the_default_folder_is_the_users_and_the_objects() -> None:
    assert default_folder(SD).name.startswith("llm_flash_")
    assert str(os.getuid()) in default_folder(SD).parent.name


def test_whatever_another_file_says_its_state_lies_elsewhere_unless_its_engine_is_the_same() -> None:
    others = [
        deployment("flash", model={"name": "n"}),
        deployment("flash", engine={"image": "vllm/vllm-openai:v0.33.0", "args": ["--enforce-eager"]}),
        deployment("flash", "other"),
        deployment("b-c", "a"),
        deployment("c", "a-b"),
    ]
    assert len({default_folder(sd) for sd in (SD, *others)}) == 6
    assert default_folder(deployment("flash", replicas=3, tuning={"mode": "Observe"})) == default_folder(SD)


def test_a_folder_with_another_objects_state_is_refused(tmp_path: Path) -> None:
    with State(tmp_path, SD, KEY).held():
        State(tmp_path, SD, KEY).write_schedule(Schedule(4, (Step(8, 3),)))
    other = State(tmp_path, deployment("flash", "staging"), KEY)
    with (
        pytest.raises(LocalError, match=r"keeps the state of llm/flash, and staging/flash is another: name"),
        other.held(),
    ):
        pass
    with State(tmp_path, SD, KEY).held():
        assert State(tmp_path, SD, KEY).schedule() == Schedule(4, (Step(8, 3),))


def test_a_default_folder_that_somebody_else_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    default_folder(SD).parent.mkdir()
    with (
        pytest.raises(LocalError, match="belongs to another user: name another folder with --state"),
        State(default_folder(SD), SD, KEY).held(),
    ):
        pass


def test_modules_of_another_version_do_not_stay_in_the_engine_package(tmp_path: Path) -> None:
    stale = tmp_path / "engine" / "specpilot_engine" / "of_another_version.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    with State(tmp_path, SD, KEY).held():
        assert not stale.exists()
        assert (stale.parent / "scheduler.py").exists()


def test_a_package_that_cannot_be_copied_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "engine").touch()
    with (
        pytest.raises(LocalError, match=r"to \S+ \(Not a directory\): free some space"),
        State(tmp_path, SD, KEY).held(),
    ):
        pass


def test_files_that_are_no_text_are_as_good_as_none(tmp_path: Path) -> None:
    state = State(tmp_path, SD, KEY)
    state.write_schedule(Schedule(4, (Step(8, 3),)))
    state.write_points(POINTS, 20)
    state.write_memory(Memory(shift="survival", shifted_at=9.0))
    for file in tmp_path.rglob("*.json"):
        file.write_bytes(b"\xff\xfe\x00")
    assert (state.schedule(), state.points()) == (None, ((), 0))
    assert state.memory().shift == ""
