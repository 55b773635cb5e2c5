"""The step clock against a small model of an engine in which every step's true duration is known.

The model has one device that runs steps one after another and a loop that schedules `in_flight` steps
ahead, as vLLM's engine core does: schedule until that many are in flight, then wait for the oldest.
"""

from collections import deque
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot_engine.timing import StepClock, TimedStep


@dataclass(frozen=True)
class Turn:
    """What the model's scheduler does next."""

    asked: int
    crowd: int = 0  # which set of requests
    prefill: bool = False
    idle: float = 0.0  # the engine has nothing to do for so long before it


def verify(tokens: int) -> float:
    return 10.0 + tokens


def draft(tokens: int) -> float:
    return 0.5 * tokens


class Model:
    """`drafts_after_output`: the results of a step are out before its drafter runs."""

    def __init__(self, in_flight: int, drafts_after_output: bool, **clock: object) -> None:
        self.in_flight, self.drafts_after_output = in_flight, drafts_after_output
        self.clock = StepClock(pipelined=in_flight > 1, **clock)  # type: ignore[arg-type]
        self.now = self.device_free = 0.0
        self.flying: deque[tuple[TimedStep, float]] = deque()
        self.samples: list[tuple[int, float]] = []
        self.pending = -1  # depth of the drafts the requests hold, -1 when they are new
        self.crowd = -1

    def play(self, turns: list[Turn]) -> list[tuple[int, float]]:
        for turn in turns:
            if turn.idle:
                while self.flying:
                    self.land()
                self.now += turn.idle
            self.schedule(turn)
            if len(self.flying) == self.in_flight:
                self.land()
        while self.flying:
            self.land()
        return self.samples

    def schedule(self, turn: Turn) -> None:
        new = turn.crowd != self.crowd
        tokens = 0 if new or self.pending < 0 else self.pending
        names = [f"{turn.crowd}-{i}" for i in range(2 + turn.crowd)]
        step = TimedStep(names, self.now, turn.asked, decoding=not (new or turn.prefill), context=100)
        drafts = {name: [0] * tokens for name in names} if tokens else {}
        self.clock.scheduled(step, len(names) * (1 + tokens), drafts)
        start = max(self.now, self.device_free)
        output = start + verify(tokens) + (97.0 if new or turn.prefill else 0.0)
        drafted = output + draft(turn.asked)
        self.device_free = drafted
        self.flying.append((step, output if self.drafts_after_output else drafted))
        self.pending, self.crowd = turn.asked, turn.crowd

    def land(self) -> None:
        step, at = self.flying.popleft()
        self.now = max(self.now, at)
        seconds = self.clock.updated(step, self.now, len(step.requests))
        if seconds is not None:
            self.samples.append((step.tokens, seconds))


TURNS = st.lists(
    st.builds(
        Turn,
        asked=st.sampled_from([0, 0, 3, 3, 5]),
        crowd=st.sampled_from([0, 0, 0, 0, 1]),
        prefill=st.sampled_from([False] * 5 + [True]),
        idle=st.sampled_from([0.0] * 6 + [500.0]),
    ),
    max_size=60,
)


@given(TURNS, st.sampled_from([1, 2, 3]), st.booleans())
def test_every_time_it_gives_is_the_steps_true_duration(turns, in_flight, drafts_after_output):
    for tokens, seconds in Model(in_flight, drafts_after_output).play(turns):
        assert seconds == pytest.approx(verify(tokens) + draft(tokens))


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("drafts_after_output", [False, True])
def test_a_run_of_equal_steps_is_timed_but_for_its_ends(in_flight, drafts_after_output):
    turns = [Turn(3)] * 10 + [Turn(5)] * 10
    samples = Model(in_flight, drafts_after_output).play(turns)
    # Ten steps verify 3, of which the first has an admission before it and the last a deeper draft after.
    assert [k for k, _ in samples] == [3] * 8 + [5] * 8


def test_a_step_scheduled_after_the_results_before_it_was_waited_for():
    samples = Model(2, False).play([Turn(3)] * 5 + [Turn(3, idle=50.0)] + [Turn(3)] * 5)
    assert len(samples) == 3 + 5


