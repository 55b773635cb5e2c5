"""What of the pod stays the operator's, whatever a podTemplate says."""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specpilot.api import vocabulary as v
from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.plan import env, names
from specpilot.plan.merge import DEFAULTS, KEYS, identity
from specpilot_engine.protocol import PORT, PROFILER_PORT

OUR_VOLUMES = frozenset(
    {
        names.VOLUME_PACKAGE,
        names.VOLUME_SCHEDULE,
        names.VOLUME_PROFILED,
        names.VOLUME_RUN,
        names.VOLUME_HOME,
        names.VOLUME_MODELS,
        names.VOLUME_SHM,
        names.VOLUME_TMP,
    }
)
OUR_MOUNTS = frozenset(
    {
        names.ENGINE_PACKAGE,
        names.SCHEDULE_FOLDER,
        names.PROFILED_FOLDER,
        names.RUN_FOLDER,
        names.HOME,
        names.MODELS,
        "/dev/shm",
        "/tmp",
    }
)
OUR_PORTS = frozenset({v.PORT_HTTP, PORT, PROFILER_PORT})
OUR_PORT_NAMES = frozenset({names.PORT_NAME_HTTP, names.PORT_NAME_SPECPILOT, names.PORT_NAME_PROFILER})
# Beside the engine's.
OUR_CONTAINERS = frozenset({v.PROFILER_CONTAINER, v.INIT_CONTAINER, names.IMPORT_CONTAINER})
OUR_LABELS = frozenset(
    {v.LABEL_NAME, v.LABEL_INSTANCE, v.LABEL_COMPONENT, v.LABEL_PART_OF, v.LABEL_MANAGED_BY, v.LABEL_VERSION}
)
OUR_PREFIX = "specpilot.io/"
OWNED = "the operator owns it"
_INSTEAD = {
    "image": "spec.engine.image",
    "command": "spec.engine.args",
    "args": "spec.engine.args",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """`path` in spec that is not the user's to set, and what to do about it."""

    path: str
    message: str


def split(spec: SpeculativeDeploymentSpec) -> tuple[dict[str, Any], list[Refused]]:
    """(the podTemplate without what we own, what was left out and why)."""
    template = copy.deepcopy(spec.pod_template or {})
    found = _Refusals()
    at = "spec.podTemplate"
    found.drop(
        template, template.keys() - {"metadata", "spec"}, at, "a pod template has metadata and spec only"
    )
    metadata, pod = found.mapping(template, "metadata", at), found.mapping(template, "spec", at)
    _sound(pod, f"{at}.spec", found)
    others = metadata.keys() - {"labels", "annotations"}
    found.drop(metadata, others, f"{at}.metadata", "only labels and annotations can be set here")
    labels = found.mapping(metadata, "labels", f"{at}.metadata")
    found.drop(labels, OUR_LABELS & labels.keys(), f"{at}.metadata.labels", OWNED)
    annotations = found.mapping(metadata, "annotations", f"{at}.metadata")
    ours = {key for key in annotations if str(key).startswith(OUR_PREFIX)}
    found.drop(annotations, ours, f"{at}.metadata.annotations", OWNED)
    if pod.get("restartPolicy") == "Always":
        pod.pop("restartPolicy")
    found.drop(pod, {"restartPolicy"} & pod.keys(), f"{at}.spec", "serving pods always restart")
    found.items(pod, "volumes", f"{at}.spec", lambda i: i.get("name") in OUR_VOLUMES, "rename it")
    for index, container in found.items(pod, "initContainers", f"{at}.spec"):
        if container.get("name") in OUR_CONTAINERS:
            _only_resources(container, f"{at}.spec.initContainers[{index}]", found)
    for index, container in found.items(pod, "containers", f"{at}.spec"):
        where = f"{at}.spec.containers[{index}]"
        if container.get("name") == v.ENGINE_CONTAINER:
            _engine(container, spec, where, found)
        elif container.get("name") in OUR_CONTAINERS:
            _only_resources(container, where, found)
        else:
            found.items(container, "ports", where, _our_port, "use another port and name")
    return template, found.refused


def _sound(part: dict[str, Any], where: str, found: _Refusals) -> None:
    """Take out what cannot be merged: a list whose items cannot be told apart, resources of another shape.

    Kubernetes would refuse them as well, but only sees what was merged."""
    for field, value in sorted(part.items()):
        if field in KEYS and isinstance(value, list) and not all(_has_identity(field, i) for i in value):
            keys = " and ".join(k for k in KEYS[field] if k not in DEFAULTS)
            found.drop(part, [field], where, f"each item must be a mapping with {keys}")
        elif field == "resources" and not _is_table(value):
            found.drop(part, [field], where, "it must hold mappings such as limits and requests")
        elif isinstance(value, dict):
            _sound(value, f"{where}.{field}", found)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    _sound(item, f"{where}.{field}[{index}]", found)


def _has_identity(field: str, item: Any) -> bool:
    return isinstance(item, dict) and all(isinstance(key, str | int) for key in identity(field, item))


def _is_table(resources: Any) -> bool:
    if not isinstance(resources, dict):
        return resources is None
    return all(isinstance(resources.get(part) or {}, dict) for part in ("limits", "requests"))


def _engine(container: dict[str, Any], spec: SpeculativeDeploymentSpec, where: str, found: _Refusals) -> None:
    for field, instead in _INSTEAD.items():
        found.drop(container, {field} & container.keys(), where, f"the operator owns it, use {instead}")
    found.items(container, "volumeMounts", where, _our_mount, "mount it elsewhere")
    found.items(container, "ports", where, _our_port, "use another port and name")
    entries = [entry for _, entry in found.items(container, "env", where)]
    faults = env.environment_problems(entries, f"{where}.env", spec.model.token_secret is not None)
    found.refused += [Refused(path, message) for path, message in faults]
    paths = {path for path, _ in faults}
    if entries:
        container["env"] = [e for i, e in enumerate(entries) if f"{where}.env[{i}]" not in paths]
    for entry in container.get("env", ()):
        if entry.get("name") == env.PYTHONPATH:
            entry["value"] = env.python_path(entry)


def _only_resources(container: dict[str, Any], where: str, found: _Refusals) -> None:
    """A namespace's quota may demand limits of every container."""
    others = container.keys() - {"name", "resources"}
    found.drop(container, others, where, f"of {container['name']} only resources can be set")


def _our_mount(mount: Mapping[str, Any]) -> bool:
    return posixpath.normpath(str(mount.get("mountPath", ""))) in OUR_MOUNTS


def _our_port(port: Mapping[str, Any]) -> bool:
    return port.get("containerPort") in OUR_PORTS or str(port.get("name")) in OUR_PORT_NAMES


class _Refusals:
    """Takes out what is refused and remembers it."""

    def __init__(self) -> None:
        self.refused: list[Refused] = []

    def drop(self, parent: dict[str, Any], fields: Iterable[str], where: str, reason: str) -> None:
        """Take `fields` out of `parent`."""
        for field in sorted(fields):
            parent.pop(field)
            path = f"{where}.{field}" if field.isidentifier() else f"{where}[{field}]"
            self.refused.append(Refused(path, f"{reason}: remove it"))

    def mapping(self, parent: dict[str, Any], field: str, where: str) -> dict[str, Any]:
        """The mapping at `field`, or an empty one. `null` there would remove ours as a whole."""
        value = parent.get(field, {})
        if isinstance(value, dict):
            return value
        self.drop(parent, [field], where, "it must be a mapping")
        return {}

    def items(
        self,
        parent: dict[str, Any],
        field: str,
        where: str,
        ours: Callable[[Mapping[str, Any]], bool] = lambda _: False,
        fix: str = "remove it",
    ) -> list[tuple[int, dict[str, Any]]]:
        """(index, item) of the list of mappings at `field`, without those that are `ours`."""
        items = parent.get(field, [])
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            self.drop(parent, [field], where, "it must be a list of mappings")
            return []
        indexed = [(index, item) for index, item in enumerate(items) if not ours(item)]
        self.refused += [
            Refused(f"{where}.{field}[{index}]", f"{OWNED}: {fix}")
            for index, item in enumerate(items)
            if ours(item)
        ]
        if len(indexed) < len(items):
            parent[field] = [item for _, item in indexed]
        return indexed
