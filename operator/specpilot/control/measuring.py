"""What a profile's choice depends on beyond the caches: devices and the images that pods really run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.vocabulary import Reason
from specpilot.cluster.apply import Ref
from specpilot.cluster.nodes import Nodes
from specpilot.control import read
from specpilot.control.conditions import Finding
from specpilot.control.live import Live
from specpilot.control.profile_choice import Choice, Identity, choose, measures_this
from specpilot.control.rollout import trouble_of
from specpilot.control.store import Key, Store
from specpilot.plan import names
from specpilot.plan.labels import PROFILING
from specpilot.plan.profiling import devices_wanted
from specpilot.plan.protect import split
from specpilot.plan.revision import is_current

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gathered:
    """One object's present state, from the caches."""

    key: Key
    body: Body
    sd: SpeculativeDeployment
    live: Live
    children: dict[Ref, Body]
    pods: list[Body]

    def child(self, kind: str, name: str) -> Body | None:
        return self.children.get((kind, name))


class Measuring:
    def __init__(self, store: Store, nodes: Nodes) -> None:
        self._store, self._nodes = store, nodes

    async def choose(self, g: Gathered) -> Choice:
        """The choice of profile for one object as gathered; its identity is kept in its memory."""
        sd = g.sd
        deployment = g.child("Deployment", sd.metadata.name)
        job = g.child("Job", names.profile_job(sd.metadata.name))
        measured = job is not None and measures_this(job, sd)
        first = not measured and not (deployment and is_current(deployment, sd))
        if first:
            # Beside the serving pods, of which those that run hold what they ask for already.
            missing = sd.spec.replicas - len(read.serving(g.pods))
            g.live.room = await self._nodes.room(split(sd.spec)[0]) > max(0, missing)
        g.live.identity = await self.identity(sd, g.pods) or _still(g.live.identity, sd)
        profiles = self._store.profiles(sd.metadata.namespace)
        choice = choose(sd, profiles, deployment, job, g.live.identity, g.live.room)
        troubles = (trouble_of(pod) for pod in g.pods if read.component(pod) == PROFILING)
        trouble = next((t.message for t in troubles if t is not None), g.live.unread)
        if choice.active and trouble:
            return replace(choice, finding=Finding(Reason.PROFILING, trouble))
        return choice

    async def identity(self, sd: SpeculativeDeployment, pods: list[Body]) -> Identity | None:
        """Image digest and device of the newest pod that runs this spec's image."""
        for pod in sorted(pods, key=lambda p: str(p["metadata"].get("creationTimestamp")), reverse=True):
            asked, image = read.engine_image(pod)
            node = (pod.get("spec") or {}).get("nodeName")
            if asked == sd.spec.engine.image and image and node:
                device = await self._nodes.device(node, bool(devices_wanted(sd.spec)))
                return Identity(image, device, asked)
        return None


def _still(known: Identity | None, sd: SpeculativeDeployment) -> Identity | None:
    """What pods told that are gone by now, unless the spec names another image since."""
    return known if known is not None and known.image == sd.spec.engine.image else None
