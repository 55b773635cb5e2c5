"""Arms: pods restarted without a drafter where drafts are hopeless, and what was measured decides if it stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from tests.cluster.operator_process import OperatorProcess, running
from tests.cluster.operator_world import Watched, load, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

Body = dict[str, Any]
HOPELESS = {"mixed": {"survival": [0.02, 0, 0, 0, 0, 0, 0]}}


@pytest.fixture
def operator(cluster: Cluster, operator_image: str, tmp_path: Any) -> Iterator[OperatorProcess]:
    with running(cluster, tmp_path, engineImage=operator_image) as process:
        yield process


def hopeless(name: str, image: str, actuator: str = "Restart", **sim: Any) -> Body:
    """Drafts of which hardly any is accepted; another arm may be gone to after 7.5 s, and is judged as long."""
    body = simulated(name, image, {"traffic": HOPELESS, **sim})
    tuning = {"interval": "1s", "dwell": "500ms", "actuator": actuator}
    body["spec"] |= {"tuning": tuning, "speculation": {"method": "MTP", "maxTokens": 7, "candidates": [0, 1]}}
    return body


@contextmanager
def traffic(of: Watched) -> Iterator[None]:
    """Four clients, at whatever pods there are."""
    over = threading.Event()
    with load(of.urls(), clients=4) as asked:

        def follow() -> None:
            while not over.wait(0.5):
                found = [ip for pod in of.pods() if (ip := pod["status"].get("podIP"))]
                asked.urls = [f"http://{ip}:8000" for ip in found] or asked.urls

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def arm(of: Watched) -> Body:
    return dict(of.status().get("arm") or {})


def arguments(of: Watched) -> list[str]:
    (container,) = of.children()["Deployment", of.name]["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def test_what_is_measured_decides_whether_pods_stay_without_a_drafter(
    operator: OperatorProcess, sim_image: str
) -> None:
    """Without a schedule steps are shorter in one world and longer in another; in a third engines do not
    start without a drafter, and in a fourth nobody gave leave to restart."""
    worlds = {
        "kept": hopeless("kept", sim_image, schedule_overhead=0.3),
        "undone": hopeless("undone", sim_image, schedule_overhead=-0.2),
        "failed": hopeless("failed", sim_image, fail={"without_drafter": True}),
        "told": hopeless("told", sim_image, "Auto", schedule_overhead=0.3),
    }
    with ExitStack() as stack:
        where = stack.enter_context(operator.identity.place())
        kept, undone, failed, told = (Watched(operator.identity.cluster, where, name) for name in worlds)
        every = (kept, undone, failed, told)
        for watched in every:
            watched.apply(worlds[watched.name])
        for watched in every:
            watched.serving()
        lives = told.pod_lives()
        for watched in every:
            stack.enter_context(traffic(watched))
        eventually(lambda: arm(told).get("better") == "none", 60, "a recommendation")
        eventually(lambda: arm(kept).get("reason") == "ArmKept", 90, "what was measured bears it out")
        eventually(lambda: arm(undone).get("reason") == "ArmUndone", 60, "what was measured does not")
        eventually(lambda: arm(failed).get("reason") == "ArmFailed", 60, "pods that do not start go back")
        for watched in every:
            watched.wait("Ready", "Serving")
        decision = kept.status()["lastDecision"]
        assert (decision["reason"], arm(kept)["inForce"]) == ("ArmKept", "none")
        assert 0.15 < float(decision["measuredGain"]) < 0.45
        assert "--speculative-config" not in arguments(kept)
        assert kept.status()["speculation"]["desired"]["schedule"][0]["tokens"] == 0
        assert kept.condition("Speculating")["reason"] == "DepthZero"
        for watched in (undone, failed):
            eventually(lambda of=watched: arm(of)["inForce"] == "schedule", 30, "the schedule is back")
            assert "--speculative-config" in arguments(watched)
        assert float(undone.status()["lastDecision"]["measuredGain"]) < -0.05
        assert "keeps failing" in arm(failed)["message"]
        assert "ArmFailed" in {reason for reason, _ in failed.events()}
        assert told.pod_lives() == lives
        assert arm(told)["inForce"] == "schedule"

        # What is in force outlives the operator, and nothing is rolled for it.
        lives = kept.pod_lives()
        operator.kill()
        since = operator.identity.position()
        operator.start()
        eventually(lambda: operator.metric("specpilot_operator_leading") == 1.0, 20, "the new operator leads")
        eventually(lambda: operator.metric("specpilot_operator_ticks_total") >= 4, 20, "several ticks")
        assert not [w for w in operator.identity.writes(since) if w.resource == "deployments"]
        assert (kept.pod_lives(), arm(kept)["inForce"]) == (lives, "none")
