"""From a text exposition to the counters of one engine."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.estimate.counters import Cell, Counters, TrialCount
from specpilot.metrics.parse import SERIES, Sample, parse_text, to_counters
from specpilot.metrics.prometheus import Series, Snapshot
from specpilot_engine.protocol import ModelShape, Pairs

ENGINE = """\
# HELP specpilot_live_tuning 1 while the draft depth can be changed live.
# TYPE specpilot_live_tuning gauge
specpilot_live_tuning{reason=""} 1.0
specpilot_schedule_generation 12
specpilot_engine_steps_total 1400
specpilot_exploration_steps_total 8
specpilot_exploration_share 0.004
specpilot_steps_total{k="3",batch="16"} 1200
specpilot_step_seconds_total{k="3",batch="16"} 30.5
specpilot_step_requests_total{k="3",batch="16"} 18000
specpilot_emitted_tokens_total{k="3",batch="16"} 39000
specpilot_step_context_tokens_total{k="3",batch="16"} 9e6
specpilot_drafted_tokens_total{position="0"} 18000
specpilot_drafted_tokens_total{position="1"} 18000
specpilot_accepted_tokens_total{position="0"} 12600
specpilot_accepted_tokens_total{position="1"} 8400
"""
VLLM = """\
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 39100.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e9
vllm:prompt_tokens_total{engine="0",model_name="m"} 512.0
vllm:num_preemptions_total{engine="0",model_name="m"} 0.0
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="m"} 3.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 18000.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 18000.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 457.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 18000.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 54000.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 21000.0
vllm:num_requests_running{engine="0",model_name="m"} 15.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
"""


def read(text: str) -> Counters:
    counters = to_counters("pod-1", 100.0, parse_text(text))
    assert counters is not None
    return counters


def test_both_expositions_fill_every_counter() -> None:
    assert read(ENGINE + VLLM) == Counters(
        life="pod-1",
        at=100.0,
        cells={(3, 16): Cell(1200, 30.5, 18000, 39000, 9e6)},
        drafted=(18000, 18000),
        accepted=(12600, 8400),
        context_tokens=9e6,
        all_steps=1400,
        explored_steps=8,
        exploration_share=0.004,
        generation=12,
        live=True,
        generated=39100,
        prompt=512,
        preemptions=0,
        latency_sum=457.5,
        latency_count=18000,
        first_tokens=100,
        drafts=18000,
        drafted_tokens=54000,
        accepted_tokens=21000,
        running=15,
        waiting=0,
    )


def test_what_an_engine_does_not_export_is_absent_and_not_zero() -> None:
    counters = read("vllm:generation_tokens_total 5\n")
    assert counters.generated == 5
    assert counters.drafts is None
    assert counters.live is None
    assert counters.cells == {}
    assert counters.drafted == ()


def test_text_without_one_of_our_series_gives_no_counters() -> None:
    text = 'vllm:cache_config_info{block_size="16"} 1\npython_info 1\n'
    assert to_counters("pod-1", 100.0, parse_text(text)) is None


@pytest.mark.parametrize("bad", ["NaN", "+Inf", "-Inf", "-3"])
def test_a_value_that_cannot_be_true_is_absent(bad: str) -> None:
    text = (ENGINE + VLLM).replace("39100.0", bad).replace(" 30.5", f" {bad}").replace(" 12600", f" {bad}")
    counters = read(text)
    assert counters.generated is None
    assert counters.prompt == 512
    assert counters.cells == {}, "a cell without its seconds says nothing"
    assert counters.accepted == (), "positions behind the hole cannot be told apart"
    assert counters.drafted == (18000, 18000)


@pytest.mark.parametrize(
    ("k", "batch"),
    [("33", "16"), ("999999999", "16"), ("3", "0"), ("3", "17"), ("3", "999999999"), ("-1", "16"), ("3", "")],
)
def test_what_is_no_cell_of_an_engine_package_is_none(k: str, batch: str) -> None:
    odd = ENGINE.replace('k="3",batch="16"', f'k="{k}",batch="{batch}"')
    assert read(odd).cells == {}
    assert read(ENGINE + odd).cells == read(ENGINE).cells


def test_the_engines_of_a_data_parallel_pod_are_summed() -> None:
    other = VLLM.replace('engine="0"', 'engine="1"').replace("39100.0", "900.0")
    counters = read(VLLM + other)
    assert counters.generated == 40000
    assert counters.running == 30
    assert counters.latency_sum == 915


def test_one_engine_without_a_value_makes_the_sum_absent() -> None:
    other = VLLM.replace('engine="0"', 'engine="1"').replace("39100.0", "NaN")
    assert read(VLLM + other).generated is None


def test_of_several_engines_the_oldest_generation_counts_and_all_must_be_live() -> None:
    text = """\
