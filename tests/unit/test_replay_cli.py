"""`specpilot bench replay`: what it prints, what it writes, and how it says no."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.unit.replay_small import PHASE, document
from typer.testing import CliRunner

from specpilot.cli import app


@pytest.fixture
def worlds(tmp_path: Path) -> Path:
    folder = tmp_path / "worlds"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.json").write_text(
            json.dumps(document(name=name, phases=[{**PHASE, "seconds": 30}]))
        )
    return folder


def bench(*args: Any) -> Result:
    return CliRunner().invoke(app, ["bench", "replay", *map(str, args)], env={"COLUMNS": "100"})


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.strip()]


def test_one_world_gives_a_table_and_its_document(worlds: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = bench(
        worlds / "one.json", "--policy", "fixed-0", "--policy", "oracle", "--seed", 4, "--json", out
    )
    assert result.exit_code == 0, result.output
    doc = json.loads(out.read_text())
    assert (doc["world"], doc["seed"], list(doc["policies"])) == ("one", 4, ["fixed-0", "oracle"])
    title, header, first, second, *_ = rows(result.output)
    assert title == ["one", "1", "phase,", "0.5", "min,", "seed", "4"]
    assert header == ["policy", "tokens", "share", "worst", "changes", "settled,", "s"]
    best = doc["policies"]["oracle"]["tokens"]
    assert first == ["oracle", f"{best:,}", "100.0%", "100.0%", "0", "0"]
    share = f"{doc['policies']['fixed-0']['oracle_share']:.1%}"
    assert [second[0], second[2], second[-1]] == ["fixed-0", share, "–"]


def test_several_worlds_end_in_a_table_of_means_and_a_list_of_documents(worlds: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = bench(worlds, "--policy", "fixed-0", "--policy", "fixed-3", "--json", out)
    assert result.exit_code == 0, result.output
    assert [doc["world"] for doc in json.loads(out.read_text())] == ["one", "two"]
    printed = rows(result.output)
    summary = printed[printed.index(["2", "worlds"]) :]
    assert summary[1] == ["policy", "worlds", "share", "worst", "changes"]
    assert {tuple(row[:3]) for row in summary[2:4]} == {
        ("best", "fixed", "2"),
        ("fixed-3", "2", "100.0%"),
    }
    assert summary[4][:2] == ["fixed-0", "2"]


def test_a_fixed_depth_plays_where_it_is_a_candidate(worlds: Path, tmp_path: Path) -> None:
    shallow = document(name="shallow", depths=[0, 1, 2], phases=[{**PHASE, "seconds": 30}])
    (worlds / "shallow.json").write_text(json.dumps(shallow))
    out = tmp_path / "out.json"
    result = bench(worlds, "--policy", "fixed-0", "--policy", "fixed-3", "--json", out)
    assert result.exit_code == 0, result.output
    played = {doc["world"]: list(doc["policies"]) for doc in json.loads(out.read_text())}
    assert played == {"one": ["fixed-0", "fixed-3"], "two": ["fixed-0", "fixed-3"], "shallow": ["fixed-0"]}
    assert bench(worlds, "--policy", "fixed-2", "--json", out).exit_code == 0
    assert json.loads(out.read_text())["world"] == "shallow"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            ["missing.json"],
            "specpilot: missing.json cannot be read (No such file or directory): name a world's JSON file",
        ),
        (
            ["{worlds}/none"],
            "specpilot: {worlds}/none has no .json files: name a world's file or a folder of them",
        ),
        (["{worlds}/bad.txt"], "specpilot: {worlds}/bad.txt: depths is missing: add it"),
        (
            ["{worlds}/one.json", "--policy", "specpilo"],
            "specpilot: specpilo is not a policy that can play one: did you mean specpilot?",
        ),
        (
            ["{worlds}/one.json", "--dwell", "soon"],
            "specpilot: --dwell takes a duration such as 60s or 2m, not soon",
        ),
    ],
)
def test_what_cannot_be_played_is_one_sentence(worlds: Path, args: list[str], sentence: str) -> None:
    (worlds / "none").mkdir()
    (worlds / "bad.txt").write_text('{"name": "bad"}')
    result = bench(*(arg.format(worlds=worlds) for arg in args))
    assert result.exit_code == 2
    assert result.stderr == sentence.format(worlds=worlds) + "\n"
    assert result.stdout == ""


def test_a_file_that_cannot_be_written_is_one_sentence(worlds: Path) -> None:
    result = bench(worlds / "one.json", "--policy", "fixed-0", "--json", worlds)
    assert result.exit_code == 1
    assert result.stderr == f"specpilot: {worlds} cannot be written (Is a directory): name another file\n"
