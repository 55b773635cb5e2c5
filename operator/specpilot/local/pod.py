"""A pod template as processes on this machine: its containers become commands, its volumes folders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specpilot.api import vocabulary as v
from specpilot.plan import names
from specpilot.plan.arguments import COMMAND
from specpilot.plan.profiling import devices_of
from specpilot_engine.protocol import ENV_ENGINE_URL, ENV_HOST, ENV_PORT, ENV_PROFILER_PORT

EngineKind = Literal["sim", "vllm"]
SIM_MODULE = "specpilot_engine.sim"
_GPU = "nvidia.com/gpu"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# What on a cluster stands in for a home: here the person's own, with their downloaded models, serves.
_HOME_VOLUMES = {names.VOLUME_HOME, names.VOLUME_TMP, names.VOLUME_SHM}
# Made for containers: on this machine the person's own values are right.
_POD_ONLY = {"USER", "NVIDIA_VISIBLE_DEVICES"}


@dataclass(frozen=True, slots=True)
class Ports:
    """Of one replica."""

    http: int
    engine: int
    profiler: int


@dataclass(frozen=True, slots=True)
class Machine:
    """How this machine stands in for a node.

    `python` runs the containers; `state` holds all folders; `environ` is the person's own environment,
    over which the pod's comes.
    """

    kind: EngineKind
    python: str
    host: str
    state: Path
    environ: Mapping[str, str]

    @property
    def package(self) -> Path:
        """The folder that holds a copy of the engine package, as the init container makes one."""
        return self.state / "engine"


@dataclass(frozen=True, slots=True)
class Launch:
    """One container as a local process."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LocalPod:
    """What to create and start for one replica, and what of the template has no place here."""

    name: str
    folders: tuple[Path, ...]
    launches: tuple[Launch, ...]
    notices: tuple[str, ...]


def local_pod(
    name: str, template: Mapping[str, Any], replica: int, ports: Ports, machine: Machine
) -> LocalPod:
    """Translate one replica of a Deployment's pod template. Pure; makes and starts nothing."""
    spec = template["spec"]
    volumes = {str(volume["name"]): volume for volume in spec.get("volumes", ())}
    launches, notices, folders = [], [], set()
    for container in spec["containers"]:
        if not container.get("command"):
            notices.append(
                f"the container {container['name']} is left out: what its image runs is not on this machine"
            )
            continue
        paths = _paths(container, volumes, name, machine)
        folders |= {p for p in paths.values() if p is not None and machine.state in p.parents}
        env, missing = _environment(container, paths, machine)
        notices += missing
        env |= {
            ENV_HOST: machine.host,
            ENV_PORT: str(ports.engine),
            ENV_PROFILER_PORT: str(ports.profiler),
            ENV_ENGINE_URL: f"http://{loopback(machine.host)}:{ports.http}",
        }
        if container["name"] == v.ENGINE_CONTAINER and (devices := _devices(container, replica, machine)):
            env[_VISIBLE] = devices
        command = [_rewrite(word, paths) for word in (*container["command"], *(container.get("args") or ()))]
        command = _local_command(command, machine)
        if container["name"] == v.ENGINE_CONTAINER:
            command += ["--host", machine.host, "--port", str(ports.http)]  # the last one counts
        launches.append(Launch(container["name"], tuple(command), {**machine.environ, **env}))
    return LocalPod(name, tuple(sorted(folders)), tuple(launches), tuple(dict.fromkeys(notices)))


def _local_command(command: list[str], machine: Machine) -> list[str]:
    if machine.kind == "sim" and tuple(command[: len(COMMAND)]) == COMMAND:
        return [machine.python, "-m", SIM_MODULE, *command[len(COMMAND) :]]
    return [machine.python, *command[1:]] if command[0] == COMMAND[0] else command


def _paths(
    container: Mapping[str, Any], volumes: Mapping[str, Any], pod: str, machine: Machine
) -> dict[str, Path | None]:
    """Where each mount of the container lies here; None: the person's own home has the like."""
    paths: dict[str, Path | None] = {}
    for mount in container.get("volumeMounts", ()):
        name = str(mount["name"])
        volume = volumes.get(name, {})
        path: Path | None = machine.state / pod / name
        if name == names.VOLUME_PACKAGE:
            path = machine.package
        elif "hostPath" in volume:
            path = Path(volume["hostPath"]["path"])
        elif "configMap" in volume:
            path = machine.state / str(volume["configMap"]["name"])
        elif name in _HOME_VOLUMES or name == names.VOLUME_MODELS:
            path = None
        elif "persistentVolumeClaim" in volume:
            path = machine.state / "volumes" / str(volume["persistentVolumeClaim"]["claimName"])
        paths[str(mount["mountPath"])] = path
    return paths


def _rewrite(text: str, paths: Mapping[str, Path | None]) -> str:
    """Every path below a mount, wherever it stands in `text`, as the path here."""
    here = {mount: str(path) for mount, path in paths.items() if path is not None}
    if not here:
        return text
    mounts = "|".join(re.escape(mount) for mount in sorted(here, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({mounts})(?=$|[/:,\"'\s])", lambda found: here[found[1]], text)


def _environment(
    container: Mapping[str, Any], paths: Mapping[str, Path | None], machine: Machine
) -> tuple[dict[str, str], list[str]]:
    homes = [mount for mount, path in paths.items() if path is None]
    env: dict[str, str] = {}
    missing = []
    for entry in container.get("env", ()):
        name, value = str(entry["name"]), entry.get("value")
        if name in _POD_ONLY:
            continue
        if value is None and "valueFrom" in entry:
            if name not in machine.environ:
                missing.append(f"{name} comes from the cluster: set it in this shell if the engine needs it")
            continue
        text = str(value or "")
        if any(text == home or text.startswith(f"{home}/") for home in homes):
            continue
        env[name] = _rewrite(text, paths)
    return env, missing


def _devices(container: Mapping[str, Any], replica: int, machine: Machine) -> str:
    """The GPUs of one replica, where the pod asks for some: replicas share none."""
    count = devices_of(container).get(_GPU, 0)
    if not count or machine.kind == "sim":
        return ""
    given = [d for d in machine.environ.get(_VISIBLE, "").split(",") if d]
    devices = [given[i] if i < len(given) else str(i) for i in range(replica * count, (replica + 1) * count)]
    return ",".join(devices)


def loopback(host: str) -> str:
    """Where to reach, from this machine, what listens on `host`."""
    return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
