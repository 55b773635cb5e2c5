"""Caches of the objects we watch, as plain dictionaries, and the questions asked of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

from specpilot.api.vocabulary import LABEL_INSTANCE, MANAGER
from specpilot.plan.names import schedule_config_map, tuner_config_map

Body = dict[str, Any]
Key: TypeAlias = tuple[str, str]
"""(namespace, name) of a SpeculativeDeployment."""
Ref: TypeAlias = tuple[str, str]
"""(kind, name) of an object in a namespace."""

MAIN = "SpeculativeDeployment"
PROFILE = "CostProfile"
POD = "Pod"
REMEMBERED_DELETIONS = 2048


class Store:
    """Filled by watch events, by full lists, and by what our own writes return, in any order.

    The newest resource version of an object wins, and an object that was deleted does not come back by
    a late answer. Resource versions of one object compare as numbers since Kubernetes 1.35; older
    servers behave so too.
    """

    def __init__(self) -> None:
        self._objects: dict[str, dict[tuple[str, str], Body]] = {}
        self._children: dict[Key, set[Ref]] = {}
        self._gone: OrderedDict[str, int] = OrderedDict()  # uid → version of the deletion

    def put(self, body: Body) -> set[Key]:
        """Take in one object; the keys of the SpeculativeDeployments that it may concern."""
        kind, meta = str(body["kind"]), body["metadata"]
        name = (str(meta.get("namespace", "")), str(meta["name"]))
        known = self._objects.get(kind, {}).get(name)
        # An object that leaves our label selector looks deleted, and may come back.
        if version(body) <= self._gone.get(str(meta.get("uid")), -1):
            return set()
        if known is not None and version(body) <= version(known):
            return set()
        if known is not None:
            self._disown(known)  # labels change, and with them whose it is
        self._objects.setdefault(kind, {})[name] = _trimmed(body)
        owner = owner_of(body)
        if owner and kind not in (MAIN, PROFILE):
            self._children.setdefault(owner, set()).add((kind, name[1]))
        return self.concerned(body) | (self.concerned(known) if known is not None else set())

    def remove(self, body: Body, at: int | None = None) -> set[Key]:
        """Take out one object; versions of it up to `at` (or this one) are not taken in again."""
        kind, meta = str(body["kind"]), body["metadata"]
        name = (str(meta.get("namespace", "")), str(meta["name"]))
        self._gone[str(meta.get("uid"))] = version(body) if at is None else at
        while len(self._gone) > REMEMBERED_DELETIONS:
            self._gone.popitem(last=False)
        known = self._objects.get(kind, {}).get(name)
        if known is None or known["metadata"].get("uid") != meta.get("uid"):
            return set()
        self._disown(known)
        del self._objects[kind][name]
        return self.concerned(known)

    def _disown(self, known: Body) -> None:
        if (owner := owner_of(known)) and owner in self._children:
            self._children[owner].discard((known["kind"], known["metadata"]["name"]))
            if not self._children[owner]:
                del self._children[owner]

    def replace(self, kind: str, bodies: Iterable[Body], list_version: str, namespace: str = "") -> set[Key]:
        """Take in a full list (of one namespace, if given); what it lacks was deleted unseen.

        Objects newer than the list are kept: a watch may be ahead of it.
        """
        concerned: set[Key] = set()
        listed = set()
        for body in bodies:
            listed.add((str(body["metadata"].get("namespace", "")), str(body["metadata"]["name"])))
            concerned |= self.put(body)
        limit = _number(list_version)
        for name, body in list(self._objects.get(kind, {}).items()):
            if name not in listed and version(body) <= limit and (not namespace or name[0] == namespace):
                concerned |= self.remove(body, limit)
        return concerned

    def concerned(self, body: Body) -> set[Key]:
        """Which SpeculativeDeployments a change of this object may concern."""
        kind, meta = body["kind"], body["metadata"]
        if kind == MAIN:
            return {(meta["namespace"], meta["name"])}
        if kind != PROFILE:
            owner = owner_of(body)
            return {owner} if owner else set()
        model = body.get("spec", {}).get("fingerprint", {}).get("model")
        return {
            key
            for key, main in self._objects.get(MAIN, {}).items()
            if key[0] == meta["namespace"] and _may_use(main, meta["name"], model)
        }

    def main(self, key: Key) -> Body | None:
        """The SpeculativeDeployment itself."""
        return self._objects.get(MAIN, {}).get(key)

    def mains(self) -> list[Key]:
        """Every SpeculativeDeployment, in a stable order."""
        return sorted(self._objects.get(MAIN, {}))

    def get(self, kind: str, namespace: str, name: str) -> Body | None:
        return self._objects.get(kind, {}).get((namespace, name))

    def schedule_map(self, key: Key) -> Body | None:
        """The ConfigMap of its schedule."""
        return self.get("ConfigMap", key[0], schedule_config_map(key[1]))

    def tuner_map(self, key: Key) -> Body | None:
        """The ConfigMap of what its tuner remembers."""
        return self.get("ConfigMap", key[0], tuner_config_map(key[1]))

    def children(self, key: Key) -> dict[Ref, Body]:
        """What carries the labels of this SpeculativeDeployment, pods aside; owned by it or not."""
        refs = self._children.get(key, ())
        return {(kind, name): self._objects[kind][key[0], name] for kind, name in sorted(refs) if kind != POD}

    def pods(self, key: Key) -> list[Body]:
        """Its pods, by name."""
        refs = self._children.get(key, ())
        return [self._objects[POD][key[0], name] for kind, name in sorted(refs) if kind == POD]

    def all_pods(self) -> Collection[Body]:
        """Everybody's."""
        return self._objects.get(POD, {}).values()

    def profiles(self, namespace: str) -> list[Body]:
        """CostProfiles of a namespace, by name."""
        found = self._objects.get(PROFILE, {})
        return [found[name] for name in sorted(found) if name[0] == namespace]


def owner_of(body: Body) -> Key | None:
    """The SpeculativeDeployment whose labels an object carries, or itself."""
    meta = body["metadata"]
    if body["kind"] == MAIN:
        return str(meta["namespace"]), str(meta["name"])
    instance = (meta.get("labels") or {}).get(LABEL_INSTANCE)
    return (str(meta.get("namespace", "")), str(instance)) if instance else None


def version(body: Body) -> int:
    return _number(body["metadata"].get("resourceVersion", ""))


def _number(text: Any) -> int:
    return int(text) if str(text).isdigit() else 0


def _may_use(main: Body, profile: str, model: str | None) -> bool:
    spec = main.get("spec") or {}
    named = ((spec.get("profiling") or {}).get("profileRef") or {}).get("name")
    return bool(named == profile or (model and (spec.get("model") or {}).get("name") == model))


def _trimmed(body: Body) -> Body:
    """Of the managed fields only our own are ever asked for, and they are half of an object's size."""
    meta = dict(body["metadata"])
    fields: Collection[Body] = meta.pop("managedFields", None) or ()
    if body["kind"] != POD:
        meta["managedFields"] = [f for f in fields if f.get("manager") == MANAGER]
    return {**body, "metadata": meta}
