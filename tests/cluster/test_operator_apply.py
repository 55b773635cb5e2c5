"""Writes to a real API server: none where nothing differs, and only to what is ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.setup import cluster as clusters

from specpilot.cluster.apply import InvalidPodTemplate, apply_plan, ref
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import Conflict, Invalid, NotFound, Unavailable
from specpilot.cluster.kinds import CONFIG_MAP, COST_PROFILE, DEPLOYMENT, JOB, POD_MONITOR, SERVICE
from specpilot.cluster.ownership import is_current
from specpilot.cluster.status import write_status
from specpilot.plan.hashing import stamped

Body = dict[str, Any]
LABELS = {"app.kubernetes.io/managed-by": "specpilot", "app.kubernetes.io/instance": "flash"}


@pytest.fixture
async def api(cluster: clusters.Cluster) -> AsyncIterator[Cluster]:
    connected = await Cluster.connect(str(cluster.kubeconfig))
    yield connected
    await connected.aclose()


@pytest.fixture
async def owner(api: Cluster, namespace: Callable[..., str]) -> Body:
    """An object to own others: any will do."""
    where = namespace()
    meta = {"name": "flash", "namespace": where}
    return await api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})


def child(owner: Body, kind: str, api_version: str, name: str = "flash", **content: Any) -> Body:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "flash", "uid": owner["metadata"]["uid"]}
    meta = {
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": LABELS,
        "ownerReferences": [{**reference, "controller": True}],
    }
    return stamped({"apiVersion": api_version, "kind": kind, "metadata": meta, **content})


def config(owner: Body, name: str = "flash-schedule", **data: str) -> Body:
    return child(owner, "ConfigMap", "v1", name, data=data)


def deployment(owner: Body, **container: Any) -> Body:
    engine = {"name": "vllm", "image": "vllm:1", "ports": [{"containerPort": 8000}], **container}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [engine]}}
    spec = {"replicas": 0, "selector": {"matchLabels": LABELS}, "template": template}
    return child(owner, "Deployment", "apps/v1", spec=spec)


def job(owner: Body, image: str = "vllm:1") -> Body:
    pod = {"restartPolicy": "Never", "containers": [{"name": "vllm", "image": image}]}
    spec = {"suspend": True, "template": {"spec": pod}}
    return child(owner, "Job", "batch/v1", "flash-profile", spec=spec)


async def observed(api: Cluster, *bodies: Body) -> dict[tuple[str, str], Body]:
    kinds = {"ConfigMap": CONFIG_MAP, "Deployment": DEPLOYMENT, "Service": SERVICE, "Job": JOB}
    found = {}
    for body in bodies:
        meta = body["metadata"]
        present = await api.get(kinds[body["kind"]], meta["namespace"], meta["name"])
        if present:
            found[ref(body)] = present
    return found


async def applied(
    api: Cluster, owner: Body, *bodies: Body, keep: tuple[tuple[str, str], ...] = ()
) -> list[str]:
    """Kinds written by an apply on what is there now."""
    seen = await observed(api, *bodies)
    outcome = await apply_plan(api, bodies, seen, owner["metadata"]["uid"], keep)
    return [body["kind"] for body in outcome.applied]


async def test_what_is_applied_again_is_not_written_again(api: Cluster, owner: Body) -> None:
    plan = (config(owner, x="1"), deployment(owner), job(owner))
    assert await applied(api, owner, *plan) == ["ConfigMap", "Deployment", "Job"]
    before = (await observed(api, plan[0]))[ref(plan[0])]
    assert await applied(api, owner, *plan) == []
    after = (await observed(api, plan[0]))[ref(plan[0])]
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_any_character_arrives(api: Cluster, owner: Body) -> None:
    said = "bang \U0001f680 \u2028 \x85 \ufeff \\ud83d"
    outcome = await apply_plan(api, [config(owner, note=said)], {}, owner["metadata"]["uid"])
    assert [body["data"]["note"] for body in outcome.applied] == [said]


async def test_what_the_api_server_fills_in_or_normalises_is_no_difference(api: Cluster, owner: Body) -> None:
    """1000m is stored as 1, a port gets its protocol, an empty mapping stays owned."""
    container = {
        "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}},
        "env": [{"name": "A", "value": "b"}],
        "securityContext": {},
    }
    plan = deployment(owner, **container)
    await applied(api, owner, plan)
    assert await applied(api, owner, plan) == []


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"replicas": 5}},
        {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "vllm", "image": "other:2"}]}}}},
    ],
    ids=["a value changed", "a label removed", "an item of a list changed"],
)
async def test_what_somebody_else_changed_is_put_right(
    api: Cluster, owner: Body, cluster: clusters.Cluster, change: Body
) -> None:
    plan = deployment(owner)
    await applied(api, owner, plan)
    where = owner["metadata"]["namespace"]
    cluster.kubectl(
        *("patch", "deployment", "flash", "-n", where, "--type=strategic", "-p", json.dumps(change))
    )
    assert await applied(api, owner, plan) == ["Deployment"]
    (present,) = (await observed(api, plan)).values()
    assert is_current(plan, present)


async def test_what_others_added_stays(api: Cluster, owner: Body, cluster: clusters.Cluster) -> None:
    plan = config(owner, x="1")
    await applied(api, owner, plan)
    where = owner["metadata"]["namespace"]
    cluster.kubectl("annotate", "configmap", "flash-schedule", "-n", where, "team=blue")
    assert await applied(api, owner, plan) == []
    assert await applied(api, owner, config(owner, x="2")) == ["ConfigMap"]
    (present,) = (await observed(api, plan)).values()
    assert present["metadata"]["annotations"]["team"] == "blue"


async def test_a_field_that_is_no_longer_planned_goes(api: Cluster, owner: Body) -> None:
    await applied(api, owner, config(owner, x="1", y="2"))
    await applied(api, owner, config(owner, x="1"))
    (present,) = (await observed(api, config(owner))).values()
    assert present["data"] == {"x": "1"}


async def test_what_is_no_longer_planned_is_deleted_and_what_is_kept_is_not(
    api: Cluster, owner: Body
) -> None:
    first, tuner = config(owner, x="1"), config(owner, "flash-tuner", m="1")
    await applied(api, owner, first, tuner)
    seen = await observed(api, first, tuner)
    outcome = await apply_plan(api, [], seen, owner["metadata"]["uid"], keep=[("ConfigMap", "flash-tuner")])
    assert [body["metadata"]["name"] for body in outcome.deleted] == ["flash-schedule"]
    assert list(await observed(api, first, tuner)) == [("ConfigMap", "flash-tuner")]


async def test_an_object_of_somebody_else_is_neither_taken_over_nor_deleted(
    api: Cluster, owner: Body, cluster: clusters.Cluster
) -> None:
    where = owner["metadata"]["namespace"]
    cluster.kubectl("create", "configmap", "flash-schedule", "-n", where, "--from-literal=theirs=1")
    plan = config(owner, x="1")
    with pytest.raises(Invalid, match="ConfigMap flash-schedule exists in namespace"):
        await apply_plan(api, [plan], {}, owner["metadata"]["uid"])
    seen = await observed(api, plan)
    assert (await apply_plan(api, [], seen, owner["metadata"]["uid"])).deleted == []
    assert (await observed(api, plan))[ref(plan)]["data"] == {"theirs": "1"}


async def test_children_that_a_deletion_orphaned_are_adopted(api: Cluster, owner: Body) -> None:
    orphan = config(owner, x="1")
    del orphan["metadata"]["ownerReferences"]
    await api.apply(stamped(orphan))
    plan = config(owner, x="1")
    assert await applied(api, owner, plan) == ["ConfigMap"]
    (present,) = (await observed(api, plan)).values()
    assert present["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]


@pytest.mark.parametrize(
    ("container", "says"),
    [
        ({"foo": 1}, "field not declared in schema"),
        ({"image": ""}, "spec.template.spec.containers[0].image: Required value"),
        ({"resources": {"limits": {"cpu": "many"}}}, "quantities must match"),
    ],
    ids=["unknown field", "missing value", "not a quantity"],
)
async def test_a_pod_template_that_is_refused_changes_nothing(
    api: Cluster, owner: Body, container: Body, says: str
) -> None:
    good = config(owner, x="1")
    with pytest.raises(InvalidPodTemplate) as refusal:
        await apply_plan(api, [good, deployment(owner, **container)], {}, owner["metadata"]["uid"])
    assert says in refusal.value.message
    assert await observed(api, good) == {}


async def test_a_job_whose_template_changed_is_deleted_to_be_made_anew(api: Cluster, owner: Body) -> None:
    await applied(api, owner, job(owner))
    changed = job(owner, image="vllm:2")
    outcome = await apply_plan(api, [changed], await observed(api, changed), owner["metadata"]["uid"])
    assert [body["kind"] for body in outcome.deleted] == ["Job"]
    assert outcome.applied == []


async def test_status_is_written_once_and_conditions_of_others_are_no_difference(
    api: Cluster, owner: Body
) -> None:
    """A Deployment's status stands for ours: conditions are keyed by type in both."""
    plan = deployment(owner)
    await applied(api, owner, plan)
    (present,) = (await observed(api, plan)).values()
    status = {"conditions": [{"type": "Ours", "status": "True", "reason": "Because", "message": ""}]}
    written = await write_status(api, {**present, "status": {}}, status)
    assert written is not None
    conditions = {c["type"]: c for c in written["status"]["conditions"]}
    assert conditions["Ours"]["reason"] == "Because"
    theirs = {"type": "Theirs", "status": "True"}
    seen = {**written, "status": {"conditions": [theirs, *status["conditions"]]}}
    assert await write_status(api, seen, status) is None


