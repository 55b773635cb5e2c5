"""The benchmark on a real vLLM: its statistics, and what is printed of them."""

import json
from dataclasses import replace
from statistics import stdev

import pytest
from benchmarks.real_vllm.report import estimate, result
from benchmarks.real_vllm.scenario import PRODUCT
from benchmarks.real_vllm.table import table
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.test_benchmark_real_vllm import SMALL, hundred, played


@pytest.mark.parametrize(
    ("freedom", "t"),
    [
        (1, 12.7062),
        (2, 4.3027),
        (3, 3.1824),
        (4, 2.7764),
        (5, 2.5706),
        (9, 2.2622),
        (10, 2.2281),
        (30, 2.0423),
    ],
)
def test_an_interval_is_as_wide_as_students_tables_say(freedom, t):
    values = [float(i % 2) for i in range(freedom + 1)]
    half = t * stdev(values) / (freedom + 1) ** 0.5
    assert estimate(values).high - estimate(values).mean == pytest.approx(half, rel=5e-5)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12))
def test_an_interval_is_about_the_mean_and_within_it_lies_no_less_than_the_mean(values):
    found = estimate(values)
    assert found.low <= found.mean <= found.high
    assert found.high - found.mean == pytest.approx(found.mean - found.low, abs=1e-9)
    assert found.least - 1e-9 <= found.mean <= found.most + 1e-9


def test_four_repeats_give_the_paired_interval():
    found = estimate([0.01, 0.03, 0.02, 0.04])
    half = 3.182446 * 0.0129099 / 2
    assert found.mean == pytest.approx(0.025)
    assert (found.low, found.high) == pytest.approx((0.025 - half, 0.025 + half), abs=1e-6)


def test_the_best_fixed_depth_is_one_for_the_whole_scenario_and_of_each_phase_its_own():
    rates = {"k=0": (30, 400), "k=1": (50, 390), "k=2": (70, 300), "k=3": (80, 250), "k=5": (60, 100)}
    rates[PRODUCT] = (76, 396)
    found = result(SMALL, played(SMALL, lambda key: rates[key.arm][key.phase]))
    assert found.best == "k=1"
    assert found.against_best.mean == pytest.approx(472 / 440 - 1)
    assert [(p.best, p.share) for p in found.phases] == [("k=3", 0.95), ("k=0", 0.99)]
    assert [p.at_best for p in found.phases] == [0.25, 0.0]
    assert found.of_phase_best.mean == pytest.approx(472 / 480)
    assert found.over_deepest.mean == pytest.approx(472 / 160)
    # With each phase alike, depth 2 is as good as any: 70 × 300 beats 50 × 390.
    assert found.best_alike == "k=2"
    assert found.against_best_alike.mean == pytest.approx((76 * 396 / (70 * 300)) ** 0.5 - 1)


def test_a_machine_that_is_slow_for_a_whole_repeat_does_not_widen_the_interval():
    slow = {0: 1.0, 1: 0.5}
    rates = {PRODUCT: 110, "k=3": 100}
    found = result(SMALL, played(SMALL, lambda key: slow[key.repeat] * rates.get(key.arm, 50)))
    assert (found.against_best.low, found.against_best.high) == pytest.approx((0.1, 0.1))
    assert found.phases[0].goodput[PRODUCT][1] == pytest.approx(110 / 2 / 2**0.5)


def test_repeats_that_are_not_complete_are_left_out_and_told():
    segments = played(SMALL, hundred)
    assert result(SMALL, {k: s for k, s in segments.items() if k.arm != "k=0"}) is None
    last = list(segments)[-1]
    found = result(SMALL, {k: s for k, s in segments.items() if k != last})
    assert (found.repeats, found.left_out) == (1, 1)
    assert found.against_best.low is None


def test_the_table_says_whether_the_goals_are_met():
    rates = {PRODUCT: 110, "k=3": 100, "k=5": 99}
    found = result(SMALL, played(SMALL, lambda key: rates.get(key.arm, 50) + key.repeat / 10))
    text = table(found)
    assert "| specpilot against k=3, the best fixed depth in hindsight | +10.0% (+9.9% to +10.1%)" in text
    assert [line.rsplit("|", 2)[1].strip() for line in text.splitlines()[2:6]] == ["met", "", "met", "MISSED"]
    assert (
        "| strong | 16 sampling | 110 ± 0 | 50 ± 0 | 50 ± 0 | 50 ± 0 | **100 ± 0** | 99 ± 0 | 110.0% | 25% |"
        in text
    )
    one = replace(SMALL, repeats=1)
    once = table(result(one, played(one, hundred)))
    assert once.count("one repeat proves nothing") == 3


def test_the_json_holds_what_the_table_says():
    found = result(SMALL, played(SMALL, hundred))
    doc = json.loads(json.dumps(found.as_json()))
    assert doc["against_best"]["mean"] == 0.0
    assert doc["phases"][1]["goodput"][PRODUCT] == [100.0, 0.0]
