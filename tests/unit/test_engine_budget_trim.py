"""What the row budget does to drafts, step by step, on requests of vLLM's shape and a small world of step times."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from specpilot_engine import protocol
from specpilot_engine.exports import EngineStatus, metrics_text
from specpilot_engine.protocol import MAX_SERIES, Budget, Schedule, Step
from specpilot_engine.record import Recorder
from specpilot_engine.trim import FIRST_DRAFTS, Trimmer

DEPTH, PRICE = 5, 0.005


@dataclass
class World:
    """`batch` requests whose drafts survive with `q` a slot; a row costs `row` of a step without drafts."""

    q: Callable[[int], float]
    batch: int = 4
    row: float = 0.1
    trimmer: Trimmer = field(default_factory=lambda: Trimmer(DEPTH))
    whole: list[bool] = field(default_factory=list)
    kept: list[list[int]] = field(default_factory=list)
    tokens: float = 0.0
    seconds: float = 0.0
    counted: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(0)

    def run(self, steps: int, price: float = PRICE, explores: bool = False) -> None:
        for _ in range(steps):
            shared = [7] * DEPTH
            running = [SimpleNamespace(request_id=f"r{i}", spec_token_ids=shared) for i in range(self.batch)]
            whole = self.trimmer.before_schedule(running, DEPTH, price, explores)
            self.trimmer.after_schedule({r.request_id for r in running})
            assert shared == [7] * DEPTH  # the list itself may belong to somebody else
            kept = [len(r.spec_token_ids) for r in running]
            accepted = [self.accept(i, n) for i, n in enumerate(kept)]
            drafts = [(r.request_id, n, a) for r, n, a in zip(running, kept, accepted, strict=True) if n]
            self.trimmer.landed(drafts, whole)
            seconds = 0.02 * (1 + self.row * sum(kept))
            self.trimmer.timed(DEPTH, self.batch, self.batch + sum(kept), seconds)
            self.whole.append(whole)
            self.kept.append(kept)
            self.tokens += self.batch + sum(accepted)
            self.seconds += seconds
            if whole:
                self.counted += [(n, a) for _, n, a in drafts]

    def accept(self, request: int, length: int) -> int:
        accepted = 0
        while accepted < length and self.random.random() < self.q(request):
            accepted += 1
        return accepted

    def goodput(self, steps: int, **options: float) -> float:
        tokens, seconds = self.tokens, self.seconds
        self.run(steps, **options)
        return (self.tokens - tokens) / (self.seconds - seconds)


def test_without_a_price_nothing_is_cut_and_nothing_learnt():
    world = World(lambda _: 0.0)
    world.run(300, price=0.0)
    assert set(map(tuple, world.kept)) == {(DEPTH,) * 4}
    assert all(world.whole)
    assert (world.trimmer.active, world.trimmer.rows_verified) == (False, 0)


def test_drafts_that_pay_are_whole_but_for_a_few_looks_within_the_price():
    world = World(lambda _: 0.9, row=0.02)
    world.run(200)
    cut = sum(not w for w in world.whole[-200:])
    assert 0 < cut <= 8  # no drafts, and half of them
    world.run(4000)
    assert not world.trimmer.cutting
    lost = 1 - world.goodput(4000) / World(lambda _: 0.9, row=0.02).goodput(4000, price=0.0)
    assert lost < 0.012  # the price, and the noise of 4,000 steps


def test_hopeless_drafts_are_cut_once_a_look_has_shown_that_it_pays():
    world = World(lambda _: 0.0)
    world.run(60)
    assert world.kept[-1] == [0] * 4
    world.run(1500)
    # A whole step takes three times as long; 2% of goodput are for looking.
    assert 0.97 * 4 / 0.02 < world.goodput(2000) < 4 / 0.02


def test_in_the_beginning_whole_steps_are_many_so_that_the_operator_sees_soon():
    world = World(lambda _: 0.0)
    world.run(60)
    began = sum(world.whole)
    while (sum(world.whole) - began) * world.batch < FIRST_DRAFTS:
        world.run(50)
    first = len(world.whole) - 60
    assert first < 1500
    before = sum(world.whole)
    world.run(2000)
    assert 0 < sum(world.whole) - before < 0.02 * 2000
    assert FIRST_DRAFTS / world.batch / first > 0.03


def test_a_request_whose_drafts_turn_good_is_verified_again():
    good: set[int] = set()
    world = World(lambda i: 0.95 if i in good else 0.0)
    world.run(1500)
    good.add(2)
    world.run(700)
    kept = world.kept[-100:]
    assert sum(k[2] for k in kept) > 300
    assert sum(k[0] + k[1] + k[3] for k in kept) < 0.3 * sum(k[2] for k in kept)


def test_what_is_counted_is_unbiased_while_only_good_drafts_are_verified():
    world = World(lambda i: 0.9 * (i % 2))
    world.run(12000)
    for slot in range(DEPTH):
        tried = [a > slot for n, a in world.counted if n > slot]
        assert len(tried) == len(world.counted)
        assert sum(tried) / len(tried) == pytest.approx(0.5 * 0.9 ** (slot + 1), abs=0.05)
    assert len(world.counted) < 0.2 * 4 * 12000


def test_a_step_that_explores_is_whole():
    world = World(lambda _: 0.0)
    world.run(200)
    world.run(50, explores=True)
    assert world.kept[-50:] == [[DEPTH] * 4] * 50
    assert all(world.whole[-50:])


def test_a_cut_draft_that_was_not_scheduled_makes_no_later_step_a_whole_one():
    world = World(lambda _: 0.0)
    world.run(100)
    left = [SimpleNamespace(request_id=f"r{i}", spec_token_ids=[7] * DEPTH) for i in range(4)]
    assert world.trimmer.before_schedule(left, DEPTH, PRICE, False) is False
    world.trimmer.after_schedule({"r0", "r1", "r2"})
    assert world.trimmer.before_schedule(left, DEPTH, PRICE, True) is False
    world.trimmer.after_schedule({"r0", "r1", "r2", "r3"})
    assert world.trimmer.before_schedule(left, DEPTH, PRICE, True) is True


def test_a_cut_draft_whose_request_ended_before_it_was_scheduled_is_forgotten():
    world = World(lambda _: 0.0)
    world.run(100)
    left = [SimpleNamespace(request_id=f"r{i}", spec_token_ids=[7] * DEPTH) for i in range(4)]
    assert world.trimmer.before_schedule(left, DEPTH, PRICE, False) is False
    world.trimmer.after_schedule({"r0", "r1", "r2"})
    assert world.trimmer.before_schedule(left[:3], DEPTH, PRICE, True) is True


def test_requests_that_ended_are_forgotten_though_no_step_is_ever_timed():
    """Structured output under asynchronous scheduling: no step is clean, and each brings other requests."""
    trimmer = Trimmer(3)
    for number in range(1000):
        request = SimpleNamespace(request_id=str(number), spec_token_ids=[1, 2, 3])
        trimmer.before_schedule([request], 3, PRICE, False)
        trimmer.landed([(request.request_id, 3, 1)], True)
    assert len(trimmer._beliefs._records) < 30


def exported(recorder: Recorder, schedule: Schedule, reason: str = "") -> dict[str, tuple[float, dict]]:
    text = metrics_text(recorder, EngineStatus(True, "", schedule, whole_drafts=reason))
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    assert len(samples) <= MAX_SERIES
    return {s.name: (s.value, s.labels) for s in samples if "row" in s.name or "budget" in s.name}


def test_its_series_stand_while_the_schedule_asks_for_a_budget():
    world = World(lambda _: 0.0)
    world.run(500)
    recorder = Recorder(DEPTH)
    recorder.trimmer = world.trimmer
    for batch in (1, 2, 4, 8, 16, 32, 64):
        for k in (0, 1, 3, 5):
            recorder.clean_step(k, batch, 100 * batch, 0.25, batch)
    assert exported(recorder, Schedule(1, (Step(8, DEPTH),))) == {}
    found = exported(recorder, Schedule(2, (Step(8, DEPTH),), budget=Budget(PRICE)))
    assert found[protocol.M_BUDGET] == (1.0, {"reason": ""})
    verified, trimmed = found[protocol.M_ROWS_VERIFIED][0], found[protocol.M_ROWS_TRIMMED][0]
    assert verified + trimmed == 500 * 4 * DEPTH
    assert trimmed > 0.8 * 500 * 4 * DEPTH
    assert found[protocol.M_PROBES][0] == world.trimmer.probes > 0


def test_an_engine_that_cannot_cut_says_why():
    schedule = Schedule(2, (Step(8, DEPTH),), budget=Budget(PRICE))
    found = exported(Recorder(DEPTH), schedule, "the engine uses full CUDA graphs")
    assert found == {protocol.M_BUDGET: (0.0, {"reason": "the engine uses full CUDA graphs"})}
