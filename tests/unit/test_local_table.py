"""What a person sees of a run in a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from specpilot.api.vocabulary import Reason
from specpilot.decide.decision import Decision
from specpilot.local.replica import Phase
from specpilot.local.table import render, sparkline
from specpilot.local.view import Change, ReplicaView, View
from specpilot_engine.protocol import Exploration, Schedule, Step

SCHEDULE = Schedule(5, (Step(16, 7), Step(64, 1)))
SERVING = ReplicaView("flash-0", "http://127.0.0.1:8000", Phase.READY, True, 12.4, 6.8, 3.21, 1234.5)
DECISION = Decision(True, SCHEDULE.steps, Exploration(), Reason.TRAFFIC_SHIFT, "depth 7 instead of 1")


def shown(view: View, width: int = 80, history: tuple[View, ...] = ()) -> str:
    console = Console(width=width, color_system=None, file=StringIO())
    with console.capture() as captured:
        console.print(render(view, "heading", history))
    return captured.get()


def view(*replicas: ReplicaView, **more: object) -> View:
    values: dict[str, object] = {"schedule": SCHEDULE, "decision": DECISION, "decided_at": 98.0, **more}
    return View(100.0, "flash", replicas, **values)  # type: ignore[arg-type]


def test_it_tells_what_runs_what_was_decided_and_why() -> None:
    text = shown(view(SERVING, events=((99.0, "flash-0 serves on http://127.0.0.1:8000"),)))
    row = next(line for line in text.splitlines() if line.strip().startswith("flash-0"))
    assert row.split() == ["flash-0", "ready", "12", "6.8", "(7)", "3.21", "1,234", "✓", "5"]
    assert "7 at 1–16   1 at 17+" in text
    assert "TrafficShift  depth 7 instead of 1  2 s ago" in text
    assert "flash-0 serves on" in text


def test_a_replica_that_does_not_serve_yet_has_no_numbers() -> None:
    text = shown(view(ReplicaView("flash-0", "http://x", Phase.PROFILING), points=3, points_planned=20))
    row = next(line for line in text.splitlines() if line.strip().startswith("flash-0"))
    assert row.split() == ["flash-0", "profiling", "–", "–", "–", "–", "–"]
    assert "3 of 20 step times" in text


def test_a_schedule_that_is_not_in_use_yet_is_marked() -> None:
    late = ReplicaView("flash-0", "http://x", Phase.READY, False, 12.0, 7.0, 3.0, 100.0)
    assert "… 5" in shown(view(late))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ([(4, True), (5, True)], None),
        ([(4, True), (5, False)], "generation 5: the same depths, other exploring"),
        (
            [(2, False), (3, True), (4, False), (5, False)],
            "generations 4 to 5: the same depths, other exploring",
        ),
    ],
)
def test_generations_that_only_explore_say_so(made: list[tuple[int, bool]], words: str | None) -> None:
    changes = tuple(
        Change(90.0, Schedule(generation, SCHEDULE.steps), "BetterSchedule", "", None, steps)
        for generation, steps in made
    )
    text = shown(view(SERVING, changes=changes))
    assert ("other exploring" in text) == (words is not None)
    assert words is None or words in text


def test_an_engine_without_a_drafter_has_no_schedule() -> None:
    text = shown(View(100.0, "plain", (ReplicaView("plain-0", "http://x", Phase.READY),)))
    assert "stock vLLM" in text
    assert "last look" not in text


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_urls_appear_where_there_is_room(width: int) -> None:
    text = shown(view(SERVING, SERVING), width)
    assert max(map(len, text.splitlines())) <= width
    assert ("http://127.0.0.1:8000" in text) == (width >= 100)


def test_history_is_drawn_as_goodput_and_depth() -> None:
    other = ReplicaView("flash-0", "u", Phase.READY, True, 4.0, 1.0, 1.5, 600.0)
    text = shown(view(SERVING), history=(view(other), view(other), view(SERVING)))
    assert "117" in next(line for line in text.splitlines() if line.startswith("│ depth"))


def test_a_line_of_blocks_starts_at_zero() -> None:
    assert sparkline([0, 4, 8]) == " ▄█"
    assert sparkline([0, 0]) == ""
