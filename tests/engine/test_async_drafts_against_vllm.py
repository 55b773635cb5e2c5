"""Drafts of unequal length under asynchronous scheduling, through vLLM's own scheduler and both model runners.

Each request's drafts are cut at random while they are placeholders. Model, drafter and greedy verification are
replaced; how inputs, positions and counts go from step to step is vLLM's code.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.core import drive
from tests.engine.warm import Warm
from tests.setup import vllm

pytestmark = pytest.mark.xdist_group("vllm-code")


@pytest.fixture(scope="module", params=[vllm.VERSION, vllm.NEWEST])
def reports(request: pytest.FixtureRequest, code: Callable[[str], Warm]) -> dict[str, Any]:
    return drive("async_script.py", code(request.param), pipelined=True)


@pytest.fixture(params=["first", "second"])
def report(request: pytest.FixtureRequest, reports: dict[str, Any]) -> dict[str, Any]:
    """With the scheduler working for one of the model runners; both run on what it schedules."""
    one: dict[str, Any] = reports[request.param]
    return one


def test_it_is_vllms_asynchronous_scheduler_and_drafts_may_be_cut(report):
    assert report["bases"][:3] == ["LiveScheduler", "LiveMixin", "AsyncScheduler"]
    assert (report["whole_drafts"], report["live"]) == ("", True)


def test_steps_verify_different_numbers_of_drafts_for_each_request_and_none_for_some(report):
    drafts = report["drafts"]
    assert sum(len(set(lengths)) > 2 for lengths in drafts) > 40
    assert sum(0 in lengths and any(lengths) for lengths in drafts) > 40
    assert sum(not any(lengths) for lengths in drafts) > 15


def test_every_request_gets_what_the_target_alone_would_have_said(report):
    assert report["wrong"] == []
    assert report["finished"] >= report["requests"] - 2 > 10  # two are aborted
    assert report["emitted"] > 700


def test_both_model_runners_sample_the_same_at_every_step(report):
    assert report["differ"] == []


def test_vllms_shared_placeholders_are_left_alone(report):
    assert (report["mutated"], report["shared"]) == (0, True)


def test_no_request_and_no_block_is_left_behind(report):
    assert report["left"] == [0, 0.0]


def test_steps_that_were_cut_are_not_counted_for_the_operator(report):
    assert report["counted"] == 0
