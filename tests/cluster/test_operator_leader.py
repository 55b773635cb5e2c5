"""Two operators: one works, the other takes over."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.operator_process import NAMESPACE, OperatorProcess, install
from tests.cluster.operator_world import Watched, namespace_of, position, simulated, writes
from tests.setup.cluster import Cluster
from tests.setup.waiting import eventually

LEADING = "specpilot_operator_leading"
SHORT = {"duration": "8s", "renewDeadline": "6s", "retryPeriod": "500ms"}


def pair(cluster: Cluster, folder: Path) -> list[OperatorProcess]:
    install(cluster)
    made = []
    for name in ("first", "second"):
        (folder / name).mkdir()
        made.append(OperatorProcess(cluster, folder / name, identity=name, lease=SHORT))
        made[-1].start()
    return made


def holder(cluster: Cluster) -> str:
    return str(cluster.get("lease", "specpilot", NAMESPACE)["spec"]["holderIdentity"])


def test_one_leads_and_the_other_takes_over_without_touching_anything(
    cluster: Cluster, tmp_path: Path
) -> None:
    operators = pair(cluster, tmp_path)
    try:
        eventually(lambda: sum(o.metric(LEADING) for o in operators) == 1, 20, "one leads")
        leader, standby = sorted(operators, key=lambda o: -o.metric(LEADING))
        with namespace_of(cluster) as where:
            flash = Watched(cluster, where, "flash")
            # Needs no pod: the choice between two writers is the same.
            flash.apply(simulated("flash", "sim:v0.33.0", replicas=0))
            flash.wait("Ready", "ScaledToZero")
            eventually(lambda: len(flash.children()) >= 5, 10, "the children")
            since, before = position(cluster), flash.versions()
            leader.kill()
            eventually(lambda: standby.metric(LEADING) == 1, 20, "the standby leads")
            flash.patch(tuning={"minimumGain": 0.2})
            eventually(
                lambda: flash.status()["observedGeneration"] == flash.body()["metadata"]["generation"],
                10,
                "the new leader looks after it",
            )
            assert {(w.verb, w.resource) for w in writes(cluster, since)} == {
                ("patch", "speculativedeployments/status")
            }
            assert flash.versions() == before
    finally:
        for operator in operators:
            operator.stop()


def test_a_leader_that_ends_gives_the_lease_back(cluster: Cluster, tmp_path: Path) -> None:
    operators = pair(cluster, tmp_path)
    try:
        eventually(lambda: sum(o.metric(LEADING) for o in operators) == 1, 20, "one leads")
        leader, standby = sorted(operators, key=lambda o: -o.metric(LEADING))
        assert leader.stop() == 0
        eventually(lambda: standby.metric(LEADING) == 1, 3, "the standby need not wait for the expiry")
        assert standby.stop() == 0
        assert holder(cluster) == ""
    finally:
        for operator in operators:
            operator.stop()


def test_a_leader_that_lost_its_lease_stops_working_and_ends(cluster: Cluster, tmp_path: Path) -> None:
    install(cluster)
    operator = OperatorProcess(cluster, tmp_path, identity="robbed", lease=SHORT)
    operator.start()
    try:
        eventually(lambda: operator.metric(LEADING) == 1, 20, "it leads")
        # Somebody else holds it, and renews: as seen after a partition.
        for turn in range(40):
            patch = f'{{"spec": {{"holderIdentity": "other", "renewTime": "2030-01-01T00:00:{turn:02}.000000Z"}}}}'
            cluster.kubectl("patch", "lease", "specpilot", "-n", NAMESPACE, "--type=merge", "-p", patch)
            if not operator.alive():
                break
        assert operator.ended() == 1
        assert any("could not be renewed" in str(line) for line in operator.logged())
    finally:
        operator.kill()
        cluster.kubectl("delete", "lease", "specpilot", "-n", NAMESPACE, "--ignore-not-found")
