"""Continuous batching, the acceptance draws and the counters of the simulated engine."""

import json
import math
from dataclasses import replace

import pytest

from specpilot_engine.sim.arguments import Speculation
from specpilot_engine.sim.counters import Counters
from specpilot_engine.sim.engine import Engine, Request, Step
from specpilot_engine.sim.truth import read_truth

SURVIVAL = (0.8, 0.5, 0.3, 0.2, 0.1)
TRUTH = read_truth(
    json.dumps(
        {
            "depths": [0, 5],
            "batches": [1, 10],
            "step_time_ms": [[10, 19], [20, 38]],
            "traffic": {"chat": {"survival": SURVIVAL}},
            "prefill_ms_per_token": 1.0,
            "step_noise": 0,
            "seed": 7,
        }
    )
)


class Bench:
    """An engine stepped by hand on a clock of its own."""

    def __init__(self, depth: int = 0, max_num_seqs: int = 64, budget: int = 8192) -> None:
        self.engine = Engine(TRUTH, max_num_seqs, budget, Speculation(5, ((1, 1, depth),)))
        self.counters = Counters(Speculation(5))
        self.now = 0.0
        self.delivered: dict[str, list[tuple[int, bool]]] = {}

    def submit(self, max_tokens: int, prompt: int = 1) -> Request:
        log: list[tuple[int, bool]] = []
        request = Request(
            f"r{len(self.delivered)}",
            prompt,
            max_tokens,
            SURVIVAL,
            self.now,
            lambda *chunk: log.append(chunk),
        )
        self.delivered[request.id] = log
        self.engine.submit(request)
        return request

    def step(self) -> Step:
        step = self.engine.begin(self.now)
        self.now += step.seconds
        self.engine.finish(step, self.now)
        self.counters.count(step)
        return step

    def drain(self) -> list[Step]:
        steps = []
        while not self.engine.idle:
            steps.append(self.step())
        return steps


def test_each_request_gets_exactly_its_tokens():
    bench = Bench(depth=5)
    requests = [bench.submit(max_tokens) for max_tokens in (1, 2, 17, 100)]
    bench.drain()
    for request in requests:
        chunks = bench.delivered[request.id]
        assert sum(n for n, _ in chunks) == request.max_tokens
        assert [end for _, end in chunks] == [False] * (len(chunks) - 1) + [True]
        assert max(n for n, _ in chunks) <= 6


def test_accepted_share_of_each_slot_is_its_survival():
    bench = Bench(depth=5)
    for _ in range(50):
        bench.submit(2000)
    bench.drain()
    c = bench.counters
    assert c.drafts > 20_000
    for position, survival in enumerate(SURVIVAL):
        sigma = math.sqrt(survival * (1 - survival) / c.drafts)
        assert c.accepted_per_position[position] / c.drafts == pytest.approx(survival, abs=4 * sigma)


def test_same_seed_gives_the_same_run():
    runs = []
    for _ in range(2):
        bench = Bench(depth=3)
        bench.submit(300)
        runs.append([s.accepted for s in bench.drain()])
    assert runs[0] == runs[1]


def test_a_depth_is_verified_in_the_step_after_it_was_chosen():
    bench = Bench(depth=2)
    bench.submit(1000)
    assert (bench.step().tokens, bench.step().tokens) == (0, 2)  # the first step is the prefill
    bench.engine.dynamic_sd_lookup = [5] * 65
    switch = bench.step()
    assert (switch.tokens, switch.next_tokens) == (2, 5)
    assert bench.step().tokens == 5


def test_no_more_run_than_max_num_seqs_and_the_queue_moves_up():
    bench = Bench(max_num_seqs=3)
    for _ in range(5):
        bench.submit(4)
    bench.step()
    assert (len(bench.engine.running), len(bench.engine.waiting)) == (3, 2)
    for _ in range(3):
        bench.step()
    assert len(bench.engine.running) == 0
    assert bench.step().batch == 2


