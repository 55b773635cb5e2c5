"""vLLM's command line as the simulated engine reads it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot_engine.protocol import Schedule, Step
from specpilot_engine.sim.arguments import ConfigError, Speculation, parse_arguments, parse_speculation


def test_what_matters_is_read_and_the_rest_is_vllms():
    speculative = {
        "method": "mtp",
        "num_speculative_tokens": 7,
        "num_speculative_tokens_per_batch_size": [[1, 16, 7], [33, 64, 3], [65, 256, 1]],
        "rejection_sample_method": "block",
    }
    line = "--model org/model --served-model-name flash also --port 8001 --max-num-seqs 64"
    line += " --max_model_len 8K --max-num-batched-tokens=4k --tensor-parallel-size 4 --trust-remote-code"
    a = parse_arguments(
        [
            *line.split(),
            "--compilation-config",
            '{"level": 3}',
            "--speculative-config",
            json.dumps(speculative),
        ]
    )
    assert (a.model, a.served_names, a.port) == ("org/model", ("flash", "also"), 8001)
    assert (a.max_num_seqs, a.max_model_len, a.max_num_batched_tokens) == (64, 8192, 4000)
    assert a.speculation is not None
    lookup = a.speculation.lookup(300)
    assert len(lookup) == 301
    assert [lookup[b] for b in (1, 16, 20, 32, 33, 65, 300)] == [7, 7, 7, 7, 3, 1, 1]
    assert a.speculation.info["rejection_sample_method"] == "block"


def test_without_speculation_there_is_none():
    a = parse_arguments([])
    assert a.speculation is None
    assert a.served_names == ("simulated",)


def test_without_a_schedule_there_is_no_lookup():
    assert parse_speculation({"method": "ngram", "num_speculative_tokens": 4}).lookup(9) is None


@given(
    ends=st.sets(st.integers(1, 40), min_size=1, max_size=5),
    tokens=st.lists(st.integers(0, 9), min_size=5, max_size=5),
    batches=st.integers(1, 30),
)
def test_the_lookup_is_the_schedules_own_reading(ends, tokens, batches):
    schedule = Schedule(1, tuple(Step(end, k) for end, k in zip(sorted(ends), tokens, strict=False)))
    lookup = Speculation(7, tuple(schedule.as_vllm())).lookup(batches)
    assert lookup == [0] + [min(7, schedule.tokens_at(b)) for b in range(1, batches + 1)]


@pytest.mark.parametrize("value", ["{", "[1]", "7"])
def test_a_speculative_config_that_is_no_object_ends_with_status_2(value, capsys):
    with pytest.raises(SystemExit) as end:
        parse_arguments(["--speculative-config", value])
    assert end.value.code == 2
    assert "--speculative-config" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_spec_tokens": 3}, "'num_spec_tokens' is not a field"),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens must be"),
        ({"num_speculative_tokens": None}, "num_speculative_tokens must be"),
        ({"rejection_sample_method": "lucky"}, "rejection_sample_method must be one of standard"),
        ({"method": None}, "neither a method nor a model"),
        ({"num_speculative_tokens_per_batch_size": []}, "must be a list of"),
        ({"num_speculative_tokens_per_batch_size": [[1, 8]]}, "must be a list of"),
        ({"num_speculative_tokens_per_batch_size": [[2, 8, 1]]}, "must start at 1"),
        ({"num_speculative_tokens_per_batch_size": [[1, 8, 1], [8, 9, 0]]}, "overlap"),
        ({"num_speculative_tokens_per_batch_size": [[1, 8, -1]]}, "must be a list of"),
    ],
)
def test_what_vllm_would_refuse_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        parse_speculation({"method": "mtp", "num_speculative_tokens": 3} | change)


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit) as end:
        parse_arguments(["--help"])
    assert end.value.code == 0
    assert "curl localhost:8000/v1/completions" in capsys.readouterr().out
