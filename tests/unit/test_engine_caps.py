"""Caps on depth: in the schedule's file, and what an engine under adaptive verification makes of them."""

import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specpilot_engine import probe
from specpilot_engine.live import prepare_lookups
from specpilot_engine.protocol import (
    ENV_PORT,
    ENV_SCHEDULE_FILE,
    Budget,
    Caps,
    Exploration,
    Schedule,
    ScheduleError,
    Step,
    Trial,
    canonical,
    parse_schedule,
    state_document,
)
from specpilot_engine.sim.arguments import parse_arguments
from specpilot_engine.sim.engine import Engine, Request
from specpilot_engine.sim.live import Live
from specpilot_engine.sim.truth import read_truth

STEPS = (Step(8, 3), Step(64, 1))
CAPS = Caps((Step(2, 7), Step(64, 0)), Trial((Step(64, 7),), 4, 30))
PLAIN = Schedule(9, STEPS, Exploration(0.01, 7, 0.1, 64), Budget(0.005), Trial((Step(64, 1),), 8, 60, 2.5))
CAPPED = Schedule(9, STEPS, PLAIN.exploration, PLAIN.budget, PLAIN.trial, CAPS)


@pytest.mark.parametrize("caps", [None, CAPS, Caps(CAPS.steps)], ids=["none", "trial", "settled"])
def test_caps_are_read_back_as_written_beside_everything_else(caps):
    schedule = Schedule(9, STEPS, PLAIN.exploration, PLAIN.budget, PLAIN.trial, caps)
    assert parse_schedule(schedule.dump()) == schedule


def test_an_engine_that_knows_no_caps_accepts_the_file_and_acknowledges_it():
    document = json.loads(CAPPED.dump())
    document.pop("optional")
    assert parse_schedule(canonical(document)).hash == CAPPED.hash == PLAIN.hash


@pytest.mark.parametrize(
    ("caps", "message"),
    [
        (Caps(()), "schedule is not a list with at least one step"),
        (Caps((Step(8, 99),)), "tokens must be a number from 0 to 32"),
        (Caps((Step(8, 1),), Trial((Step(8, 3),), 1, 9)), "trial.slice must be a number from 4"),
    ],
)
def test_caps_that_cannot_be_are_refused_by_name(caps, message):
    with pytest.raises(ScheduleError, match=message):
        parse_schedule(Schedule(1, STEPS, caps=caps).dump())


def test_under_adaptive_verification_the_caps_count_and_nothing_is_explored_or_cut():
    assert CAPPED.under_adaptive(7) == Schedule(9, CAPS.steps, trial=CAPS.trial)
    assert PLAIN.under_adaptive(7) == Schedule(9, (Step(64, 7),))


def test_a_cap_deeper_than_the_engine_drafts_is_what_it_drafts():
    found = CAPPED.under_adaptive(5)
    assert found.steps == (Step(2, 5), Step(64, 0))
    assert found.trial is not None
    assert found.trial.against == (Step(64, 5),)


def build(rows):
    return [0] + [
        next(k for first, last, k in rows if b <= last or last == rows[-1][1]) for b in range(1, 65)
    ]


def test_lookups_are_those_of_the_caps_where_vllm_verifies_adaptively():
    capped = prepare_lookups(CAPPED, build, 65, 10_000, adaptive=7)
    assert capped.scheduled == capped.explored == [0, 7, 7, *[0] * 62]
    assert (capped.against, capped.trial) == ([0, *[7] * 64], CAPS.trial)
    plain = prepare_lookups(CAPPED, build, 65, 10_000)
    assert plain.scheduled[1:10] == [3] * 8 + [1]
    assert plain.trial == PLAIN.trial


def test_the_state_says_what_is_drafted_and_acknowledges_the_whole_file():
    state = state_document(True, "", CAPPED, "", {}, adaptive=7)
    assert state["schedule"] == [{"upTo": 2, "tokens": 7}, {"upTo": 64, "tokens": 0}]
    assert (state["generation"], state["hash"]) == (9, CAPPED.hash)


def test_an_engine_that_was_told_to_verify_adaptively_is_known():
    config = SimpleNamespace(speculative_config=SimpleNamespace(enable_adaptive_verification=True))
    assert probe.verifies_adaptively(config)
    assert not probe.verifies_adaptively(SimpleNamespace(speculative_config=SimpleNamespace()))
    assert not probe.verifies_adaptively(SimpleNamespace(speculative_config=None))


