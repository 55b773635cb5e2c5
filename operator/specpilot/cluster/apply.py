"""What a plan wants, made true with the fewest requests: none at all when nothing differs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import structlog

from specpilot.api.vocabulary import LABEL_MANAGED_BY, MANAGER
from specpilot.cluster.client import Cluster
from specpilot.cluster.errors import Invalid, Unavailable
from specpilot.cluster.kinds import CONFIG_MAP, DEPLOYMENT, JOB, kind_of
from specpilot.cluster.ownership import is_current

log = structlog.get_logger(__name__)
Body = dict[str, Any]
Ref: TypeAlias = tuple[str, str]
"""(kind, name) of a child in its owner's namespace."""

_WITH_POD_TEMPLATE = (DEPLOYMENT.name, JOB.name)


class Foreign(Invalid):
    """An object of the wanted name is somebody else's; nothing was changed, and the message says what to do."""


class InvalidPodTemplate(Invalid):
    """The API server refused a pod template in a dry run; nothing was changed."""


@dataclass(slots=True)
class Outcome:
    """What an apply did: bodies as the API server returned them, and what was deleted."""

    applied: list[Body] = field(default_factory=list)
    deleted: list[Body] = field(default_factory=list)

    def log(self, namespace: str, name: str) -> None:
        """Of the children of one owner."""
        for word, bodies in (("applied", self.applied), ("deleted", self.deleted)):
            for body in bodies:
                child = {"kind": body["kind"], "child": body["metadata"]["name"]}
                log.info(word, namespace=namespace, name=name, **child)


def ref(body: Body) -> Ref:
    return str(body["kind"]), str(body["metadata"]["name"])


async def apply_plan(
    cluster: Cluster,
    desired: Collection[Body],
    observed: Mapping[Ref, Body],
    owner_uid: str,
    keep: Collection[Ref] = (),
) -> Outcome:
    """Server-side apply of what differs, in the plan's order, then deletion of what it no longer has.

    `desired` bodies carry their own hash (plan.hashing.stamped). `observed` holds the cached children of
    one owner; those in `keep` are managed elsewhere and left alone. Raises ClusterError: InvalidPodTemplate,
    or what `adoptable` raises, before anything has been changed; Conflict when a ConfigMap is no longer as
    observed.
    """
    stale = [body for body in desired if _differs(body, observed.get(ref(body)))]
    outcome = Outcome()
    present = await asyncio.gather(
        *(adoptable(cluster, body, observed.get(ref(body)), owner_uid) for body in stale)
    )
    found = {ref(body): old for body, old in zip(stale, present, strict=True)}
    stale = [body for body in stale if _differs(body, found[ref(body)])]
    for body in stale:
        if body["kind"] in _WITH_POD_TEMPLATE and not (body["kind"] == JOB.name and found[ref(body)]):
            await _try(cluster, body)
    for body in stale:
        old = found[ref(body)]
        if body["kind"] == JOB.name and old is not None:
            # A Job's template cannot change: its deletion event brings us back, to create it anew.
            await _delete(cluster, old, outcome)
        else:
            # The next generation of a schedule is counted from the one that is there.
            onto = old if body["kind"] == CONFIG_MAP.name else None
            outcome.applied.append(await cluster.apply(body, onto=onto))
    names = {ref(body) for body in desired} | set(keep)
    for key, body in observed.items():
        if key not in names and _owned(body, owner_uid) and not body["metadata"].get("deletionTimestamp"):
            await _delete(cluster, body, outcome)
    return outcome


async def _delete(cluster: Cluster, body: Body, outcome: Outcome) -> None:
    meta = body["metadata"]
    await cluster.delete(kind_of(body), meta["namespace"], meta["name"], meta["uid"])
    outcome.deleted.append(body)


def _differs(body: Body, observed: Body | None) -> bool:
    if observed is None:
        return True
    if observed["metadata"].get("deletionTimestamp"):
        return False  # its deletion event brings us back, and then it is created anew
    return not is_current(body, observed)


async def adoptable(cluster: Cluster, body: Body, known: Body | None, owner_uid: str) -> Body | None:
    """The present object that `body` may be applied onto, if there is one: as the cache knows it, or else read
    anew. It may be somebody else's, whom the cache's label selector hides, and applying would take it over.

    Raises Foreign then, and Unavailable where it is still of an owner of the same name that was replaced: the
    garbage collector is about to delete it.
    """
    meta, what = body["metadata"], f"{body['kind']} {body['metadata']['name']}"
    present = known or await cluster.get(kind_of(body), meta["namespace"], meta["name"])
    if present is None or _owned(present, owner_uid):
        return present
    if _owner(present) == _owner(body) is not None:
        raise Unavailable(f"{what} is still of this object's predecessor, and waits to be garbage-collected")
    raise Foreign(
        f"{what} exists in namespace {meta['namespace']} and is not of this SpeculativeDeployment: delete it, or"
        " give this object another name"
    )


def _owned(body: Body, owner_uid: str) -> bool:
    """Ours by owner, or left behind without an owner by a deletion that orphaned it."""
    meta = body["metadata"]
    if any(o.get("uid") == owner_uid for o in meta.get("ownerReferences") or []):
        return True
    return _owner(body) is None and (meta.get("labels") or {}).get(LABEL_MANAGED_BY) == MANAGER


def _owner(body: Body) -> Ref | None:
    """Kind and name of an object's controller."""
    owners = body["metadata"].get("ownerReferences") or []
    return next(((str(o["kind"]), str(o["name"])) for o in owners if o.get("controller")), None)


async def _try(cluster: Cluster, body: Body) -> None:
    try:
        await cluster.apply(body, dry_run=True)
    except Invalid as e:
        raise InvalidPodTemplate(e.message) from None
