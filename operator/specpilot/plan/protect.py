"""What of the pod stays the operator's, whatever a podTemplate says."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specpilot.api import vocabulary as v
from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.plan import env, names
from specpilot_engine.protocol import PORT, PROFILER_PORT

OUR_VOLUMES = frozenset(
    {
        names.VOLUME_PACKAGE,
        names.VOLUME_SCHEDULE,
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
        names.RUN_FOLDER,
        names.HOME,
        names.MODELS,
        "/dev/shm",
        "/tmp",
    }
)
OUR_PORTS = frozenset({v.PORT_HTTP, PORT, PROFILER_PORT})
OUR_PORT_NAMES = frozenset({names.PORT_NAME_HTTP, names.PORT_NAME_SPECPILOT, names.PORT_NAME_PROFILER})
OUR_INIT = frozenset({v.INIT_CONTAINER, names.IMPORT_CONTAINER})
OUR_LABELS = frozenset(
    {v.LABEL_NAME, v.LABEL_INSTANCE, v.LABEL_COMPONENT, v.LABEL_PART_OF, v.LABEL_MANAGED_BY, v.LABEL_VERSION}
)
_INSTEAD = {
    "image": "spec.engine.image",
    "command": "nothing: the operator starts vLLM",
    "args": "spec.engine.args",
    "restartPolicy": "nothing: the operator sets it",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """`path` in spec that is not the user's to set, and what to do about it."""

    path: str
    message: str


def split(spec: SpeculativeDeploymentSpec) -> tuple[dict[str, Any], list[Refused]]:
    """(the podTemplate without what we own, what was left out and why)."""
    template = copy.deepcopy(spec.pod_template or {})
    refused: list[Refused] = []
    base = "spec.podTemplate"
    for field in sorted(template.keys() - {"metadata", "spec"}):
        template.pop(field)
        refused.append(Refused(f"{base}.{field}", "a pod template has metadata and spec only: remove it"))
    metadata, pod = _mapping(template, "metadata"), _mapping(template, "spec")
    for field in sorted(metadata.keys() - {"labels", "annotations"}):
        metadata.pop(field)
        refused.append(
            Refused(f"{base}.metadata.{field}", "only labels and annotations can be set: remove it")
        )
    _drop_keys(metadata, "labels", OUR_LABELS.__contains__, f"{base}.metadata", refused)
    _drop_keys(metadata, "annotations", lambda k: k.startswith("specpilot.io/"), f"{base}.metadata", refused)
    _drop_items(pod, "volumes", lambda i: i.get("name") in OUR_VOLUMES, f"{base}.spec", "rename it", refused)
    _drop_items(
        pod, "initContainers", lambda i: i.get("name") in OUR_INIT, f"{base}.spec", "rename it", refused
    )
    if pod.pop("restartPolicy", "Always") != "Always":
        refused.append(Refused(f"{base}.spec.restartPolicy", "serving pods restart always: remove it"))
    for index, container in enumerate(pod.get("containers") or []):
        where = f"{base}.spec.containers[{index}]"
        if container.get("name") == v.ENGINE_CONTAINER:
            _engine(container, spec, where, refused)
        elif container.get("name") == v.PROFILER_CONTAINER:
            for field in sorted(container.keys() - {"name", "resources"}):
                container.pop(field)
                refused.append(
                    Refused(f"{where}.{field}", "of the profiler only resources can be set: remove it")
                )
        else:
            _drop_ports(container, where, refused)
    return template, refused


def _engine(
    container: dict[str, Any], spec: SpeculativeDeploymentSpec, where: str, refused: list[Refused]
) -> None:
    for field, instead in _INSTEAD.items():
        if container.pop(field, None) is not None:
            refused.append(Refused(f"{where}.{field}", f"the operator owns it: use {instead}"))
    _drop_items(container, "volumeMounts", _ours, where, "mount it elsewhere", refused)
    _drop_ports(container, where, refused)
    token = spec.model.token_secret is not None
    found = env.environment_problems(container.get("env") or [], f"{where}.env", token)
    refused.extend(Refused(path, message) for path, message in found)
    paths = {path for path, _ in found}
    if paths:
        kept = enumerate(container["env"])
        container["env"] = [entry for i, entry in kept if f"{where}.env[{i}]" not in paths]
    for entry in container.get("env") or []:
        if entry.get("name") == env.PYTHONPATH:
            entry["value"] = env.python_path(entry)


def _ours(mount: dict[str, Any]) -> bool:
    return str(mount.get("mountPath", "")).rstrip("/") in OUR_MOUNTS


def _drop_ports(container: dict[str, Any], where: str, refused: list[Refused]) -> None:
    _drop_items(
        container,
        "ports",
        lambda i: i.get("containerPort") in OUR_PORTS or i.get("name") in OUR_PORT_NAMES,
        where,
        "use another port and name",
        refused,
    )


def _drop_items(
    parent: dict[str, Any],
    field: str,
    ours: Callable[[dict[str, Any]], bool],
    where: str,
    fix: str,
    refused: list[Refused],
) -> None:
    items = parent.get(field)
    if not isinstance(items, list):
        return
    for index, item in enumerate(items):
        if ours(item):
            refused.append(Refused(f"{where}.{field}[{index}]", f"the operator owns it: {fix}"))
    parent[field] = [item for item in items if not ours(item)]


def _drop_keys(
    parent: dict[str, Any], field: str, ours: Callable[[str], bool], where: str, refused: list[Refused]
) -> None:
    entries = _mapping(parent, field)
    for key in sorted(filter(ours, entries)):
        entries.pop(key)
        refused.append(Refused(f"{where}.{field}[{key}]", "the operator owns it: remove it"))


def _mapping(parent: dict[str, Any], field: str) -> dict[str, Any]:
    value = parent.get(field)
    return value if isinstance(value, dict) else {}
