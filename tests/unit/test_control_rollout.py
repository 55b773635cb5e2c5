"""How far a Deployment has come, read from bodies as the API server gives them."""

from __future__ import annotations

from typing import Any

import pytest

from specpilot.api.vocabulary import Reason
from specpilot.control.rollout import Trouble, is_ready, life_of, rescaled, rollout_of, trouble_of


def deployment(generation: int = 1, **status: Any) -> dict[str, Any]:
    return {"metadata": {"generation": generation}, "spec": {"replicas": 2}, "status": status}


def pod(name: str = "flash-1", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": "u"}, "status": status}


def waiting(reason: str, **more: Any) -> dict[str, Any]:
    container = {"name": "vllm", "image": "vllm:no", "state": {"waiting": {"reason": reason}}, **more}
    return pod(containerStatuses=[container])


def test_a_deployment_whose_controller_has_not_seen_it_counts_nothing() -> None:
    rollout = rollout_of(
        2,
        deployment(generation=2, observedGeneration=1, updatedReplicas=2, replicas=2, readyReplicas=2),
        [],
    )
    assert (rollout.updated, rollout.ready, rollout.complete) == (0, 0, False)


def test_ready_pods_of_the_old_template_are_not_counted_as_ready() -> None:
    rollout = rollout_of(
        2, deployment(observedGeneration=1, updatedReplicas=1, replicas=2, readyReplicas=1), []
    )
    assert (rollout.updated, rollout.ready, rollout.complete) == (1, 0, False)


def test_a_rollout_is_complete_once_it_was_available() -> None:
    counts = {"observedGeneration": 1, "updatedReplicas": 2, "replicas": 2}
    starting = rollout_of(2, deployment(**counts, readyReplicas=0), [])
    assert (starting.updated, starting.ready, starting.complete) == (2, 0, False)
    available = [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]
    later = rollout_of(2, deployment(**counts, readyReplicas=1, conditions=available), [])
    assert (later.updated, later.ready, later.complete) == (2, 1, True)
    rollout = rollout_of(2, deployment(**counts, readyReplicas=2, conditions=available), [])
    assert (rollout.updated, rollout.ready, rollout.complete) == (2, 2, True)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            'pods "sim-6c9d8b7c5f-x2z4k" is forbidden: exceeded quota: q',
            "a pod is forbidden: exceeded quota: q",
        ),
        ("exceeded quota", "exceeded quota"),
    ],
)
def test_pods_that_are_refused_are_told_without_the_name_of_each_attempt(said: str, told: str) -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": said}
    (trouble,) = rollout_of(2, deployment(conditions=[failure]), []).troubles
    assert trouble == Trouble(Reason.PODS_REFUSED, f"pods cannot be created: {told}")


@pytest.mark.parametrize(
    ("body", "reason", "said"),
    [
        (waiting("ImagePullBackOff"), Reason.IMAGE_PULL_FAILED, "vllm:no"),
        (
            waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 137}}),
            Reason.CRASH_LOOPING,
            "exit code 137",
        ),
        (
            pod(conditions=[{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/1 nodes"}]),
            Reason.UNSCHEDULABLE,
            "0/1 nodes",
        ),
    ],
)
def test_the_trouble_of_a_pod_is_named(body: dict[str, Any], reason: Reason, said: str) -> None:
    trouble = trouble_of(body)
    assert trouble is not None
    assert trouble.reason is reason
    assert said in trouble.message


def test_a_crash_loop_is_told_alike_while_it_waits_while_it_runs_and_as_it_ends() -> None:
    """Or the status would be written anew with each turn."""
    last = {"lastState": {"terminated": {"exitCode": 3}}, "restartCount": 2, "ready": False}
    turns = [{"waiting": {"reason": "CrashLoopBackOff"}}, {"running": {}}, {"terminated": {"exitCode": 3}}]
    told = {trouble_of(pod(containerStatuses=[{"name": "vllm", **last, "state": state}])) for state in turns}
    assert [trouble.reason for trouble in told if trouble] == [Reason.CRASH_LOOPING]
    well = [
        {**last, "state": {"running": {}}, "ready": True},
        {**last, "state": {"terminated": {"exitCode": 0}}},  # an init container that has come through
        {**last, "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 0}}},
    ]
    assert [trouble_of(pod(containerStatuses=[{"name": "vllm", **one}])) for one in well] == [None] * 3
    evicted = {"name": "vllm", **last, "state": turns[2]}
    assert trouble_of(pod(containerStatuses=[evicted], phase="Failed", reason="Evicted")) is None


def test_an_image_that_cannot_be_had_is_told_alike_while_it_is_tried_and_between() -> None:
    assert trouble_of(waiting("ErrImagePull")) == trouble_of(waiting("ImagePullBackOff"))


def test_a_pod_that_starts_or_goes_is_no_trouble() -> None:
    assert trouble_of(waiting("ContainerCreating")) is None
    going = waiting("CrashLoopBackOff")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert trouble_of(going) is None


def test_many_pods_of_one_bad_image_are_one_trouble() -> None:
    rollout = rollout_of(2, deployment(), [waiting("ImagePullBackOff"), waiting("ErrImagePull")])
    assert len(rollout.troubles) == 1


def test_a_pod_that_is_being_deleted_is_not_ready() -> None:
    body = pod(conditions=[{"type": "Ready", "status": "True"}])
    assert is_ready(body)
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not is_ready(body)


def test_a_restarted_container_is_another_life() -> None:
    first = pod(containerStatuses=[{"name": "vllm", "containerID": "containerd://1"}])
    second = pod(containerStatuses=[{"name": "vllm", "containerID": "containerd://2"}])
    assert life_of(first) == "u/containerd://1"
    assert life_of(second) != life_of(first)


def test_who_scales_the_deployment_itself_is_told_and_a_scale_of_our_own_is_not_news() -> None:
    def deployment(replicas: int, *ours: str) -> dict[str, Any]:
        fields = {"f:spec": {f"f:{name}": {} for name in ours}}
        managed = [{"manager": "specpilot", "operation": "Apply", "fieldsV1": fields}]
        meta = {"name": "flash", "managedFields": managed}
        return {"kind": "Deployment", "metadata": meta, "spec": {"replicas": replicas}}

    put_back = [deployment(1, "replicas", "template")]
    told = rescaled(deployment(3, "template"), put_back)
    assert told.startswith("somebody else scaled Deployment flash to 3, and it is back at 1: scale the Spec")
    assert rescaled(deployment(0, "replicas", "template"), put_back) == ""
    assert rescaled(deployment(3, "template"), []) == ""
    assert rescaled(None, put_back) == ""
