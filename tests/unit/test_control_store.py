"""Caches: the newest version wins, the deleted stay deleted, lists heal what a watch missed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from specpilot.control.store import Store

KEY = ("llm", "flash")


def body(
    kind: str, name: str, version: int, instance: str = "flash", uid: str = "", **more: Any
) -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": instance} if instance else {}
    meta = {
        "namespace": "llm",
        "name": name,
        "resourceVersion": str(version),
        "uid": uid or f"{kind}/{name}",
        "labels": labels,
    }
    return {"kind": kind, "metadata": meta, **more}


def test_an_older_version_does_not_replace_a_newer_one() -> None:
    store = Store()
    assert store.put(body("Deployment", "flash", 7, spec=7)) == {KEY}
    assert store.put(body("Deployment", "flash", 6, spec=6)) == set()
    assert store.children(KEY)["Deployment", "flash"]["spec"] == 7


def test_a_late_answer_does_not_bring_back_a_deleted_object() -> None:
    store = Store()
    store.put(body("ConfigMap", "flash-schedule", 3))
    assert store.remove(body("ConfigMap", "flash-schedule", 4)) == {KEY}
    assert store.put(body("ConfigMap", "flash-schedule", 3)) == set()
    assert store.children(KEY) == {}


def test_an_object_that_lost_our_label_and_got_it_back_is_there_again() -> None:
    store = Store()
    store.put(body("ConfigMap", "flash-schedule", 3))
    store.remove(body("ConfigMap", "flash-schedule", 4))
    assert store.put(body("ConfigMap", "flash-schedule", 5)) == {KEY}


def test_a_successor_of_the_same_name_is_another_object() -> None:
    store = Store()
    store.remove(body("ConfigMap", "flash-schedule", 4, uid="first"))
    assert store.put(body("ConfigMap", "flash-schedule", 5, uid="second")) == {KEY}
    assert store.remove(body("ConfigMap", "flash-schedule", 4, uid="first")) == set()
    assert list(store.children(KEY)) == [("ConfigMap", "flash-schedule")]


def test_a_list_removes_what_was_deleted_unseen_and_keeps_what_is_newer_than_it() -> None:
    store = Store()
    for name, version in (("stays", 5), ("lost", 6), ("created-after", 11)):
        store.put(body("Pod", name, version))
    concerned = store.replace("Pod", [body("Pod", "stays", 5)], "10")
    assert concerned == {KEY}
    assert [p["metadata"]["name"] for p in store.pods(KEY)] == ["created-after", "stays"]


def test_a_list_of_one_namespace_leaves_the_others_alone() -> None:
    store = Store()
    store.put(body("Pod", "here", 5))
    store.replace("Pod", [], "10", namespace="elsewhere")
    assert len(store.pods(KEY)) == 1


def test_pods_are_not_children() -> None:
    store = Store()
    store.put(body("Pod", "flash-1", 1))
    store.put(body("Service", "flash", 2))
    assert list(store.children(KEY)) == [("Service", "flash")]
    assert [p["metadata"]["name"] for p in store.pods(KEY)] == ["flash-1"]


def test_a_profile_concerns_those_that_serve_its_model_or_name_it() -> None:
    store = Store()
    store.put(body("SpeculativeDeployment", "same", 1, "", spec={"model": {"name": "m"}}))
    store.put(body("SpeculativeDeployment", "other", 1, "", spec={"model": {"name": "n"}}))
    named = {"model": {"name": "n"}, "profiling": {"profileRef": {"name": "p"}}}
    store.put(body("SpeculativeDeployment", "named", 1, "", spec=named))
    concerned = store.put(body("CostProfile", "p", 2, "", spec={"fingerprint": {"model": "m"}}))
    assert concerned == {("llm", "same"), ("llm", "named")}


def test_only_our_own_managed_fields_are_kept() -> None:
    store = Store()
    child = body("Service", "flash", 1)
    child["metadata"]["managedFields"] = [{"manager": "specpilot"}, {"manager": "kube-controller-manager"}]
    store.put(child)
    kept = store.children(KEY)["Service", "flash"]["metadata"]["managedFields"]
    assert kept == [{"manager": "specpilot"}]


def test_an_object_whose_label_changes_concerns_both_owners_and_is_counted_by_the_new_one_alone() -> None:
    store, other = Store(), ("llm", "other")
    store.put(body("Pod", "flash-1", 1))
    assert store.put(body("Pod", "flash-1", 2, "other")) == {KEY, other}
    assert (store.pods(KEY), len(store.pods(other))) == ([], 1)
    assert store.put(body("Pod", "flash-1", 3, "")) == {other}
    assert (store.pods(KEY), store.pods(other), len(store.all_pods())) == ([], [], 1)


_LIVES = st.lists(
    st.tuples(st.sampled_from(["Pod", "Service"]), st.sampled_from(["flash", "other", "", None])), max_size=12
)


@given(_LIVES)
def test_whatever_becomes_of_labels_and_objects_each_is_counted_by_whom_it_names_last(
    steps: list[tuple[str, str | None]],
) -> None:
    """None: it is deleted."""
    store, last = Store(), dict[str, str | None]()
    for version, (kind, instance) in enumerate(steps, start=1):
        if instance is None:
            store.remove(body(kind, "one", version))
        else:
            store.put(body(kind, "one", version, instance))
        last[kind] = instance
    for name in ("flash", "other"):
        assert len(store.pods(("llm", name))) == (last.get("Pod") == name)
        assert len(store.children(("llm", name))) == (last.get("Service") == name)


@given(st.permutations([("put", 1), ("put", 2), ("put", 3), ("remove", 3)]))
def test_any_order_of_arrival_ends_without_the_deleted_object(order: list[tuple[str, int]]) -> None:
    store = Store()
    for action, version in order:
        getattr(store, action)(body("Job", "flash-profile", version))
    assert store.children(KEY) == {}


@given(st.permutations(range(1, 6)))
def test_any_order_of_arrival_ends_with_the_newest(order: list[int]) -> None:
    store = Store()
    for version in order:
        store.put(body("Job", "flash-profile", version))
    assert store.children(KEY)["Job", "flash-profile"]["metadata"]["resourceVersion"] == "5"
