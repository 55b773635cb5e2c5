"""The live scheduler inside vLLM's own engine core, of the version that runs here and of the newest.

Only the model's execution is replaced, by a device whose step times are known exactly.
"""

from collections.abc import Callable

import pytest
from tests.engine.core import drive
from tests.engine.warm import Warm
from tests.setup import vllm

from specpilot_engine.explore import RUN

pytestmark = pytest.mark.xdist_group("vllm-code")

STARTUP = [0, *[5] * 4, *[3] * 12]


@pytest.fixture(scope="module", params=[vllm.VERSION, vllm.NEWEST])
def version(request) -> str:
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["sync", "async"])
def pipelined(request) -> bool:
    return request.param


@pytest.fixture(scope="module")
def reports(code: Callable[[str], Warm], version: str, pipelined: bool) -> dict:
    return drive("core_script.py", code(version), pipelined)


def test_the_live_scheduler_stands_on_the_base_that_vllm_would_use(reports, pipelined):
    bases = reports["switching"]["bases"]
    assert bases[:2] == ["LiveScheduler", "LiveMixin"]
    assert bases[2] == ("AsyncScheduler" if pipelined else "Scheduler")
    assert reports["switching"]["state"]["live"] is True


def test_a_new_depth_is_asked_for_at_the_next_step_and_verified_one_later(reports):
    asked = [step[3] for step in reports["switching"]["steps"]]
    assert asked[:80] == [5] * 20 + [2] * 20 + [0] * 20 + [3] * 20
    verified = [set(step[2]) for step in reports["switching"]["steps"]]
    assert verified[1:80] == [{k} for k in asked[:79]]
    assert reports["switching"]["state"]["generation"] == 3


@pytest.mark.parametrize("scenario", ["switching", "crowds", "exploring", "unscheduled"])
def test_acceptance_by_position_is_what_vllm_counts(reports, scenario):
    report = reports[scenario]
    assert report["our_accepted"] == report["accepted"]
    assert report["our_drafted"] == report["drafted"]
    assert report["accepted"][0] > 0


@pytest.mark.parametrize("scenario", ["switching", "crowds", "exploring", "unscheduled", "unspeculative"])
def test_every_time_it_gives_is_the_devices(reports, scenario):
    report = reports[scenario]
    assert report["all_steps"] == len(report["steps"])
    assert len(report["samples"]) > len(report["steps"]) / 2
    for _tokens, _batch, seconds, truth in report["samples"]:
        assert seconds == pytest.approx(truth)


def test_steps_are_timed_at_every_depth_and_batch_that_lasted(reports):
    seen = {(tokens, batch) for tokens, batch, *_ in reports["switching"]["samples"]}
    assert seen >= {(5, 3), (2, 3), (0, 3), (3, 3)}
    crowds = {(tokens, batch) for tokens, batch, *_ in reports["crowds"]["samples"]}
    assert {tokens for tokens, batch in crowds if batch <= 4} == {5}
    assert {tokens for tokens, batch in crowds if batch > 4} == {3}


def test_exploring_keeps_to_its_price_and_its_steps_are_timed(reports):
    report = reports["exploring"]
    steps = len(report["steps"])
    assert 0.02 * steps - 2 * RUN <= report["explored"] <= 0.02 * steps  # a run is kept in reserve
    assert sum(step[3] == 5 for step in report["steps"]) == report["explored"]
    assert sum(tokens == 5 for tokens, *_ in report["samples"]) >= report["explored"] / 4
    assert report["lookup"] == [0, *[1] * 16]


def test_a_defect_of_ours_switches_tuning_off_and_serving_goes_on(reports):
    report = reports["breaking"]
    assert report["state"]["live"] is False
    assert report["state"]["reason"] == "internal error: RuntimeError('a defect')"
    assert report["lookup"] == STARTUP
    assert report["state"]["schedule"] == [{"upTo": 4, "tokens": 5}, {"upTo": 16, "tokens": 3}]
    assert report["emitted"] == 3 * 200


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("unscheduled", "vLLM runs without a depth schedule"),
        ("unspeculative", "the engine runs without speculation"),
    ],
)
def test_without_a_schedule_nothing_is_set_but_everything_is_measured(reports, scenario, reason):
    report = reports[scenario]
    assert report["lookup"] is None
    assert report["state"]["live"] is False
    assert report["state"]["reason"].startswith(reason)
    assert report["samples"]


def test_a_drafter_that_finds_fewer_tokens_is_keyed_by_what_was_asked(reports, pipelined):
    report = reports["ngram"]
    assert {tokens for tokens, *_ in report["samples"]} == {5, 3}
    if not pipelined:  # vLLM's asynchronous scheduler pads n-gram drafts
        assert any(len(set(step[2])) > 1 for step in report["steps"])
    assert report["our_accepted"] == report["accepted"]


def test_a_vllm_with_other_internals_runs_its_own_scheduler_and_says_why(reports, pipelined):
    report = reports["other_version"]
    assert report["bases"][0] == ("AsyncScheduler" if pipelined else "Scheduler")
    assert report["state"]["live"] is False
    assert report["state"]["reason"] == "vLLM's SchedulerOutput has no field a_field_of_another_version"
    assert report["lookup"] == STARTUP
    assert report["emitted"] == reports["crowds"]["emitted"]
