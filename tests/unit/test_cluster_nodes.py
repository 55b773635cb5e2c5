"""What a pod holds of a node, as the scheduler counts it."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from specpilot.cluster import nodes as nodes_module
from specpilot.cluster.errors import ClusterError, Forbidden, Unavailable
from specpilot.cluster.nodes import REMEMBERED, UNNAMED, Nodes, requested

Body = dict[str, Any]


class Cluster:
    """One node, which is not there at first and is labelled last."""

    def __init__(self, *first: Body | ClusterError | None) -> None:
        self.answers = [*first, {"metadata": {"labels": LABELS}}]
        self.asked = 0

    async def get(self, *_: Any) -> Body | None:
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(answer, ClusterError):
            raise answer
        return answer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Of nodes; it stands until a test moves it."""
    found = SimpleNamespace(now=1000.0)
    stands: Any = SimpleNamespace(monotonic=lambda: found.now)
    monkeypatch.setattr(nodes_module, "time", stands)
    return found


LABELS = {"nvidia.com/gpu.product": "H200"}


@pytest.mark.parametrize("unsaid", [None, {"metadata": {}}, Forbidden("no rights")], ids=str)
async def test_a_node_that_does_not_say_its_device_is_asked_once_a_minute_until_it_does(
    unsaid: Any, clock: SimpleNamespace
) -> None:
    cluster: Any = Cluster(unsaid)
    nodes = Nodes(cluster)
    assert [await nodes.device("n", True) for _ in range(5)] == [""] * 5
    assert cluster.asked == 1
    for _ in range(3):
        clock.now += UNNAMED
        assert await nodes.device("n", True) == "H200"
    assert cluster.asked == 2


async def test_a_node_that_could_not_be_asked_is_asked_at_once_again() -> None:
    cluster: Any = Cluster(Unavailable("not now"))
    nodes = Nodes(cluster)
    assert [await nodes.device("n", True) for _ in range(2)] == ["", "H200"]


async def test_nodes_that_come_and_go_are_not_remembered_for_ever() -> None:
    cluster: Any = Cluster()
    nodes = Nodes(cluster)
    for number in range(REMEMBERED + 1):
        await nodes.device(f"n{number}", True)
    asked = cluster.asked
    await nodes.device(f"n{REMEMBERED}", True)
    assert cluster.asked == asked
    await nodes.device("n0", True)
    assert cluster.asked == asked + 1


def container(requests: Body | None = None, limits: Body | None = None, **fields: Any) -> Body:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **fields}


def pod(*containers: Body, first: tuple[Body, ...] = (), **fields: Any) -> Body:
    return {"spec": {"containers": list(containers), "initContainers": list(first), **fields}}


def test_containers_add_up_and_what_is_only_limited_is_asked_for() -> None:
    both = pod(
        container({"cpu": "500m", "memory": "1Gi"}), container(limits={"cpu": 1, "nvidia.com/gpu": "2"})
    )
    assert requested(both) == {
        "cpu": Decimal("1.5"),
        "memory": Decimal(2**30),
        "nvidia.com/gpu": Decimal(2),
    }
    assert requested(pod(container({"cpu": "1"}, {"cpu": "4"}))) == {"cpu": Decimal(1)}


def test_init_containers_count_only_where_they_need_more_than_what_follows() -> None:
    large, small = container({"cpu": "3"}), container({"cpu": "1"})
    assert requested(pod(small, small, first=(large,)))["cpu"] == 3
    assert requested(pod(large, small, first=(small, large)))["cpu"] == 4


def test_sidecars_run_beside_all_that_comes_after_them() -> None:
    sidecar, one = container({"cpu": "1"}, restartPolicy="Always"), container({"cpu": "3"})
    assert requested(pod(container({"cpu": "1"}), first=(sidecar, one)))["cpu"] == 4
    assert requested(pod(container({"cpu": "1"}), first=(one, sidecar)))["cpu"] == 3
    assert requested(pod(one, first=(sidecar, container({"cpu": "2"}))))["cpu"] == 4


def test_what_asks_for_nothing_holds_nothing() -> None:
    assert requested({}) == {}
    assert requested(pod(container({"cpu": "0"}), container({"memory": "lots"}))) == {}
    assert requested(pod(container(), overhead={"memory": "64Mi"})) == {"memory": Decimal(2**26)}


@pytest.mark.parametrize(
    "text", ["NaN", "sNaN", "Infinity", "-Infinity", "1e99999999999", "lots", "", "Gi", None]
)
def test_what_is_no_quantity_counts_as_nothing_and_is_no_bug(text: object) -> None:
    """It stands in a pod template that the API server will refuse, and say why."""
    asked = pod(container({"cpu": text}), container({"cpu": "2"}), container({"memory": text}))
    assert requested(asked) == {"cpu": Decimal(2)}
