"""Two operators: one works, the other takes over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.operator_identity import Identity
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.operator_world import Watched, simulated
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

LEADING = "specpilot_operator_leading"
SHORT = {"duration": "15s", "renewDeadline": "12s", "retryPeriod": "500ms"}
LONG = {**SHORT, "duration": "300s", "renewDeadline": "200s"}


@pytest.fixture
def identity(cluster: Cluster) -> Iterator[Identity]:
    made = Identity(cluster, places=1)
    made.install()
    yield made
    made.remove()


@pytest.fixture
def operators(
    request: pytest.FixtureRequest, identity: Identity, tmp_path: Path
) -> Iterator[list[OperatorProcess]]:
    """Two of one installation, one of which leads; the Lease is SHORT unless a parameter says otherwise."""
    lease = getattr(request, "param", SHORT)
    made = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made.append(OperatorProcess(identity, tmp_path / name, identity=name, lease=lease))
    for operator in made:
        operator.start()
    eventually(lambda: sum(o.metric(LEADING) for o in made) == 1, 20, "one leads")
    yield sorted(made, key=lambda o: -o.metric(LEADING))
    for operator in made:
        operator.stop()


def holder(identity: Identity) -> str:
    return str(identity.cluster.get("lease", "specpilot", identity.namespace)["spec"]["holderIdentity"])


def test_one_leads_and_the_other_takes_over_without_touching_anything(
    identity: Identity, operators: list[OperatorProcess]
) -> None:
    leader, standby = operators
    with identity.place() as where:
        flash = Watched(identity.cluster, where, "flash")
        # Needs no pod: the choice between two writers is the same.
        flash.apply(simulated("flash", "sim:v0.33.0", replicas=0))
        flash.wait("Ready", "ScaledToZero")
        eventually(lambda: len(flash.children()) >= 5, 10, "the children")
        since, before = identity.position(), flash.versions()
        leader.kill()
        eventually(lambda: standby.metric(LEADING) == 1, 20, "the standby leads")
        flash.patch(tuning={"minimumGain": 0.2})
        eventually(
            lambda: flash.status()["observedGeneration"] == flash.body()["metadata"]["generation"],
            10,
            "the new leader looks after it",
        )
        assert {(w.verb, w.resource) for w in identity.writes(since)} == {
            ("patch", "speculativedeployments/status")
        }
        assert flash.versions() == before


@pytest.mark.parametrize("operators", [LONG], indirect=True, ids=["long lease"])
def test_a_leader_that_ends_gives_the_lease_back(
    identity: Identity, operators: list[OperatorProcess]
) -> None:
    leader, standby = operators
    assert leader.stop() == 0
    eventually(lambda: standby.metric(LEADING) == 1, 10, "the standby need not wait for the expiry")
    assert standby.stop() == 0
    assert holder(identity) == ""


def test_a_leader_that_lost_its_lease_stops_working_and_ends(identity: Identity, tmp_path: Path) -> None:
    operator = OperatorProcess(identity, tmp_path, identity="robbed", lease=SHORT)
    operator.start()
    try:
        eventually(lambda: operator.metric(LEADING) == 1, 20, "it leads")
        # Somebody else holds it, and renews: as seen after a partition.
        where = ("--namespace", identity.namespace, "--type=merge")
        for turn in range(300):
            renewed = f"2030-01-01T00:{turn // 60:02}:{turn % 60:02}.000000Z"
            patch = f'{{"spec": {{"holderIdentity": "other", "renewTime": "{renewed}"}}}}'
            identity.cluster.kubectl("patch", "lease", "specpilot", *where, "--patch", patch)
            if not operator.alive():
                break
            time.sleep(0.5)
        assert operator.ended() == 1
        assert any("could not be renewed" in str(line) for line in operator.logged())
    finally:
        operator.kill()
