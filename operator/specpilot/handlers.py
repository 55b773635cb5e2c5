"""kopf wiring, thin: watch events fill the caches and name the objects to look at; nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import kopf

from specpilot.cluster.kinds import Kind
from specpilot.control.store import Key, Store
from specpilot.control.sync import selector

BACKOFFS = (0.5, 1, 2, 3, 5, 8, 13)
LONGEST_BACKOFF = 15.0  # seconds


class Endless:
    """Back-offs that never run out: kopf ends the process with the last one, and an API server that is
    away for minutes is no reason for that."""

    def __iter__(self) -> Iterator[float]:
        yield from BACKOFFS
        while True:
            yield LONGEST_BACKOFF


def settings() -> kopf.OperatorSettings:
    """kopf as a watcher only: no peering, no scanning for CRDs and namespaces, no events of its own."""
    result = kopf.OperatorSettings()
    result.peering.standalone = True
    result.scanning.disabled = True
    result.posting.enabled = False
    result.networking.error_backoffs = Endless()
    result.networking.connect_timeout = 10
    result.process.ultimate_exiting_timeout = 30
    return result


def select(result: kopf.OperatorSettings, kinds: Sequence[Kind]) -> None:
    """Have the API server filter what is not ours."""
    for kind in kinds:
        group, _, version = kind.api_version.rpartition("/")
        if labels := selector(kind):
            result.watching.label_selectors[group, version, kind.plural] = labels


def registry(
    kinds: Sequence[Kind], store: Store, changed: Callable[[set[Key]], None]
) -> kopf.OperatorRegistry:
    """One silent handler per kind: into the store, then `changed` with the keys concerned."""
    result = kopf.OperatorRegistry()
    kopf.on.login(registry=result)(kopf.login_via_client)

    async def on_event(event: dict[str, Any], **_: Any) -> None:
        body = event["object"]
        changed(store.remove(body) if event["type"] == "DELETED" else store.put(body))

    for kind in kinds:
        group, _, version = kind.api_version.rpartition("/")
        kopf.on.event(group=group, version=version, plural=kind.plural, registry=result)(on_event)
    return result