specpilot_live_tuning{engine="0",reason=""} 1
specpilot_live_tuning{engine="1",reason="no lookup"} 0
specpilot_schedule_generation{engine="0"} 12
specpilot_schedule_generation{engine="1"} 11
"""
    counters = read(text)
    assert counters.generation == 11
    assert counters.live is False
    assert counters.live_reason == "no lookup"


def test_a_reason_keeps_its_escaped_characters() -> None:
    text = 'specpilot_live_tuning{reason="no \\"lookup\\" in C:\\\\x"} 0\n'
    assert read(text).live_reason == 'no "lookup" in C:\\x'


def test_labels_that_are_no_numbers_are_left_out() -> None:
    samples = [
        Sample("specpilot_steps_total", {"k": "x", "batch": "1"}, 1),
        Sample("specpilot_drafted_tokens_total", {"position": "999"}, 1),
        Sample("specpilot_accepted_tokens_total", {}, 1),
    ]
    counters = to_counters("pod-1", 100.0, samples)
    assert counters is not None
    assert (counters.cells, counters.drafted, counters.accepted) == ({}, (), ())


def test_a_broken_line_of_ours_is_an_error_and_one_of_others_is_not() -> None:
    assert parse_text("someone_elses{ broken\nvllm:prompt_tokens_total 1\n") == [
        Sample("vllm:prompt_tokens_total", {}, 1.0)
    ]
    with pytest.raises(ValueError):
        parse_text("vllm:prompt_tokens_total one\n")


@given(st.dictionaries(st.sampled_from(SERIES), st.floats(allow_nan=True, allow_infinity=True)))
def test_no_reading_ever_holds_a_number_that_is_not_finite_and_positive(values: dict[str, float]) -> None:
    labels = {"k": "1", "batch": "8", "position": "0"}
    counters = to_counters("pod-1", 1.0, [Sample(n, labels, v) for n, v in values.items()])
    if counters is None:
        assert not any(math.isfinite(v) and v >= 0 for v in values.values())
        return
    cells = [v for c in counters.cells.values() for v in (c.steps, c.seconds, c.requests, c.emitted)]
    numbers = [counters.generated, counters.all_steps, counters.exploration_share, counters.generation]
    for number in (*numbers, *counters.drafted, *counters.accepted, *cells):
        assert number is None or (math.isfinite(number) and number >= 0)


TRIAL = """\
specpilot_trial_pairs 12
specpilot_trial_generation 12
specpilot_trial_log_gain_sum -0.6
specpilot_trial_log_gain_square_sum 0.05
specpilot_trial_running 1
"""


def test_a_trial_is_read_with_its_negative_sum() -> None:
    assert read(ENGINE + TRIAL).trial == TrialCount(12, Pairs(12, -0.6, 0.05), True)


def test_an_engine_without_a_trial_says_that_it_could_and_one_that_cannot_says_nothing() -> None:
    assert read(ENGINE + "specpilot_trial_pairs 0\n").trial == TrialCount()
    assert read(ENGINE).trial is None


def test_engines_of_one_pod_count_together_while_they_try_the_same() -> None:
    one, other = (
        TRIAL.replace(" ", f'{{engine="{i}"}} ').replace('running{engine="1"} 1', 'running{engine="1"} 0')
        for i in range(2)
    )
    assert read(one + other).trial == TrialCount(12, Pairs(24, -1.2, 0.1), True)
    later = other.replace('generation{engine="1"} 12', 'generation{engine="1"} 13')
    assert read(one + later).trial == TrialCount()


SHAPE = 'specpilot_model_shape_info{weights="1.5e+10",weight_flops="1.5e+10",layers="32",draft="block"} 1\n'


def test_the_models_shape_is_read_where_all_engines_of_a_pod_tell_the_same() -> None:
    shape = ModelShape(1.5e10, 1.5e10, 32, draft="block")
    assert read(ENGINE + SHAPE).shape == shape
    assert read(ENGINE + SHAPE + SHAPE.replace("{", '{engine="1",')).shape == shape
    assert read(ENGINE + SHAPE + SHAPE.replace('"32"', '"16"')).shape is None
    assert read(ENGINE + SHAPE.replace('"32"', '"a few"')).shape is None
    assert read(ENGINE).shape is None


def test_prometheus_tells_it_with_labels_of_its_own_beside() -> None:
    (sample,) = parse_text(SHAPE)
    labels = {"__name__": sample.name, "namespace": "llm", "pod": "flash-0", "job": "j", **sample.labels}
    counters = Snapshot([Series(labels, 100.0, 1.0)]).counters(("llm", "flash-0"), "life", {})
    assert counters is not None
    assert counters.shape == ModelShape(1.5e10, 1.5e10, 32, draft="block")
    assert "specpilot_model_shape_info" in SERIES  # which the query names


def test_half_a_trial_is_none() -> None:
    assert read(TRIAL.replace("sum -0.6", "sum NaN")).trial == TrialCount()
