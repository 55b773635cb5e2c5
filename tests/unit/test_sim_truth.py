"""The simulated world: cost table, survival, and what is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot_engine.sim.defaults import DEFAULT_TRUTH
from specpilot_engine.sim.truth import TruthError, read_truth

WORLD = {
    "depths": [0, 2, 4],
    "batches": [1, 3],
    "step_time_ms": [[10, 14], [20, 30], [40, 60]],
    "context_factor": {"1000": 1.0, "3000": 2.0},
    "traffic": {"chat": {"survival": [0.8, 0.6, 0.4, 0.2]}, "code": {"survival": [0.9, 0.9, 0.9, 0.9]}},
}


@pytest.mark.parametrize(
    ("tokens", "batch", "context", "ms"),
    [
        (0, 1, 1000, 10),
        (4, 3, 1000, 60),
        (0, 2, 1000, 12),  # between batches
        (1, 1, 1000, 15),  # between depths
        (3, 2, 1000, 37.5),  # between both
        (0, 5, 1000, 18),  # above the last batch the last slope goes on
        (5, 1, 1000, 50),  # above the last depth too
        (0, 1, 2000, 15),  # between contexts
        (0, 1, 10, 10),  # below the first context
        (0, 1, 99999, 20),  # above the last
    ],
)
def test_step_time_is_linear_between_what_the_table_says(tokens, batch, context, ms):
    assert read_truth(json.dumps(WORLD)).step_seconds(tokens, batch, context) == pytest.approx(ms / 1e3)


def test_time_scale_divides_the_durations_of_the_world():
    fast = read_truth(
        json.dumps(WORLD | {"time_scale": 10, "startup_seconds": 3, "prefill_ms_per_token": 0.5})
    )
    assert fast.step_seconds(0, 1, 0) == pytest.approx(1e-3)
    assert fast.startup_seconds == pytest.approx(0.3)
    assert fast.prefill_seconds_per_token == pytest.approx(5e-5)


def test_unknown_traffic_is_the_default_kind():
    truth = read_truth(json.dumps(WORLD))
    assert truth.survival("alice") == truth.survival(None) == truth.survival("chat") == (0.8, 0.6, 0.4, 0.2)
    assert read_truth(json.dumps(WORLD | {"default_traffic": "code"})).survival(None) == (0.9,) * 4


def test_built_in_world_reproduces_the_published_throughput():
    truth = read_truth(None)
    for depth, batch, rate in [(0, 1, 101), (1, 64, 3864), (3, 256, 9728), (5, 16, 1939), (7, 128, 6250)]:
        length = 1 + sum(truth.survival("mixed")[:depth])
        assert batch * length / truth.step_seconds(depth, batch, 0) == pytest.approx(rate, rel=1e-3)


def test_built_in_step_times_rise_with_depth_and_batch():
    rows = DEFAULT_TRUTH["step_time_ms"]
    assert all(row == sorted(row) for row in rows)
    assert all(list(column) == sorted(column) for column in zip(*rows, strict=True))


@pytest.mark.parametrize(("kind", "best"), [("code", 7), ("chat", 3), ("prose", 1)])
def test_best_depth_of_the_built_in_world_moves_with_the_traffic(kind, best):
    truth = read_truth(None)
    goodput = {k: (1 + sum(truth.survival(kind)[:k])) / truth.step_seconds(k, 32, 0) for k in (0, 1, 3, 5, 7)}
    assert max(goodput, key=goodput.__getitem__) == best


@given(k=st.integers(0, 12), batch=st.integers(1, 600), context=st.floats(0, 1e5))
def test_step_time_never_falls_with_batch_or_depth(k, batch, context):
    truth = read_truth(None)
    here = truth.step_seconds(k, batch, context)
    assert 0 < here <= truth.step_seconds(k, batch + 1, context)
    assert here <= truth.step_seconds(k + 1, batch, context)


def test_settings_can_come_from_a_world_file(tmp_path: Path):
    file = tmp_path / "world.json"
    file.write_text(json.dumps(WORLD | {"name": "w", "phases": [], "scrape_seconds": 15}))
    assert read_truth(f"@{file}").depths == (0, 2, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("@/nowhere/world.json", "cannot read /nowhere/world.json: No such file"),
        ({"speed": 2}, "unknown setting 'speed'"),
        ({"depths": [0, 1]}, "belong together"),
        (WORLD | {"depths": [0, 4, 2]}, "depths must rise"),
        (WORLD | {"batches": [0, 3]}, "batches must rise and start at 1"),
        (WORLD | {"step_time_ms": [[1, 2]]}, "must have 3 rows"),
        (WORLD | {"step_time_ms": [[1, 2], [1, 0], [1, 2]]}, "step_time_ms must be a number above 0"),
        ({"traffic": {"a": {"survival": [0.5, 0.6]}}}, "must fall"),
        ({"traffic": {"a": {"survival": [0.5]}}}, "has 1 slots, but depths go to 7"),
        ({"traffic": {"a": [0.5]}}, "survival"),
        ({"default_traffic": "poem"}, "default_traffic 'poem' is not one of mixed"),
        ({"time_scale": 0}, "time_scale must be a number above 0"),
        ({"step_noise": -1}, "step_noise"),
        ({"fail": {"start": "yes"}}, "fail takes"),
        ({"fail": {"explode": True}}, "fail takes"),
    ],
)
def test_a_wrong_setting_is_named(text, message):
    with pytest.raises(TruthError, match=message):
        read_truth(text if isinstance(text, str) else json.dumps(text))