def test_step_time_is_the_tables_plus_the_prefill():
    bench = Bench(depth=5)
    bench.submit(50, prompt=7)
    assert bench.step().seconds == pytest.approx(0.010 + 0.007)
    assert bench.step().seconds == pytest.approx(0.020)
    bench.submit(50, prompt=3)
    mixed = bench.step()
    assert (len(mixed.decoding), len(mixed.prefilling)) == (1, 1)
    assert mixed.seconds == pytest.approx(0.022 + 0.003)


def test_a_long_prompt_is_prefilled_in_chunks_within_the_token_budget():
    bench = Bench(depth=1, budget=10)
    bench.submit(50, prompt=1)
    bench.step()
    bench.submit(50, prompt=20)
    chunks = [[n for _, n in bench.step().prefilling] for _ in range(4)]
    assert chunks == [[8], [8], [4], []]  # each decoding request takes 1 + 1 tokens of the 10


def test_an_aborted_request_frees_its_place():
    bench = Bench(max_num_seqs=1)
    gone, next_one = bench.submit(1000), bench.submit(3)
    bench.step()
    bench.engine.abort(gone)
    bench.drain()
    assert bench.delivered[gone.id] == [(1, False)]
    assert sum(n for n, _ in bench.delivered[next_one.id]) == 3


def test_counters_add_up():
    bench = Bench(depth=4)
    for i in range(8):
        bench.submit(200 + i)
    steps = bench.drain()
    c = bench.counters
    decoded = sum(len(s.decoding) for s in steps)
    cut = sum(1 + a - e for s in steps for a, e in zip(s.accepted, s.emitted, strict=True))
    # One token a prefill, and one plus the accepted drafts a decode, less what the maximum cuts off.
    assert c.generation_tokens == sum(200 + i for i in range(8))
    assert c.generation_tokens == 8 + decoded + c.accepted_tokens - cut
    assert c.inter_token.count == c.drafts == decoded
    assert c.draft_tokens == 4 * decoded
    assert c.accepted_per_position[4:] == [0]
    assert sum(c.accepted_per_position) == c.accepted_tokens
    assert c.first_token.count == c.finished["length"] == 8
    assert c.prompt_tokens == 8


def test_inter_token_latency_tells_step_time_and_accepted_length():
    bench = Bench(depth=5)
    for _ in range(10):
        bench.submit(4000)
    for _ in range(200):
        bench.step()
    c = bench.counters
    assert c.inter_token.sum / c.inter_token.count == pytest.approx(0.038)
    length = (c.generation_tokens - c.first_token.count) / c.inter_token.count
    assert length == pytest.approx(1 + sum(SURVIVAL), rel=0.05)


def test_no_drafts_are_counted_at_depth_zero():
    bench = Bench(depth=0)
    bench.submit(20)
    bench.drain()
    assert (bench.counters.drafts, bench.counters.draft_tokens) == (0, 0)
    assert bench.counters.generation_tokens == 20


def test_depth_follows_the_number_of_requests_in_the_step():
    engine = Engine(TRUTH, 8, 8192, Speculation(5, ((1, 2, 5), (3, 8, 1))))
    for i in range(3):
        engine.submit(Request(f"r{i}", 1, 100, SURVIVAL, 0.0, lambda *_: None))
        step = engine.begin(0.0)
        engine.finish(step, 0.0)
        assert step.next_tokens == [5, 5, 1][i]


def test_a_schedule_makes_steps_longer_where_the_world_says_so() -> None:
    truth = replace(TRUTH, schedule_overhead=0.25)
    seconds = []
    for speculation in (Speculation(5, ((1, 1, 0),)), None):
        engine = Engine(truth, 64, 8192, speculation)
        engine.submit(Request("a", 0, 10, SURVIVAL, 0.0, lambda *_: None))
        engine.running.append(engine.waiting.popleft())
        seconds.append(engine.begin(0.0).seconds)
    assert seconds == [pytest.approx(0.0125), pytest.approx(0.010)]
