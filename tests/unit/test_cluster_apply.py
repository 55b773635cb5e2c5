"""Whose an object is that has the name of one that we want."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.test_control_arms import sd

from specpilot.api.objects import SpeculativeDeployment
from specpilot.cluster.apply import Foreign, adoptable, apply_plan
from specpilot.cluster.errors import ClusterError, Unavailable
from specpilot.control.faults import unwritten
from specpilot.control.keep import keep
from specpilot.control.live import Live
from specpilot.control.step import Evidence
from specpilot.control.store import Store
from specpilot.decide.arm import Arm, Kind
from specpilot.decide.arms_memory import ArmMemory
from specpilot.plan.render import owner_reference

Body = dict[str, Any]


def owner(uid: str) -> SpeculativeDeployment:
    found = sd()
    return found.model_copy(update={"metadata": found.metadata.model_copy(update={"uid": uid})})


def config_map(*owners: Body, managed: bool = False) -> Body:
    labels = {"app.kubernetes.io/managed-by": "specpilot"} if managed else {}
    meta = {"name": "one-tuner", "namespace": "ns", "labels": labels, "ownerReferences": list(owners)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, "resourceVersion": "3"}}


DESIRED = config_map(owner_reference(owner("new")))
OURS, PREDECESSORS = DESIRED, config_map(owner_reference(owner("old")))
ORPHAN, A_USERS = config_map(managed=True), config_map()
ANOTHERS = config_map({**owner_reference(owner("old")), "name": "another"})


class Holds:
    """A cluster with one ConfigMap, or none."""

    def __init__(self, present: Body | None) -> None:
        self.present, self.applied = present, list[Body]()

    async def get(self, *_: Any) -> Body | None:
        return self.present

    async def apply(self, body: Body, **_: Any) -> Body:
        self.applied.append(body)
        return body


@pytest.mark.parametrize("known", [True, False], ids=["cached", "read"])
@pytest.mark.parametrize(
    ("present", "refusal"),
    [
        (None, None),
        (OURS, None),
        (ORPHAN, None),
        (A_USERS, Foreign),
        (ANOTHERS, Foreign),
        (PREDECESSORS, Unavailable),
    ],
)
async def test_what_is_somebody_elses_is_refused_and_what_is_about_to_go_is_waited_for(
    present: Body | None, refusal: type[ClusterError] | None, known: bool
) -> None:
    cluster: Any = Holds(None if known else present)
    cached = present if known else None
    if refusal is None:
        assert await adoptable(cluster, DESIRED, cached, "new") is present
    else:
        with pytest.raises(ClusterError) as caught:
            await adoptable(cluster, DESIRED, cached, "new")
        assert type(caught.value) is refusal


async def test_a_plan_changes_nothing_before_its_predecessors_children_are_gone() -> None:
    cluster: Any = Holds(PREDECESSORS)
    desired = {
        **DESIRED,
        "metadata": {**DESIRED["metadata"], "annotations": {"specpilot.io/desired-hash": "h"}},
    }
    with pytest.raises(Unavailable):
        await apply_plan(cluster, [desired], {("ConfigMap", "one-tuner"): PREDECESSORS}, "new")
    assert cluster.applied == []


@pytest.mark.parametrize("known", [True, False], ids=["cached", "read"])
@pytest.mark.parametrize("present", [None, A_USERS, ANOTHERS], ids=["none", "a user's", "another's"])
async def test_the_tuners_memory_is_never_written_into_a_config_map_of_somebody_elses(
    present: Body | None, known: bool
) -> None:
    cluster: Any = Holds(present)
    store = Store()
    if present is not None and known:
        store.put(present)
    decided, live = ArmMemory(next=(Arm(Kind.STATIC, 3), 0.1)), Live("new", evidence=Evidence())
    if present is None:
        await keep(cluster, store, owner("new"), live, decided, 60.0)
        assert cluster.applied[0]["metadata"]["ownerReferences"][0]["uid"] == "new"
        return
    with pytest.raises(Foreign) as caught:
        await keep(cluster, store, owner("new"), live, decided, 60.0)
    assert cluster.applied == []
    told = unwritten(caught.value, 1)
    assert told is not None
    assert told.message.endswith("delete it, or give this object another name)")
