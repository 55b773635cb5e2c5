"""The profiler measures, resumes, and says what it could not measure."""

import signal
import time
from dataclasses import replace

import pytest
from tests.engine.profiler_pod import GRID, JOB, PATIENCE, TRUTH, pod, until

from specpilot_engine.protocol import ProfileRequest

__all__ = ["pod"]


def test_measures_the_true_step_time_of_every_point_and_is_ready_only_then(pod):
    pod.engine()
    pod.profiler()
    until(lambda: not pod.may_serve.exists() and pod.profile()["points"], "a first point")
    profile = pod.finished()
    until(pod.may_serve.exists, "the pod to be ready")
    assert (profile["key"], profile["total"], profile["error"]) == ("fingerprint", 4, "")
    assert pod.measured(profile) == pytest.approx(TRUTH)
    assert {(p["steps"], p["contextLength"]) for p in profile["points"]} == {(8, 512)}
    until(lambda: not pod.override.exists(), "the override to be removed")


def test_goes_on_after_being_killed_and_measures_no_point_twice(pod):
    pod.engine()
    long = replace(GRID, repeats=100)  # so that the others are not measured before it is killed
    first = pod.profiler(long)
    until(lambda: len(pod.profile()["points"]) >= 1, "a first point")
    first.kill()
    first.wait()
    assert pod.measurements() < 4
    pod.profiler(long)
    assert pod.measured(pod.finished()) == pytest.approx(TRUTH)
    assert pod.measurements() == 4


def test_a_finished_profile_needs_no_engine(pod):
    pod.engine()
    first = pod.profiler()
    pod.finished()
    for process in pod.processes:
        process.kill()
        process.wait()
    assert first.poll() is not None
    pod.profiler()
    assert pod.measured(pod.finished()) == pytest.approx(TRUTH)


def test_a_job_ends_with_success_once_every_point_was_read(pod):
    pod.engine()
    process = pod.profiler(JOB)
    pod.finished()
    pod.profile("?seen=1")
    time.sleep(1)
    assert process.poll() is None
    assert pod.profile("?seen=2")["finished"]
    assert process.wait(PATIENCE) == 0


def test_what_the_engine_cannot_hold_is_left_out_with_the_reason(pod):
    pod.engine()
    pod.profiler(ProfileRequest("k", (0, 5, 3), (1, 16, 32), (512, 4096), 4, 1, 60.0))
    profile = pod.finished()
    assert set(pod.measured(profile)) == {(0, 1), (3, 1)}
    assert profile["total"] == 18
    for reason in (
        "depth 5 is above the 3 tokens the engine was started with (1 point left out)",
        "the engine runs no more than 8 requests at once (12 points left out)",
        "context 4096 is above the engine's 2048 tokens (3 points left out)",
    ):
        assert reason in profile["error"]


def test_an_engine_that_cannot_change_its_depth_is_said_at_once(pod):
    pod.engine(fail={"live": "vLLM's Scheduler has no schedule()"})
    pod.profiler()
    profile = pod.finished()
    assert profile["points"] == []
    assert "cannot change its depth while it runs: vLLM's Scheduler has no schedule()" in profile["error"]
    until(pod.may_serve.exists, "the pod to be ready")


def test_the_budget_ends_it_with_what_it_has(pod):
    """The first of two depths takes a second, the other half a minute."""
    pod.engine(step_time_ms=[[10, 10], [300, 300]])
    pod.profiler(ProfileRequest("k", (0, 3), (1, 8), (512,), 100, 2, 6.0))
    profile = pod.finished()
    assert [point["tokens"] for point in profile["points"]] == [0]
    assert "the budget of 6 seconds is spent" in profile["error"]
    pod.processes[-1].terminate()
    assert pod.processes[-1].wait(PATIENCE) == 0
    pod.profiler(ProfileRequest("k", (0, 3), (1, 8), (512,), 100, 2, 6.0))
    again = pod.finished()
    assert again["points"] == profile["points"]


def test_an_engine_that_goes_away_twice_under_a_batch_loses_that_batch_only(pod):
    # Slow steps: on a busy machine too, a request outlasts the crash.
    slow = {"step_time_ms": [[40, 60], [80, 120]]}
    pod.profiler(ProfileRequest("k", (0,), (1, 8), (512,), 120, 2, 120.0))
    until(lambda: "key" in pod.profile(), "the profiler's port")
    for _ in range(2):
        pod.engine(**slow, fail={"crash_after": 4}).wait()
    pod.engine(**slow)
    profile = pod.finished()
    assert pod.measured(profile) == pytest.approx({(0, 8): 60})
    assert profile["error"] == "the engine went away 2 times at 1 requests, context 512 (1 point left out)"


def test_ended_by_the_kubelet_it_takes_its_override_away(pod):
    pod.engine()
    process = pod.profiler(ProfileRequest("k", (0,), (1,), (512,), 10_000, 0, 120.0))
    until(pod.override.exists, "the override")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert not pod.override.exists()
