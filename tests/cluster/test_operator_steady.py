"""Ten deployments under constant load: the operator looks at them, tick by tick, and writes nothing."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.operator_world import Watched, load, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

COUNT, TICKS, TICK = 10, 12, 1.0
TUNING = {"interval": "1s", "dwell": "2s", "minimumGain": 0.1}  # what gains less takes minutes to prove


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_nothing_is_written_before_or_after_a_restart(
    operator: OperatorProcess, cluster: Cluster, sim_image: str
) -> None:
    slow = {"time_scale": 0.25}  # ten engines on the processors of one test machine
    with ExitStack() as stack:
        where = stack.enter_context(operator.identity.place())
        fleet = [Watched(cluster, where, f"flash-{i}") for i in range(COUNT)]
        for one in fleet:
            one.apply(simulated(one.name, sim_image, slow, tuning=TUNING))
        for one in fleet:
            one.serving(180)
        for one in fleet:
            stack.enter_context(load(one.urls(), clients=2))
        # Without a profile the first minutes teach much, also about loads that do not run, and a trial is as quiet as
        # a settled schedule, but ends with a word.
        identity = operator.identity
        identity.quiet(30, 240, "thirty ticks without a write")
        while not all(one.condition("Tuned")["reason"] == "Holding" for one in fleet):
            identity.quiet(30, 240, "thirty ticks without a write, and no trial")

        operator.kill()
        operator.start()
        eventually(lambda: operator.metric("specpilot_operator_leading") == 1, 20, "it leads again")
        still(operator, fleet)


def still(operator: OperatorProcess, fleet: list[Watched]) -> None:
    """At least TICKS ticks of every deployment, without a write."""
    since, ticks = operator.identity.position(), operator.metric("specpilot_operator_ticks_total")
    versions = [one.versions() for one in fleet]
    time.sleep(TICKS * TICK)
    eventually(
        lambda: operator.metric("specpilot_operator_ticks_total") >= ticks + TICKS, 30, "ticks went by"
    )
    assert operator.identity.writes(since) == []
    assert [one.versions() for one in fleet] == versions