async def test_a_status_is_not_given_to_a_successor(api: Cluster, owner: Body) -> None:
    plan = deployment(owner)
    await applied(api, owner, plan)
    (present,) = (await observed(api, plan)).values()
    other = {**present, "metadata": {**present["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
    with pytest.raises((Conflict, Invalid)):
        await write_status(api, other, {"observedGeneration": 7})


async def test_errors_say_what_was_tried(api: Cluster, owner: Body) -> None:
    assert await api.get(CONFIG_MAP, owner["metadata"]["namespace"], "nothing") is None
    assert await api.exists(JOB)
    assert not await api.exists(POD_MONITOR)
    with pytest.raises(NotFound, match='apply of ConfigMap a: namespaces "nowhere" not found'):
        await api.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "nowhere"}}
        )


async def test_deleting_twice_is_deleting_once(api: Cluster, owner: Body) -> None:
    meta = owner["metadata"]
    for _ in range(2):
        await api.delete(CONFIG_MAP, meta["namespace"], "flash", meta["uid"])
    assert await api.get(CONFIG_MAP, meta["namespace"], "flash") is None


async def test_a_long_list_comes_whole(api: Cluster, owner: Body) -> None:
    where = owner["metadata"]["namespace"]
    names = [f"c{i}" for i in range(520)]  # more than a page
    limit = asyncio.Semaphore(32)

    async def make(name: str) -> None:
        async with limit:
            meta = {"name": name, "namespace": where, "labels": {"many": "yes"}}
            await api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})

    await asyncio.gather(*map(make, names))
    bodies, version = await api.list(CONFIG_MAP, where, labels="many=yes")
    assert sorted(b["metadata"]["name"] for b in bodies) == sorted(names)
    assert {b["kind"] for b in bodies} == {"ConfigMap"}
    assert int(version) > 0


async def test_a_kind_that_is_not_there_is_not_found(api: Cluster, cluster: clusters.Cluster) -> None:
    if cluster.get("crd", "costprofiles.specpilot.io"):
        bodies, _ = await api.list(COST_PROFILE, "default")
        assert bodies == []
    else:
        with pytest.raises(NotFound):
            await api.list(COST_PROFILE)


async def test_an_api_server_that_is_away_is_unavailable(tmp_path: Any) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        """{"apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:9"}}],
            "users": [{"name": "x", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}"""
    )
    away = await Cluster.connect(str(config))
    with pytest.raises(Unavailable, match="the API server does not answer"):
        await away.get(CONFIG_MAP, "default", "a")
    await away.aclose()