class Adaptive:
    """A simulated engine that was started as the adaptive arm is, with the engine package around it."""

    def __init__(self, file: Path, rows: bool, port: int) -> None:
        config: dict[str, Any] = {"method": "dspark", "num_speculative_tokens": 7}
        config["enable_adaptive_verification"] = True
        if rows:
            config["num_speculative_tokens_per_batch_size"] = [[1, 1024, 7]]
        line = ["--speculative-config", json.dumps(config), "--max-num-seqs", "64"]
        arguments = parse_arguments([*line, "--scheduler-cls", "specpilot_engine.scheduler.factory"])
        truth = {"traffic": {"chat": {"survival": [0.5] * 7}}, "step_noise": 0, "seed": 3}
        self.engine = Engine(read_truth(json.dumps(truth)), 64, 8192, arguments.speculation)
        self.live = Live(self.engine, arguments, "")
        self.file, self.port, self.now = file, port, 0.0
        self.live.start()

    def write(self, schedule: Schedule) -> None:
        self.file.write_text(schedule.dump())
        deadline = time.monotonic() + 10
        while self.state()["hash"] != schedule.hash and time.monotonic() < deadline:
            time.sleep(0.02)

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/state") as answer:
            return dict(json.load(answer))

    def run(self, requests: int, steps: int) -> list[int]:
        """The depths that so many steps of new requests verify."""
        for i in range(requests):
            self.engine.submit(Request(f"{self.now}-{i}", 1, 10_000, (0.5,) * 7, self.now, lambda *_: None))
        depths = []
        for _ in range(steps):
            self.live.before_schedule()
            step = self.engine.begin(self.now)
            self.live.after_schedule(step)
            self.now += step.seconds
            self.live.before_update(step)
            self.engine.finish(step, self.now)
            self.live.after_update(step)
            depths.append(step.tokens)
        return depths


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Adaptive] = []

    def make(rows: bool) -> Adaptive:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        monkeypatch.setenv(ENV_PORT, str(port))
        monkeypatch.setenv(ENV_SCHEDULE_FILE, str(tmp_path / "schedule.json"))
        made.append(Adaptive(tmp_path / "schedule.json", rows, port))
        return made[-1]

    yield make
    for one in made:
        one.live.stop()


def test_an_adaptive_engine_drafts_all_until_caps_say_otherwise(engines):
    engine = engines(rows=True)
    assert engine.state()["live"] is True
    assert engine.run(4, 5)[1:] == [7] * 4
    engine.write(Schedule(2, STEPS))  # the tuner's own depths are not for it
    assert engine.run(0, 5) == [7] * 5
    engine.write(Schedule(3, STEPS, caps=Caps((Step(2, 7), Step(64, 0)))))
    assert engine.run(0, 5) == [7, 0, 0, 0, 0]
    assert engine.state()["schedule"] == [{"upTo": 2, "tokens": 7}, {"upTo": 64, "tokens": 0}]
    engine.write(Schedule(4, STEPS))
    assert engine.run(0, 5)[1:] == [7] * 4


def test_a_cap_on_trial_alternates_with_the_one_before_and_the_better_one_wins(engines):
    """In this engine whole drafts are worth their time at four requests, so that none at all loses."""
    engine = engines(rows=True)
    engine.run(4, 5)
    engine.write(Schedule(2, STEPS, caps=Caps((Step(64, 0),), Trial((Step(64, 7),), 4, 400))))
    depths = engine.run(0, 1200)
    assert {0, 7} <= set(depths)
    trial = engine.state()["trial"]
    assert (trial["generation"], trial["running"]) == (2, False)
    assert trial["logGain"] < 0
    assert engine.run(0, 20)[2:] == [7] * 18


def test_an_adaptive_engine_without_a_schedule_says_that_it_cannot_be_capped(engines):
    engine = engines(rows=False)
    state = engine.state()
    assert (state["live"], state["schedule"]) == (False, [{"upTo": 64, "tokens": 7}])
    assert "without a depth schedule" in state["reason"]
    engine.file.write_text(Schedule(3, STEPS, caps=Caps((Step(64, 0),))).dump())
    assert engine.run(4, 5)[1:] == [7] * 4
