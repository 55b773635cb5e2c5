"""Ten deployments under constant load, and two that never serve: the operator looks at them, tick by tick, and writes
nothing."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.operator_world import SMALL_GRID, Watched, load, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

COUNT, TICKS = 10, 12
QUIET = 40.0  # seconds; what is explored may change after 30
TUNING = {"interval": "1s", "dwell": "2s", "minimumGain": 0.1}  # what gains less takes minutes to prove
SPECULATION = {"method": "MTP", "maxTokens": 3, "candidates": [0, 1, 3]}
SLOW = {"time_scale": 0.25}  # ten engines on the processors of one test machine


@pytest.mark.timeout(600)
def test_nothing_is_written_before_or_after_a_restart(
    operator: OperatorProcess, cluster: Cluster, sim_image: str
) -> None:
    with ExitStack() as stack:
        where = stack.enter_context(operator.identity.place())
        fleet = [Watched(cluster, where, f"flash-{i}") for i in range(COUNT)]
        first, *others = fleet

        def apply(one: Watched) -> None:
            profiling = {"where": "Job", "grid": SMALL_GRID}
            common = {"speculation": SPECULATION, "tuning": TUNING, "profiling": profiling}
            one.apply(simulated(one.name, sim_image, SLOW, **common))

        apply(first)
        first.wait("Profiled", "Measured", 120)
        for one in others:  # the same engine: they measure nothing
            apply(one)
        for one in fleet:
            one.serving(180)
        crashing, lost = Watched(cluster, where, "crashing"), Watched(cluster, where, "lost")
        crashing.apply(simulated("crashing", sim_image, {"fail": {"start": True}}))
        lost.apply(simulated("lost", "localhost/no/such:v0.33.0"))
        crashing.wait("Degraded", "CrashLooping")
        lost.wait("Degraded", "ImagePullFailed")
        for one in fleet:
            stack.enter_context(load(one.urls(), clients=2))
        settle(operator, fleet)
        still(operator, fleet)
        operator.kill()
        operator.start()
        eventually(lambda: operator.metric("specpilot_operator_leading") == 1, 20, "it leads again")
        still(operator, fleet)


def settle(operator: OperatorProcess, fleet: list[Watched]) -> None:
    """Until nobody is on trial, which is as quiet as a settled schedule but ends with a word, and all is quiet.

    What live steps teach beyond the profile is written down each time the evidence has grown by a factor: ever
    more rarely.
    """

    def untried() -> bool:
        reasons = {one.condition("Tuned")["reason"] for one in fleet}
        return reasons == {"Holding"}

    eventually(untried, 240, "all hold their schedule", every=2.0)
    operator.identity.quiet(QUIET, 300, "forty ticks without a write")
    assert untried()


def still(operator: OperatorProcess, fleet: list[Watched]) -> None:
    """At least TICKS ticks of every deployment, without a write."""
    since, ticks = operator.identity.position(), operator.metric("specpilot_operator_ticks_total")
    versions = [one.versions() for one in fleet]
    eventually(
        lambda: operator.metric("specpilot_operator_ticks_total") >= ticks + TICKS, 60, "ticks went by"
    )
    assert operator.identity.writes(since) == []
    assert [one.versions() for one in fleet] == versions
