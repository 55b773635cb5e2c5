"""A spec that changes at any moment, in a trial too: every schedule is one that engines take, and trials end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as some
from tests.unit.test_decide_tuner import FIGURE_3
from tests.unit.trial_world import Replica
from tests.unit.tuner_world import Phase

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.control.read import fits
from specpilot.control.step import Evidence, first_schedule, settings, step, without_leave
from specpilot.decide.memory import Memory
from specpilot.estimate import constants as c
from specpilot_engine.protocol import Schedule, parse_schedule

SPEC: dict[str, Any] = {
    "model": {"name": "m"},
    "engine": {"image": "vllm:v0.33.0", "args": ["--max-num-seqs", "64", "--enforce-eager"]},
    "speculation": {"method": "MTP", "maxTokens": 7, "candidates": [0, 1, 3, 5, 6, 7]},
    "tuning": {"interval": "15s", "dwell": "30s"},
}
CHANGES = some.one_of(
    some.fixed_dictionaries(
        {},
        optional={
            "mode": some.sampled_from(["Apply", "Observe", "Recommend"]),
            "explorationPrice": some.sampled_from([0, 0.005, 0.05]),
            "minimumGain": some.sampled_from([0, 0.03, 0.3]),
        },
    ).map(lambda tuning: ("tuning", tuning)),
    some.sampled_from([[0, 1, 3, 5, 6, 7], [0, 1, 3], [0, 7], [1, 3], [0, 1]]).map(
        lambda depths: ("speculation", {"candidates": depths, "maxTokens": max(depths)})
    ),
    some.sampled_from(["8", "64"]).map(lambda n: ("engine", {"args": ["--max-num-seqs", n]})),
    some.just(("operator", {})),  # it dies and reads its memory again
    some.tuples(some.sampled_from([1, 4, 16, 60]), some.sampled_from([0.05, 0.5, 0.95])).map(
        lambda load: ("load", {"requests": load[0], "survival": [load[1]] * 7})
    ),
)


class Played:
    """One deployment of two engines under a spec, looked at each 15 s."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.fleet = [Replica(FIGURE_3, rng, lambda *_: 0.0) for _ in range(2)]
        self.spec, self.phase = SPEC, Phase(15, 16, [0.8] * 7)
        self.evidence, self.now, self.on_trial = Evidence(), 1e6, 0
        self.schedule = Schedule(0, ())
        self.put(first_schedule((), self.to(), 1))

    def to(self) -> Any:
        self.parsed = SpeculativeDeploymentSpec.model_validate(self.spec)
        return settings(self.parsed, self.schedule)

    def change(self, part: str, fields: dict[str, Any]) -> None:
        """As a reconcile takes it in."""
        if part == "load":
            self.phase = Phase(15, **fields)
        elif part == "operator":
            self.evidence = Evidence(Memory.from_json(self.evidence.memory.to_json()))
        else:
            self.spec = {**self.spec, part: {**self.spec[part], **fields}}
            to = self.to()
            if not fits(self.schedule, to.depths):
                self.put(first_schedule((), to, self.schedule.generation + 1))
            elif cut := without_leave(self.schedule, to):
                self.put(cut)

    def tick(self) -> None:
        self.now += 15
        for one in self.fleet:
            one.run(self.phase, self.schedule)
        counters = {
            ("n", str(i)): replace(one.engine.counters(self.now), trial=one.count, live=True)
            for i, one in enumerate(self.fleet)
        }
        apply = self.spec["tuning"].get("mode", "Apply") == "Apply"
        taken = step(self.evidence, counters, (), self.to(), apply, self.now)
        self.evidence = taken.evidence
        if taken.schedule is not None:
            self.put(taken.schedule)
        self.on_trial = self.on_trial + 1 if self.schedule.trial else 0

    def put(self, schedule: Schedule) -> None:
        depths = SpeculativeDeploymentSpec.model_validate(self.spec).speculation.depths
        assert schedule.generation == self.schedule.generation + 1
        assert parse_schedule(schedule.dump(), max(depths)) == schedule
        assert fits(schedule, depths)
        if self.spec["tuning"].get("mode", "Apply") != "Apply":
            assert not schedule.exploration.price
        self.schedule = schedule


@examples(max_examples=30)
@given(some.lists(some.tuples(some.integers(1, 6), CHANGES), min_size=8, max_size=24), some.integers(0, 1000))
def test_whatever_changes_and_whenever_engines_get_schedules_that_they_take_and_trials_end(
    changes: list[tuple[int, tuple[str, dict[str, Any]]]], seed: int
) -> None:
    played = Played(seed)
    for ticks, (part, fields) in changes:
        for _ in range(ticks):
            played.tick()
            assert played.on_trial * 15 <= c.TRIAL_LONGEST
        played.change(part, fields)
    for _ in range(round(c.TRIAL_LONGEST / 15)):
        if played.schedule.trial is None:
            break
        played.tick()
    assert played.schedule.trial is None
