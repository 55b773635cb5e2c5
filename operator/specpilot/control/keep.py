"""The tuner's memory in its ConfigMap: what a restart would otherwise lose."""

from __future__ import annotations

import time
from typing import Any

from specpilot.api.objects import SpeculativeDeployment
from specpilot.cluster.apply import adoptable
from specpilot.cluster.client import Cluster
from specpilot.control import arms, capping
from specpilot.control.live import Live
from specpilot.control.read import text_in
from specpilot.control.step import Evidence
from specpilot.control.store import Store
from specpilot.decide.arms_memory import ArmMemory
from specpilot.decide.caps_memory import CapMemory
from specpilot.decide.memory import Memory, materially_differs
from specpilot.plan.labels import labels
from specpilot.plan.names import tuner_config_map
from specpilot.plan.render import owner_reference

Body = dict[str, Any]

MEMORY_KEY = "memory.json"
COMPONENT = "tuner"


def memory_in(config_map: Body | None) -> Memory:
    """The memory that a ConfigMap holds; an empty one whose note says why where it cannot be read."""
    text = text_in(config_map, MEMORY_KEY)
    return Memory() if text is None else Memory.from_json(text)


def recall(live: Live, config_map: Body | None) -> None:
    """What a ConfigMap remembers becomes what is known."""
    live.evidence = Evidence(memory_in(config_map))
    live.arms, live.caps = arms.memory_in(config_map), capping.memory_in(config_map)
    live.kept = _turned(live.arms, live.caps)
    if config_map is not None:
        live.persisted_at = time.monotonic()


async def keep(
    cluster: Cluster, store: Store, sd: SpeculativeDeployment, live: Live, of_arms: ArmMemory, every: float
) -> None:
    """Write it where losing it would matter: at once what goes with a change of schedule, and evidence
    alone at most `every` so many seconds, since it grows for as long as there is traffic.

    `of_arms` becomes what is remembered of arms once this has returned. Raises ClusterError.
    """
    assert live.evidence is not None
    memory, kept, now = live.evidence.memory, live.persisted or Memory(), time.monotonic()
    present = store.tuner_map(sd.key)
    owners = (present or {}).get("metadata", {}).get("ownerReferences") or []
    orphan = present is not None and not any(o.get("uid") == live.uid for o in owners)
    live.remembered |= present is not None
    lost = live.remembered and present is None
    nothing = of_arms.empty and live.caps == CapMemory() and _arms_unknown(present)
    turned = _turned(of_arms, live.caps) != live.kept and not nothing
    due = _decided(memory) != _decided(kept) or now - live.persisted_at >= every
    if not (orphan or lost or turned) and not (due and materially_differs(memory, kept)):
        return
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": tuner_config_map(sd.metadata.name),
            "namespace": sd.metadata.namespace,
            "labels": labels(sd, COMPONENT),
            "ownerReferences": [owner_reference(sd)],
        },
        "data": {MEMORY_KEY: memory.to_json(), **arms.data(of_arms), **capping.data(live.caps)},
    }
    await adoptable(cluster, body, present, live.uid)
    store.put(await cluster.apply(body))
    live.persisted, live.persisted_at = memory, now
    live.kept = _turned(of_arms, live.caps)


def _turned(of_arms: ArmMemory, caps: CapMemory) -> tuple[object, ...]:
    """What was decided of arms and caps."""
    return of_arms.decided, caps.decided


def _arms_unknown(config_map: Body | None) -> bool:
    return arms.KEY not in ((config_map or {}).get("data") or {})


def _decided(memory: Memory) -> tuple[object, ...]:
    tried = memory.trial and memory.trial.generation
    return memory.steps, memory.exploration, memory.shift, tried, memory.undone
