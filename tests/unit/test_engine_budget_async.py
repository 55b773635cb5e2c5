"""The row budget where a step is scheduled before the results of the one before it are there."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.async_engine import DEEPEST, DEPTH, PRICE, Engine, step_seconds

from specpilot_engine import probe
from specpilot_engine.protocol import Exploration, Step, Trial


def verified_whole(engine: Engine) -> int:
    """Drafts of the steps that verified all that was drafted."""
    return sum(len(lengths) for lengths, drafted in engine.landed if lengths == drafted and any(drafted))


def test_placeholders_are_replaced_for_each_request_and_the_shared_list_is_left_alone():
    engine = Engine(lambda i: 0.9 * (i % 2))
    engine.run(2000)  # at each step the engine looks whether the lists are as they were
    lengths = [lengths for lengths, _ in engine.landed[500:]]
    good, bad = (sum(n[i] + n[i + 2] for n in lengths) for i in (1, 0))
    assert good > 5 * bad


def test_hopeless_drafts_are_cut_and_goodput_triples():
    engine = Engine(lambda _: 0.0)
    engine.run(1500)
    assert 0.95 * 4 / step_seconds(4) < engine.goodput(2000) < 4 / step_seconds(4)


def test_drafts_that_pay_stay_whole_but_for_the_looks():
    engine = Engine(lambda _: 0.97)
    engine.run(2000)
    assert sum(lengths == drafted for lengths, drafted in engine.landed) > 0.97 * 2000
    assert not engine.trimmer.cutting


def test_a_cut_step_that_lands_after_a_whole_one_was_scheduled_is_not_counted():
    engine = Engine(lambda i: 0.9 * (i % 2))
    engine.run(12000)
    counted = engine.recorder.draft_lengths
    assert counted[:DEPTH] == [0] * DEPTH
    # A step can be whole because every row pays; what is counted was whole by plan.
    assert 0 < counted[DEPTH] <= verified_whole(engine)
    assert counted[DEPTH] < 0.2 * 4 * 12000
    for slot in range(DEPTH):
        share = sum(engine.recorder.accepted_lengths[slot + 1 :]) / counted[DEPTH]
        assert share == pytest.approx(0.5 * 0.9 ** (slot + 1), abs=0.05)


def test_a_whole_step_that_lands_after_a_cut_one_was_scheduled_is_counted():
    engine = Engine(lambda _: 0.0)
    engine.run(600)
    # Of hopeless drafts no step is whole but by plan.
    assert engine.recorder.draft_lengths[DEPTH] == verified_whole(engine) > 0


def test_steps_are_timed_by_their_own_rows():
    engine = Engine(lambda i: 0.9 * (i % 2))
    engine.run(3000)
    assert len({rows for rows, _ in engine.trimmer.times}) > 3
    for rows, seconds in engine.trimmer.times:
        assert seconds == pytest.approx(step_seconds(rows))
    samples = engine.recorder.samples()
    assert len(samples) > 20
    assert {(s.tokens, round(s.seconds, 9)) for s in samples} == {(DEPTH, step_seconds(4 * (1 + DEPTH)))}


def test_without_a_price_the_next_step_is_whole_and_the_cut_one_in_flight_is_not_counted():
    engine = Engine(lambda _: 0.0)
    engine.run(600)
    while engine.flying[-1][0].scheduled_spec_decode_tokens:
        engine.run(1)
    counted, landed = list(engine.recorder.draft_lengths), len(engine.landed)
    engine.ask(price=0.0)
    engine.run(50)
    lengths = [lengths for lengths, _ in engine.landed[landed:]]
    assert lengths == [[0] * 4] + [[DEPTH] * 4] * 49
    after = engine.recorder.draft_lengths
    assert (after[:DEPTH], after[DEPTH] - counted[DEPTH]) == ([0] * DEPTH, 49 * 4)


def test_what_explores_another_depth_is_verified_whole_one_step_later():
    engine = Engine(lambda _: 0.0)
    engine.run(300)
    engine.ask(PRICE, Exploration(0.02, DEEPEST, 0.5, 16))
    engine.run(800)
    deep = [lengths for lengths, drafted in engine.landed if DEEPEST in drafted]
    assert len(deep) >= 8
    assert {tuple(lengths) for lengths in deep} == {(DEEPEST,) * 4}
    assert engine.recorder.draft_lengths[DEEPEST] == 4 * len(deep)


def test_what_a_trial_compares_is_verified_whole():
    engine = Engine(lambda _: 0.0)
    engine.run(300)
    engine.ask(PRICE, trial=Trial((Step(64, 2),), slice=6, pairs=8))
    engine.run(2)  # those in flight were cut, or not, before it began
    landed = len(engine.landed)
    engine.run(150)
    assert engine.recorder.trial.running is False
    assert engine.recorder.trial.tried == engine.recorder.trial.pairs.count == 5  # it is beyond doubt
    compared = engine.landed[landed : landed + 60]
    assert all(lengths == drafted for lengths, drafted in compared)
    assert {tuple(lengths) for lengths, _ in compared} == {(2,) * 4, (DEPTH,) * 4}


def test_drafts_cut_for_a_step_that_scheduled_nobody_are_not_counted_later():
    engine = Engine(lambda i: 0.9 * (i % 2))
    engine.run(4000, paused=lambda i: i % 3 == 0)
    assert engine.recorder.draft_lengths[:DEPTH] == [0] * DEPTH
    assert engine.recorder.draft_lengths[DEPTH] > 0


def test_results_of_a_step_that_was_never_noted_are_not_counted():
    engine = Engine(lambda _: 0.5)
    engine.run(3)
    before = sum(engine.recorder.draft_lengths)
    output, *_ = engine.flying[0]
    engine.hooks._flying.clear()
    results = SimpleNamespace(sampled_token_ids=[[7]] * 4, req_id_to_index={f"r{i}": i for i in range(4)})
    engine.hooks.before_update(output, results)
    assert sum(engine.recorder.draft_lengths) == before


class _Request:
    def __init__(self) -> None:
        self.spec_token_ids: list[int] = []


class _Sync:
    def schedule(self) -> Any:
        return self.running[0].spec_token_ids  # type: ignore[attr-defined]


class _Async(_Sync):
    def _update_after_schedule(self, output: Any) -> None:
        for request in output.running:
            request.num_output_placeholders += 1 + len(output.scheduled_spec_decode_tokens)
            request.spec_token_ids = self.placeholders  # type: ignore[attr-defined]


class _Unknown(_Sync):
    def _update_after_schedule(self, output: Any) -> None:
        output.running[0].spec_token_ids = []


def configured(pipelined: bool = True, stages: int = 1, graphs: bool = False, **speculation: Any) -> Any:
    speculation = {"method": "eagle3", "use_multi_module_mtp": lambda: False, **speculation}
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(async_scheduling=pipelined),
        parallel_config=SimpleNamespace(pipeline_parallel_size=stages),
        compilation_config=SimpleNamespace(
            cudagraph_mode=SimpleNamespace(has_full_cudagraphs=lambda: graphs)
        ),
        speculative_config=SimpleNamespace(**speculation),
    )


@pytest.mark.parametrize(
    ("base", "config", "reason"),
    [
        (_Async, configured(), ""),
        (_Sync, configured(pipelined=False), ""),
        (_Async, configured(stages=2), "the engine has several pipeline stages"),
        (_Async, configured(graphs=True), "the engine uses full CUDA graphs"),
        (_Async, configured(enable_adaptive_verification=True), "vLLM verifies adaptively itself"),
        (
            _Sync,
            configured(pipelined=False, use_multi_module_mtp=lambda: True),
            "the drafter chains MTP modules, which count on whole drafts",
        ),
        (_Async, configured(method="ngram_gpu"), "vLLM itself leaves out n-gram drafts that found nothing"),
        (_Sync, configured(), "vLLM schedules asynchronously in an unknown way"),
        (_Unknown, configured(), "vLLM schedules asynchronously in an unknown way"),
        (_Unknown, configured(pipelined=False), ""),
    ],
)
def test_drafts_are_cut_only_where_it_is_known_to_be_right(monkeypatch, base, config, reason):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "vllm.v1", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "vllm.v1.request", SimpleNamespace(Request=_Request))
    assert probe.cutting_problem(base, config) == reason