def test_a_synchronous_engine_may_pause_briefly_but_not_for_work():
    def seconds(pause: float) -> list[float]:
        clock, now, last = StepClock(pipelined=False), 0.0, []
        for _ in range(4):
            step = TimedStep(["a"], now, 0, True, 10)
            clock.scheduled(step, 1, {})
            last.append(clock.updated(step, now + 10.0, 1))
            now += 10.0 + pause
        return [x for x in last if x is not None]

    assert seconds(2.0) == [12.0, 12.0]
    assert seconds(11.0) == []


def test_a_step_whose_request_was_over_already_is_left_out():
    clock = StepClock(pipelined=False)
    given_back = []
    for n, outputs in enumerate([2, 2, 2, 1, 2]):
        step = TimedStep(["a", "b"], 10.0 * n, 0, True, 10)
        clock.scheduled(step, 2, {})
        given_back.append(clock.updated(step, 10.0 * n + 9.0, outputs))
    assert [x is not None for x in given_back] == [False, False, True, False, True]


@pytest.mark.parametrize(
    ("rows", "drafts"),
    [(7, {"a": [1, 1, 1], "b": [1, 1]}), (8, {"a": [1] * 3}), (9, {"a": [1] * 3, "b": [1] * 3})],
)
def test_unequal_drafts_or_a_prompt_among_them_are_not_one_depth(rows, drafts):
    clock = StepClock(pipelined=False)
    clock.scheduled(TimedStep(["a", "b"], 0.0, 3, True, 10), 2, {})
    step = TimedStep(["a", "b"], 1.0, 3, True, 10)
    clock.scheduled(step, rows, drafts)
    assert step.tokens == -1


def test_a_drafter_that_finds_fewer_tokens_is_keyed_by_what_was_asked():
    clock = StepClock(pipelined=False, variable=True)
    times = []
    for n, drafts in enumerate([{}, {"a": [1]}, {"a": [1, 1, 1], "b": [1]}, {}]):
        step = TimedStep(["a", "b"], 10.0 * n, 3, True, 10)
        clock.scheduled(step, 2 + sum(map(len, drafts.values())), drafts)
        times.append((clock.updated(step, 10.0 * n + 10.0, 2), step.tokens))
    assert times == [(None, -1), (None, 3), (10.0, 3), (10.0, 3)]


def test_a_microbatch_of_a_pipeline_lasts_from_its_own_results_to_its_next():
    """Two stages, two microbatches in turn: each takes two intervals."""
    clock, times = StepClock(pipelined=True, stages=2), []
    flying: deque[TimedStep] = deque()
    for n in range(12):
        step = TimedStep([f"crowd{n % 2}"], 10.0 * n, 0, True, 10)
        clock.scheduled(step, 1, {})
        flying.append(step)
        if len(flying) == 3:
            times.append(clock.updated(flying.popleft(), 10.0 * n + 5.0, 1))
    assert times[:4] == [None] * 4
    assert set(times[4:]) == {20.0}


def test_one_microbatch_alone_in_a_pipeline_is_timed_by_itself():
    clock, times = StepClock(pipelined=True, stages=2), []
    flying: deque[TimedStep] = deque()
    for n in range(8):
        step = TimedStep(["a"], 10.0 * n, 0, True, 10)
        clock.scheduled(step, 1, {})
        flying.append(step)
        if len(flying) == 2:
            times.append(clock.updated(flying.popleft(), 10.0 * n + 5.0, 1))
    assert set(times[2:]) == {10.0}


def test_a_step_whose_neighbour_lost_its_results_is_not_timed():
    clock = StepClock(pipelined=False)
    steps = [TimedStep(["a"], 10.0 * n, 0, True, 10) for n in range(4)]
    for n, step in enumerate(steps):
        clock.scheduled(step, 1, {})
        if n != 2:
            seconds = clock.updated(step, 10.0 * n + 9.0, 1)
    assert seconds is None
