"""Two pipeline stages, by the shapes of vLLM's engine core: two microbatches take turns, and many steps are empty."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from specpilot_engine.live import LiveHooks, Lookups
from specpilot_engine.protocol import Exploration, Schedule, Step, Trial
from specpilot_engine.record import Recorder
from specpilot_engine.timing import StepClock
from specpilot_engine.watch import Active

SIZE, EACH = 64, 24  # requests in all at most; of a microbatch
OLD = (Step(SIZE, 1),)
NEW = (Step(16, 1), Step(32, 3), Step(SIZE, 1))  # other at a microbatch's size only


def lookup(steps: tuple[Step, ...]) -> list[int]:
    return [0, *(Schedule(0, steps).tokens_at(batch) for batch in range(1, SIZE + 1))]


class Pipeline:
    def __init__(self, schedule: Schedule, explored: int = 0) -> None:
        x = schedule.exploration
        wide = lookup(schedule.steps)
        against = lookup(schedule.trial.against) if schedule.trial else None
        explores = [explored if 16 < b <= 32 else k for b, k in enumerate(wide)] if explored else wide
        prepared = Lookups(wide, explores, x, against, schedule.trial)
        self.groups = [[f"{m}{i}" for i in range(EACH)] for m in "ab"]
        requests = {
            name: SimpleNamespace(request_id=name, use_structured_output=False, is_finished=lambda: False)
            for name in (*self.groups[0], *self.groups[1])
        }
        self.scheduler = SimpleNamespace(
            running=list(requests.values()),
            requests=requests,
            dynamic_sd_lookup=None,
            kv_cache_manager=SimpleNamespace(usage=0.1),
        )
        self.recorder = Recorder(5)
        self.watcher: Any = SimpleNamespace(active=Active(schedule, prepared))
        self.hooks = LiveHooks(self.scheduler, self.recorder, StepClock(True, 2), self.watcher)
        self.asked = [0, 0]
        self.flying: deque[tuple[Any, int]] = deque()
        self.now, self.random = 0.0, random.Random(0)

    def run(self, steps: int, empty: int = 1) -> None:
        for turn in range(steps):
            for _ in range(empty):
                self.schedule(None)
            self.schedule(turn % 2)
            if turn:
                self.land()

    def schedule(self, group: int | None) -> None:
        self.hooks.before_schedule()
        names = self.groups[group] if group is not None else []
        drafts = self.asked[group] if group is not None else 0
        output = SimpleNamespace(
            num_scheduled_tokens=dict.fromkeys(names, 1 + drafts),
            total_num_scheduled_tokens=len(names) * (1 + drafts),
            scheduled_new_reqs=[],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=names, resumed_req_ids=set(), num_computed_tokens=[100] * len(names)
            ),
            scheduled_spec_decode_tokens={name: [-1] * drafts for name in names} if drafts else {},
            preempted_req_ids=set(),
            pending_structured_output_tokens=False,
            num_invalid_spec_tokens={},
            num_spec_tokens_to_schedule=self.scheduler.dynamic_sd_lookup[len(names)],
        )
        self.hooks.after_schedule(output, self.now)
        if group is not None:
            self.asked[group] = output.num_spec_tokens_to_schedule
            self.flying.append((output, drafts))

    def land(self) -> None:
        output, drafts = self.flying.popleft()
        self.now += 0.01 * (1 + 0.1 * drafts) * self.random.uniform(0.95, 1.05)
        sampled = [[7] * (1 + sum(self.random.random() < 0.9 for _ in range(drafts)))] * EACH
        index = {name: i for i, name in enumerate(output.num_scheduled_tokens)}
        self.hooks.before_update(output, SimpleNamespace(sampled_token_ids=sampled, req_id_to_index=index))
        outputs = [SimpleNamespace(new_token_ids=new) for new in sampled]
        self.hooks.after_update(output, {0: SimpleNamespace(outputs=outputs)}, self.now)


@pytest.mark.parametrize("empty", [0, 1, 3])
def test_schedules_that_differ_at_the_size_of_a_microbatch_are_compared(empty: int) -> None:
    engine = Pipeline(Schedule(2, NEW, trial=Trial(OLD, 8, 60)))
    engine.run(600, empty)
    trial = engine.recorder.trial
    assert trial is not None
    assert not trial.running
    assert trial.pairs.clear
    assert trial.pairs.mean > 0


@pytest.mark.parametrize("empty", [0, 1, 3])
def test_what_is_explored_is_paid_for_and_timed_by_steps_that_took_place(empty: int) -> None:
    engine = Pipeline(Schedule(2, OLD, Exploration(0.02, 3, 0.2, 32)), explored=3)
    engine.run(4000, empty)
    explored = engine.recorder.explored_steps
    assert 0.08 * 4000 <= explored <= 0.1 * 4000
    timed = engine.recorder.exported_cells()[3, 32].steps
    assert timed >= 0.25 * explored


@pytest.mark.parametrize("generation", [2, 3])
def test_the_same_trial_may_be_taken_over_again_while_its_steps_are_in_flight(generation: int) -> None:
    engine = Pipeline(Schedule(2, NEW, trial=Trial(OLD, 8, 60)))
    engine.run(100)
    run = engine.recorder.trial
    assert run is not None
    assert run.tried
    again = replace(engine.watcher.active.schedule, generation=generation)
    engine.watcher.active = Active(again, engine.watcher.active.prepared)
    engine.schedule(0)
    while engine.flying:
        engine.land()
    assert engine.recorder.trial is not None
    assert (engine.recorder.trial is run) == (generation == 2)  # the same file goes on, a new one begins
    engine.run(600)
    assert not engine.recorder.trial.running
    assert engine.recorder.trial.pairs.clear
