"""What an explanation says: the head, the picture in a terminal, the table, the page."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console

from specpilot.decide.memory import Memory, Undone
from specpilot.estimate.load import LoadMemory
from specpilot.estimate.survival import SurvivalMemory
from specpilot.explain import words
from specpilot.explain.block import Drafts, Verification
from specpilot.explain.page import page
from specpilot.explain.subject import Explanation, Subject, explain
from specpilot.explain.table import columns, render
from specpilot_engine.protocol import Exploration, ProfilePoint, Schedule, Step, Trial

SECONDS = {0: {1: 0.010, 16: 0.012}, 1: {1: 0.011, 16: 0.016}, 3: {1: 0.013, 16: 0.030}}
POINTS = tuple(ProfilePoint(k, b, 512, s, 0.01, 16) for k, at in SECONDS.items() for b, s in at.items())
SEEN = SurvivalMemory((1e6,) * 3, (8e5, 6e5, 4e5), (0.8, 0.75, 0.67), (1, 1, 1))
LOAD = LoadMemory({16: 100.0}, {16: 16.0}, 512.0)
SCHEDULE = Schedule(5, (Step(4, 3), Step(16, 0)))
SUBJECT = Subject("llm/flash", (0, 1, 3), 16, POINTS, Memory(SEEN, load=LOAD), SCHEDULE, minimum_gain=0.03)
SAMPLED = Verification(drafts=Drafts.SAMPLED)


def text(it: Explanation, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(render(it))
    return console.export_text()


def flat(it: Explanation, width: int = 100) -> str:
    return " ".join(text(it, width).split())


def test_the_head_says_what_runs_what_would_be_best_and_what_that_would_give() -> None:
    said = dict(words.head(explain(SUBJECT)))
    assert said["in force"] == "depth 3 up to 4 requests, then 0 (generation 5)"
    assert said["load"] == "16 running 100% of the time; context 512 tokens"
    # (1.8 / 0.016) / (1 / 0.012) - 1 = 35%, at the load alone.
    best = re.fullmatch(
        r"depth 3 up to \d+ requests, then 1: \+35\.\d% ± \d\.\d% goodput at the load;"
        r" a change takes 3\.0% beyond that uncertainty; where a trial can prove it, it need only be likely",
        said["best known"],
    )
    assert best, said["best known"]


def test_a_schedule_that_is_the_best_at_the_load_is_called_that() -> None:
    it = explain(replace(SUBJECT, schedule=Schedule(6, (Step(8, 3), Step(16, 1)))))
    assert dict(words.head(it))["best known"].endswith("then 1: the same at the load")


def test_what_was_undone_at_the_load_is_said_while_it_holds() -> None:
    it = explain(SUBJECT)
    length, seconds = it.land.lengths, it.land.log_seconds[:, 15]
    believed = math.log(length[1] / length[0]), float(seconds[1] - seconds[0])
    for batch, moved, said in ((16.0, 0.0, True), (2.0, 0.0, False), (16.0, 0.2, False)):
        undone = Undone(batch, 0, 1, believed[0] + moved, believed[1], 1.0)
        head = dict(words.head(explain(replace(SUBJECT, memory=replace(SUBJECT.memory, undone=(undone,))))))
        expected = "depth 1 instead of 0 at 16 requests: not tried again until traffic or step times change"
        assert head.get("undone") == (expected if said else None)


def test_a_trial_and_exploring_are_said() -> None:
    schedule = replace(SCHEDULE, exploration=Exploration(0.005, 3), trial=Trial((Step(16, 1),), 8, 60))
    said = dict(words.head(explain(replace(SUBJECT, schedule=schedule))))
    assert said["exploring"] == "depth 3, for at most 0.50% of goodput"
    assert said["on trial"] == (
        "alternates with depth 1 at any load until it is told which gives more, 60 pairs of slices at most"
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ({8: 90.0, 16: 10.0}, "8 running 90% of the time, 16 running 10%"),
        (dict.fromkeys(range(1, 17), 1.0), "1 running 6% of the time, 2 running 6%, 3 running 6%"),
    ],
)
def test_the_load_is_told_by_its_busiest_sizes(seconds: dict[int, float], said: str) -> None:
    load = LoadMemory(seconds, {b: float(b) for b in seconds})
    assert words.load(explain(replace(SUBJECT, memory=Memory(SEEN, load=load)))) == said


def test_without_a_load_the_context_that_step_times_are_of_is_said() -> None:
    longer = tuple(replace(p, context=8192, seconds=2 * p.seconds) for p in POINTS)
    profile = Subject("llm/flash", (0, 1, 3), 16, POINTS + longer)
    said = "at 8,192 tokens of context, the longest measured (besides 512)"
    assert dict(words.head(explain(profile)))["step times"] == said
    loaded = replace(profile, memory=Memory(SEEN, load=LOAD))
    assert "step times" not in dict(words.head(explain(loaded)))
    assert "step times" not in dict(words.head(explain(replace(profile, points=POINTS))))


def test_at_every_batch_one_depth_is_in_force_and_depth_0_is_what_speedups_are_of() -> None:
    it = explain(SUBJECT)
    for batch in it.batches:
        rows = it.at(batch)
        assert [r.tokens for r in rows] == [0, 1, 3]
        assert sum(r.chosen for r in rows) == 1
        assert rows[0].speedup == pytest.approx(1)


def test_both_sides_of_the_marginal_rule_are_shown() -> None:
    shallow, one, three = explain(SUBJECT, (16,)).at(16)
    assert words.margin(shallow) == ""
    # (16 - 12) / 12 and (30 - 16) * 1.8 / 16.
    assert words.margin(one) == "0.80 > 0.33"
    assert words.margin(three).startswith("1.00 < 1.5")
    assert (one.pays, three.pays) == (True, False)


def test_a_batch_beyond_the_largest_is_shown_as_the_largest_and_said() -> None:
    it = explain(SUBJECT, (4, 999))
    assert it.batches == [4, 16]
    assert "no more than 16 requests run here: that is shown instead of 999" in flat(it)
    assert not explain(SUBJECT, (4, 16)).notes


def test_a_depth_over_the_latency_ceiling_is_not_called_best() -> None:
    # A token takes 12 ms at depth 0, 8.9 at 1 and 10.7 at 3.
    it = explain(replace(SUBJECT, ceiling=0.010), (16,))
    assert words.verdict(it, it.at(16)[2]).startswith("too slow (+12.")
    assert it.best(16).tokens == 1
    assert "ms/tok" in text(it)
    assert "ms/tok" not in text(explain(SUBJECT, (16,)))


def test_why_a_depth_is_out_is_the_plans_word() -> None:
    out = replace(SUBJECT, allowed=lambda k, _: k < 3, why=lambda _k, _b: "no graph")
    it = explain(out, (16,))
    assert words.verdict(it, it.at(16)[2]).startswith("no graph (+12.")
    meanings = dict(words.legend(it))
    assert "no graph" in meanings
    assert "too slow" not in meanings


def test_the_terminal_draws_depth_by_load() -> None:
    lines = text(explain(SUBJECT)).splitlines()
    drawn = {line.split()[1]: line[11:] for line in lines if re.match(r" +depth \d  ", line)}
    assert list(drawn) == ["3", "1", "0"]  # deep ones on top
    sizes = columns(16)
    assert (sizes[0], sizes[-1], len(sizes)) == (1, 16, 48)
    at_1, at_16 = 0, 47
    assert (drawn["3"][at_1], drawn["0"][at_16], drawn["1"][at_16]) == ("●", "●", "█")
    scale = next(line for line in lines if line.startswith("  running"))
    assert scale.split() == ["running", "1", "2", "4", "8", "16"]
    assert scale.index(" 16") == 11 + 47 - 1


@pytest.mark.parametrize("largest", [1, 2, 3, 100, 1024])
def test_any_largest_batch_can_be_drawn(largest: int) -> None:
    it = explain(Subject("x", (0, 1), largest))
    assert str(largest) in text(it, 80)
    assert "<h1>" in page(it)


def test_nothing_is_cut_off_at_80_columns() -> None:
    it = explain(replace(SUBJECT, ceiling=0.010, verification=SAMPLED))
    assert "…" not in text(it, 80)


def test_the_page_has_a_picture_of_everything_and_one_copy_of_the_library() -> None:
    html = page(explain(replace(SUBJECT, verification=SAMPLED)))
    for title in (
        "Goodput against the best depth at each load",
        "Depth at each load",
        "Marginal rule",
        "C, step time in ms",
        "L, accepted length",
        "Accepted length by depth, predicted by a model",
    ):
        assert title in html
    assert html.count('class="plotly-graph-div"') == 6
    assert html.count("plotly.js v") == 1
    assert "prefers-color-scheme: dark" in html
    assert "http-equiv" not in html
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="http', html)


def test_facts_and_notes_are_in_both() -> None:
    it = explain(replace(SUBJECT, facts=(("mode", "Observe: <b>"),), notes=("Tuned is False & why",)))
    assert "mode Observe: <b>" in flat(it)
    assert "Tuned is False & why" in flat(it)
    html = page(it)
    assert "Observe: &lt;b&gt;" in html
    assert "Tuned is False &amp; why" in html
