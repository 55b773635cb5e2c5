"""A bug of the operator that one object meets: that object says so, its pods stay, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.operator_process import OperatorProcess, running
from tests.cluster.operator_world import Watched, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

# What a file says breaks for one object: rendering two replicas, rendering at all, or a step of its tuning.
BUG = """
from pathlib import Path
import specpilot.control.reconcile as module
sound = module.render
def render(sd, inputs):
    word = Path({flag!r}).read_text() if Path({flag!r}).exists() else ""
    if sd.metadata.name == "unlucky" and (word == "any" or word == "two" and sd.spec.replicas == 2):
        raise KeyError("tokens")
    return sound(sd, inputs)
module.render = render
import specpilot.control.retune as retune
sound_step = retune.step
def step(evidence, counters, points, to, publish, now):
    if to.dwell == 3.0 and Path({flag!r}).exists() and Path({flag!r}).read_text() == "step":
        raise ZeroDivisionError("division by zero")
    return sound_step(evidence, counters, points, to, publish, now)
retune.step = step
"""


@pytest.fixture(scope="module")
def flag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bug") / "flag"


@pytest.fixture(scope="module")
def operator(cluster: Cluster, operator_image: str, flag: Path) -> Iterator[OperatorProcess]:
    with running(cluster, flag.parent, BUG.format(flag=str(flag)), engineImage=operator_image) as process:
        yield process


@pytest.fixture(scope="module")
def unlucky(cluster: Cluster, where: str, sim_image: str) -> Watched:
    found = Watched(cluster, where, "unlucky")
    found.apply(simulated("unlucky", sim_image, tuning={"interval": "1s", "dwell": "3s"}))
    found.serving()
    return found


def test_a_change_that_meets_a_bug_leaves_everything_as_it_was(
    unlucky: Watched, cluster: Cluster, sim_image: str, flag: Path
) -> None:
    flag.write_text("two")
    lives, schedule, children = unlucky.pod_lives(), unlucky.schedule(), unlucky.versions()
    unlucky.patch(replicas=2)
    degraded = unlucky.wait("Degraded", "InternalError", 20)
    assert degraded["status"] == "True"
    assert "KeyError: 'tokens'" in degraded["message"]
    assert "take the last change of the object back" in degraded["message"]
    assert (unlucky.condition("Ready")["status"], unlucky.condition("Ready")["reason"]) == (
        "False",
        "InternalError",
    )
    eventually(lambda: "InternalError" in dict(unlucky.events()), 10, "an event tells of it")

    other = Watched(cluster, unlucky.namespace, "sound")
    other.apply(simulated("sound", sim_image, replicas=2))
    other.serving()
    assert (unlucky.pod_lives(), unlucky.schedule(), unlucky.versions()) == (lives, schedule, children)
    assert len([event for event in unlucky.events() if event[0] == "InternalError"]) == 2  # Degraded, Ready

    unlucky.patch(replicas=1)
    assert unlucky.wait("Degraded", "AsExpected", 20)["status"] == "False"
    assert unlucky.pod_lives() == lives


def test_a_bug_that_comes_with_the_operator_says_no_untruth_of_what_serves(
    unlucky: Watched, operator: OperatorProcess, flag: Path
) -> None:
    unlucky.wait("Progressing", "RolledOut", 20)
    lives, schedule = unlucky.pod_lives(), unlucky.schedule()
    operator.kill()
    flag.write_text("any")
    operator.start()
    unlucky.wait("Degraded", "InternalError", 20)
    assert unlucky.condition("Ready")["status"] == "True"
    assert unlucky.condition("Progressing")["reason"] == "RolledOut"
    assert (unlucky.pod_lives(), unlucky.schedule()) == (lives, schedule)
    flag.unlink()
    unlucky.wait("Degraded", "AsExpected", 90)
    unlucky.serving()
    assert unlucky.pod_lives() == lives


def test_a_bug_in_tuning_keeps_the_schedule_and_is_told_until_it_is_over(
    unlucky: Watched, flag: Path
) -> None:
    lives, schedule = unlucky.pod_lives(), unlucky.schedule()
    flag.write_text("step")
    told = unlucky.wait("Tuned", "InternalError", 30)
    assert told["status"] == "False"
    assert "ZeroDivisionError: division by zero" in told["message"]
    assert unlucky.condition("Ready")["status"] == "True"
    assert (unlucky.pod_lives(), unlucky.schedule()) == (lives, schedule)
    flag.unlink()
    eventually(lambda: unlucky.condition("Tuned")["reason"] != "InternalError", 30, "tuned again")
