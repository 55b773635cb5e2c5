"""Why this depth: the table and the page, from files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from specpilot.api.objects import SpeculativeDeployment
from specpilot.cli import app
from specpilot.decide.memory import Memory
from specpilot.estimate.survival import SurvivalMemory
from specpilot.explain.page import page
from specpilot.explain.sources import from_file
from specpilot.explain.subject import Subject, explain
from specpilot.explain.words import verdict
from specpilot.local.state import State
from specpilot.plan.fingerprint import request_key
from specpilot_engine.protocol import ProfilePoint, Schedule, Step

FILE = """
apiVersion: specpilot.io/v1alpha1
kind: SpeculativeDeployment
metadata: {name: flash}
spec:
  model: {name: demo}
  engine: {image: "vllm/vllm-openai:v0.33.0", args: [--max-num-seqs, "8"]}
  speculation: {method: MTP, maxTokens: 3, candidates: [0, 1, 3]}
"""
SECONDS = {0: {1: 0.010, 8: 0.012}, 1: {1: 0.011, 8: 0.016}, 3: {1: 0.013, 8: 0.030}}
POINTS = tuple(ProfilePoint(k, b, 512, s, 0.01, 16) for k, at in SECONDS.items() for b, s in at.items())
SEEN = SurvivalMemory((1e6,) * 3, (8e5, 6e5, 4e5), (0.8, 0.75, 0.67), (1, 1, 1))
SUBJECT = Subject("llm/flash", (0, 1, 3), 8, POINTS, Memory(SEEN), Schedule(5, (Step(4, 3), Step(8, 1))))


def test_every_alternative_is_accepted_length_over_step_time() -> None:
    it = explain(SUBJECT, (1, 8))
    assert it.batches == [1, 8]
    assert it.survival == pytest.approx((0.8, 0.6, 0.4), abs=0.01)
    for batch in (1, 8):
        lengths = {0: 1.0, 1: 1.8, 3: 2.8}
        for row in it.at(batch):
            assert row.seconds == pytest.approx(SECONDS[row.tokens][batch], rel=0.01)
            assert row.accepted_length == pytest.approx(lengths[row.tokens], rel=0.01)
            assert row.goodput == pytest.approx(
                batch * lengths[row.tokens] / SECONDS[row.tokens][batch], rel=0.02
            )


def test_the_schedule_in_force_is_marked_and_the_others_are_held_against_it() -> None:
    it = explain(SUBJECT, (1, 8))
    assert (it.in_force(1).tokens, it.in_force(8).tokens) == (3, 1)
    words = {row.tokens: verdict(it, row) for row in it.at(8)}
    assert words[1] == "in force"
    # (2.8 / 0.030) / (1.8 / 0.016) - 1
    assert words[3].startswith("-17.")


def test_without_a_schedule_the_best_is_marked() -> None:
    it = explain(Subject("profile", (0, 1, 3), 8, POINTS, Memory(SEEN)), (1, 8))
    assert [it.in_force(b).tokens for b in (1, 8)] == [3, 1]
    assert verdict(it, it.in_force(1)) == "best"


def test_a_depth_that_cannot_run_is_never_called_best() -> None:
    narrow = Subject("x", (0, 1, 3), 8, POINTS, Memory(SEEN), allowed=lambda k, _: k < 3)
    it = explain(narrow, (1,))
    assert it.best(1).tokens == 1
    assert verdict(it, it.at(1)[2]).startswith("not allowed (+")


def test_a_run_on_this_machine_is_explained_from_its_state(tmp_path: Path) -> None:
    file, folder = tmp_path / "flash.yaml", tmp_path / "state"
    file.write_text(FILE)
    sd = SpeculativeDeployment.parse({"metadata": {"name": "flash"}, "spec": _spec()})

    state = State(folder, sd, request_key(sd.spec))
    with state.held():
        state.write_points(POINTS, 6)
        state.write_schedule(Schedule(5, (Step(4, 3), Step(8, 1))))
        state.write_memory(Memory(SEEN))
    result = CliRunner().invoke(
        app,
        ["explain", str(file), "--state", str(folder), "--batch", "8", "--html", str(tmp_path / "why.html")],
    )
    assert result.exit_code == 0, result.output
    assert "generation 5" in result.output
    assert "in force" in result.output
    assert "6 measured step times" in result.output
    html = (tmp_path / "why.html").read_text()
    assert "Why this depth? default/flash" in html
    assert "<script src=" not in html
    # The profile that the run left is a subject of its own.
    subject = from_file(state.profile_file)
    assert (subject.depths, subject.max_batch, len(subject.points)) == ((0, 1, 3), 8, 6)
    assert "no traffic has been seen" in subject.notes[0]


def test_the_table_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    state = State(
        tmp_path, SpeculativeDeployment.parse({"metadata": {"name": "flash"}, "spec": _spec()}), "k" * 16
    )
    state.write_points(POINTS, 6)
    result = CliRunner().invoke(app, ["explain", str(state.profile_file)])
    assert result.exit_code == 0, result.output
    assert "…" not in result.output


def test_the_page_escapes_names() -> None:
    assert "<script>alert" not in page(explain(Subject("<script>alert(1)", (0, 1), 4)))


def _spec() -> dict[str, object]:

    spec: dict[str, object] = yaml.safe_load(FILE)["spec"]
    return spec
