"""The user's podTemplate over ours, the way Kubernetes merges lists: by key where the list has one.

Mappings merge field by field, `null` removes a field of ours, lists named in KEYS merge item by item
(ours first, the user's new ones after), APPENDED lists are joined, and any other list is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
APPENDED = frozenset({"tolerations", "envFrom", "readinessGates", "schedulingGates"})
# Of each group a mapping holds one: the user's choice removes ours.
ONE_OF = (
    frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"}),
    frozenset({"value", "valueFrom"}),
)
DEFAULTS = {"protocol": "TCP"}


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """`overlay` over `base`; neither is changed. Merging the same overlay again changes nothing."""
    result = {k: v for k, v in base.items() if not _displaced(k, overlay)}
    for field, value in overlay.items():
        if value is None:
            result.pop(field, None)
        else:
            result[field] = _merged(field, result.get(field), value)
    return result


def identity(field: str, item: Mapping[str, Any]) -> tuple[Any, ...]:
    """What an item of the list `field` is told apart by."""
    return tuple(item.get(key, DEFAULTS.get(key)) for key in KEYS[field])


def _merged(field: str, ours: Any, theirs: Any) -> Any:
    if isinstance(theirs, Mapping):
        return merge(ours if isinstance(ours, Mapping) else {}, theirs)
    if isinstance(theirs, list):
        mine = ours if isinstance(ours, list) else []
        if field in KEYS and all(isinstance(item, Mapping) for item in theirs):
            return _by_key(field, mine, theirs)
        if field in APPENDED:
            return mine + [item for item in _unique(theirs) if item not in mine]
    return theirs


def _by_key(field: str, ours: list[Any], theirs: list[Any]) -> list[Any]:
    items = {identity(field, item): item for item in ours}
    for item in theirs:
        key = identity(field, item)
        items[key] = merge(items.get(key, {}), item)
    return list(items.values())


def _unique(items: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _displaced(field: str, overlay: Mapping[str, Any]) -> bool:
    chosen = {k for k, v in overlay.items() if v is not None}
    return any(field in group and chosen & group and field not in chosen for group in ONE_OF)
