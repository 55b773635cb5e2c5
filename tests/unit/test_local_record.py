"""What a demonstration reports, and the shares it computes."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from specpilot.local.demo import write_report
from specpilot.local.errors import LocalError
from specpilot.local.page import page, picture, smooth, wrapped
from specpilot.local.record import Fixed, Moment, Played, Record, Scene, moment
from specpilot.local.replica import Phase
from specpilot.local.view import Change, ReplicaView, View
from specpilot_engine.protocol import Schedule, Step

QUIET, BUSY = Scene("quiet <night>", 2, "code"), Scene("busy day", 10, "prose")
CHANGE = Change(1012.5, Schedule(3, (Step(4, 3), Step(16, 1))), "TrafficShift", "1 < 3", 0.12, True, 0.25)


def record(**more: object) -> Record:
    values: dict[str, object] = {
        "started": 1000.0,
        "played": (Played(QUIET, 0, 10, 900, 19.5), Played(BUSY, 10, 20, 1800, 97)),
        "moments": (Moment(1, 90, 3, 2, 2.5, 3), Moment(11, 180, 1, 10, 1.4, 1)),
        "changes": (CHANGE,),
        "fixed": {
            0: Fixed((400, 1800), tuple([40.0] * 10 + [180.0] * 10)),
            1: Fixed((600, 2000), tuple([60.0] * 10 + [200.0] * 10)),
            3: Fixed((1000, 1000), tuple([100.0] * 10 + [100.0] * 10)),
        },
        "candidates": (0, 1, 3),
        "replicas": 2,
        "time_scale": 2.0,
        "engine": "made up",
    }
    return Record(**{**values, **more})  # type: ignore[arg-type]


def test_the_oracle_takes_the_best_depth_of_each_phase() -> None:
    it = record()
    assert [it.oracle(i) for i in range(2)] == [(3, 1000), (1, 2000)]
    assert it.oracle_share == pytest.approx(2700 / 3000)


def test_the_best_fixed_depth_is_one_for_the_whole_run() -> None:
    it = record()
    assert it.best_fixed == 1
    assert it.best_fixed_share == pytest.approx(2600 / 3000)


def test_a_machine_that_did_not_keep_up_is_told() -> None:
    assert record().kept_up
    starved = record(played=(Played(QUIET, 0, 10, 900, 10), Played(BUSY, 10, 20, 1800, 50)))
    assert not starved.kept_up
    assert "too busy to simulate: engines decoded in 50%" in page(starved)
    assert "too busy" not in page(record())


def test_report_json_has_the_shares_the_changes_and_the_phases() -> None:
    doc = json.loads(json.dumps(record().as_json()))
    assert (doc["oracle_share"], doc["best_fixed_share"], doc["best_fixed_depth"]) == (0.9, 0.8667, 1)
    assert doc["changes"] == 1
    (change,) = doc["decisions"]
    assert (change["at"], change["generation"], change["reason"]) == (12.5, 3, "TrafficShift")
    assert change["schedule"] == [{"upTo": 4, "tokens": 3}, {"upTo": 16, "tokens": 1}]
    first, second = doc["phases"]
    assert (first["oracle_depth"], first["emitted_tokens"], first["share"]) == (3, 900, 0.9)
    assert second["fixed_tokens"] == {"0": 1800, "1": 2000, "3": 1000}
    assert (second["start"], second["seconds"], second["clients"]) == (10, 10, 10)


def test_a_report_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(LocalError) as e:
        write_report(record(), tmp_path)
    assert str(e.value) == (
        f"the report cannot be written to {tmp_path} (Is a directory): free some space, or name another folder with"
        " --out"
    )


def test_the_page_needs_no_network_and_escapes_what_it_shows() -> None:
    text = page(record())
    assert references(text) == []
    assert "quiet &lt;night&gt;" in text
    assert "<b>quiet <night>" not in text
    assert "90.0%" in text


def references(text: str) -> list[str]:
    """Whatever a browser would fetch for a page."""
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, _tag: str, attributes: list[tuple[str, str | None]]) -> None:
            found.extend(value or "" for name, value in attributes if name in ("src", "href"))

    Reader().feed(text)
    return found


def test_a_page_without_changes_says_so() -> None:
    assert "the schedule it began with stayed" in page(record(changes=()))


def test_what_a_trial_said_is_drawn_open_and_a_change_filled() -> None:
    confirmed = replace(CHANGE, reason="GainConfirmed", steps_changed=False, settled=True)
    drawn = next(t for t in picture(record(changes=(CHANGE, confirmed))).data if t.name == "change")
    assert list(drawn.marker.symbol) == ["triangle-down", "triangle-down-open"]


def test_smoothing_does_not_reach_across_a_shift() -> None:
    values = [1.0] * 10 + [9.0] * 10
    assert smooth(values, record().played) == values


def test_long_reasons_are_broken_into_lines() -> None:
    assert wrapped("a few words that are too long", width=12) == "a few words<br>that are too<br>long"


def test_a_moment_sums_rates_and_averages_depths() -> None:
    replicas = (
        ReplicaView("a", "u", Phase.READY, True, batch=4, depth=3, accepted_length=2, goodput=100),
        ReplicaView("b", "u", Phase.READY, True, batch=6, depth=1, accepted_length=3, goodput=50),
        ReplicaView("c", "u", Phase.STARTING),
    )
    schedule = Schedule(1, (Step(4, 7), Step(16, 2)))
    assert moment(View(1003.0, "x", replicas, schedule), 1000.0) == Moment(3.0, 150, 2, 10, 2.5, 2)
    assert moment(View(1003.0, "x", replicas[2:], schedule), 1000.0) == Moment(3.0, 0, None, 0, None, None)
