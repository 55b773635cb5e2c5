"""The serving pod: the user's image with vLLM, the engine package brought in beside it."""

from __future__ import annotations

import copy
from typing import Any

from specpilot.api import vocabulary as v
from specpilot.api.objects import SpeculativeDeployment
from specpilot.decide.arm import Arm
from specpilot.plan import flags, names
from specpilot.plan.arguments import COMMAND, DRAIN, arguments, speculates
from specpilot.plan.env import engine_environment
from specpilot.plan.inputs import OperatorFacts
from specpilot.plan.labels import SERVING, labels
from specpilot.plan.merge import merge
from specpilot.plan.protect import OUR_CONTAINERS, split
from specpilot.plan.revision import Rendering, read
from specpilot_engine.protocol import (
    ENV_ENGINE_URL,
    ENV_PROFILE,
    ENV_PROFILE_FILE,
    ENV_PROFILED_FILE,
    ENV_PROFILER_PORT,
    ENV_READY_FILE,
    PORT,
    PROFILER_PORT,
    ProfileRequest,
)

_API_KEY = "VLLM_API_KEY"
_FOR_EVER = 2**31 - 1
_MARGIN_SECONDS = 20  # after draining, before the kubelet kills


def serving_template(
    sd: SpeculativeDeployment,
    look: Rendering,
    operator: OperatorFacts,
    request: ProfileRequest | None,
    arm: Arm | None = None,
) -> dict[str, Any]:
    """Pod template of the Deployment, the user's podTemplate merged in last; with the profiler when
    there is a `request` for it; `arm`: the spec's own where None."""
    containers = [engine_container(sd, look, arm)]
    if request is not None:
        containers.append(profiler_container(sd, request))
    drain = flags.integer(flags.parse(read(sd.spec, look).engine.args), DRAIN) or look.drain_seconds
    template = {
        "metadata": {"labels": labels(sd, SERVING)},
        "spec": {
            **_pod(sd, look, operator, profiles=request is not None),
            "containers": containers,
            "terminationGracePeriodSeconds": look.deregister_seconds + drain + _MARGIN_SECONDS,
        },
    }
    overlay, _ = split(sd.spec)
    for field in ("containers", "initContainers"):
        # What the user says of a container of ours must not make one where there is none.
        absent = OUR_CONTAINERS - {c["name"] for c in template["spec"].get(field, ())}
        if theirs := (overlay.get("spec") or {}).get(field):
            overlay["spec"][field] = [c for c in theirs if c.get("name") not in absent]
    return _with_api_key(merge(template, overlay), look)


def _with_api_key(template: dict[str, Any], look: Rendering) -> dict[str, Any]:
    """The profiler asks the engine like any client, wherever the user has set the key: from a source of variables
    nobody knows whether the key is among them."""
    containers = {c.get("name"): c for c in template["spec"]["containers"]}
    profiler = containers.get(v.PROFILER_CONTAINER)
    if profiler is not None:
        engine = copy.deepcopy(containers[v.ENGINE_CONTAINER])
        profiler["env"] = profiler["env"] + [e for e in engine.get("env", []) if e.get("name") == _API_KEY]
        if look.profiler_env_from and (sources := engine.get("envFrom")):
            profiler["envFrom"] = sources
    return template


def engine_container(sd: SpeculativeDeployment, look: Rendering, arm: Arm | None = None) -> dict[str, Any]:
    """vLLM, with the spec's own arm where none is given. It keeps its own name in every pod, so that a
    podTemplate finds it."""
    ports = [{"name": names.PORT_NAME_HTTP, "containerPort": v.PORT_HTTP, "protocol": "TCP"}]
    if speculates(sd.spec):
        ports.append({"name": names.PORT_NAME_SPECPILOT, "containerPort": PORT, "protocol": "TCP"})
    return {
        "name": v.ENGINE_CONTAINER,
        "image": sd.spec.engine.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(COMMAND),
        "args": arguments(sd.spec, look.drain_seconds, arm, look.adaptive_caps, read(sd.spec, look)),
        "env": engine_environment(sd.spec, speculates(sd.spec), arm),
        "ports": ports,
        "volumeMounts": _mounts(speculates(sd.spec)),
        "securityContext": _restricted(),
        # A crash ends the process and the kubelet sees it at once; only a hang waits for a probe.
        "startupProbe": {
            **_health(),
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": look.startup_seconds // 10,
        },
        "readinessProbe": {**_health(), "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {
            **_health(),
            "periodSeconds": 30,
            "timeoutSeconds": 20,
            "failureThreshold": look.liveness_seconds // 30,
        },
        # On SIGTERM vLLM refuses new requests and finishes those in flight (--shutdown-timeout); the
        # pause before it lets load balancers forget the pod, so that no new request meets a refusal.
        "lifecycle": {"preStop": {"sleep": {"seconds": look.deregister_seconds}}},
    }


def profiler_container(sd: SpeculativeDeployment, request: ProfileRequest) -> dict[str, Any]:
    """The profiler, beside the engine that it measures and in the same image."""
    return {
        "name": v.PROFILER_CONTAINER,
        "image": sd.spec.engine.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "specpilot_engine.profiler"],
        "env": [
            {"name": ENV_PROFILE, "value": request.dump()},
            {"name": ENV_PROFILE_FILE, "value": names.PROFILE_FILE},
            {"name": ENV_READY_FILE, "value": names.READY_FILE},
            {"name": ENV_PROFILED_FILE, "value": names.PROFILED_FILE},
            {"name": ENV_PROFILER_PORT, "value": str(PROFILER_PORT)},
            {"name": ENV_ENGINE_URL, "value": f"http://127.0.0.1:{v.PORT_HTTP}"},
            *(e for e in engine_environment(sd.spec, True) if e["name"].startswith("SPECPILOT_")),
            {"name": "PYTHONPATH", "value": names.ENGINE_PACKAGE},
            {"name": "HOME", "value": names.HOME},
            # Never a device of the engine's: images for GPUs ask the runtime for all of them.
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
        ],
        "ports": [{"name": names.PORT_NAME_PROFILER, "containerPort": PROFILER_PORT, "protocol": "TCP"}],
        "resources": _small(),
        "volumeMounts": [
            _mount(names.VOLUME_PACKAGE, names.ENGINE_PACKAGE, readOnly=True),
            _mount(names.VOLUME_PROFILED, names.PROFILED_FOLDER, readOnly=True),
            _mount(names.VOLUME_RUN, names.RUN_FOLDER),
            _mount(names.VOLUME_HOME, names.HOME),
            _mount(names.VOLUME_TMP, "/tmp"),
        ],
        "securityContext": _restricted(),
        # The pod turns Ready when the measurement ends, its budget is spent or it failed, once and for
        # all: a startup probe is over then. It needs no port, which another container might have, and
        # no program but the one that runs here.
        "startupProbe": {
            "exec": {"command": ["python3", "-ISc", f"import os; os.stat('{names.READY_FILE}')"]},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": _FOR_EVER,  # an engine may load for hours before there is anything to measure
        },
    }


def _pod(
    sd: SpeculativeDeployment, look: Rendering, operator: OperatorFacts, profiles: bool
) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "serviceAccountName": sd.metadata.name,
        "automountServiceAccountToken": False,  # nothing in the pod talks to Kubernetes
        "enableServiceLinks": False,  # a Service named vllm would set VLLM_PORT, which vLLM reads
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": look.user,
            "runAsGroup": look.user,
            "fsGroup": look.user,
            "fsGroupChangePolicy": "OnRootMismatch",  # a model cache of a terabyte is not walked at each start
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": _volumes(sd, profiles),
    }
    if sd.spec.engine.runtime_class_name:
        pod["runtimeClassName"] = sd.spec.engine.runtime_class_name
    if speculates(sd.spec):
        pod["initContainers"] = _init_containers(sd, operator, profiles)
    return pod


def _init_containers(
    sd: SpeculativeDeployment, operator: OperatorFacts, profiles: bool
) -> list[dict[str, Any]]:
    package = _mount(names.VOLUME_PACKAGE, names.ENGINE_PACKAGE)
    modules = ["specpilot_engine.scheduler", *(["specpilot_engine.profiler.__main__"] if profiles else [])]
    return [
        {
            "name": v.INIT_CONTAINER,
            "image": operator.engine_image,
            "imagePullPolicy": operator.pull_policy,
            "command": ["cp", "-R", f"{names.ENGINE_PACKAGE_SOURCE}/.", names.ENGINE_PACKAGE],
            "resources": _small(),
            "volumeMounts": [package],
            "securityContext": _restricted(),
        },
        # A scheduler class that cannot be imported kills the engine: better a pod that says so before.
        {
            "name": names.IMPORT_CONTAINER,
            "image": sd.spec.engine.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "-c", f"import {', '.join(modules)}"],
            "env": [
                *(e for e in engine_environment(sd.spec, True) if e["name"] in ("PYTHONPATH", "HOME")),
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
            ],
            "resources": _small(),
            "volumeMounts": [{**package, "readOnly": True}],
            "securityContext": _restricted(),
        },
    ]


def _volumes(sd: SpeculativeDeployment, profiles: bool) -> list[dict[str, Any]]:
    cache = sd.spec.model.cache
    models: dict[str, Any] = {"emptyDir": {}}
    if cache and cache.persistent_volume_claim:
        models = {"persistentVolumeClaim": {"claimName": cache.persistent_volume_claim}}
    elif cache and cache.host_path:
        # It must exist: made on the fly it would belong to root and fill the node's disk unasked.
        models = {"hostPath": {"path": cache.host_path, "type": "Directory"}}
    volumes: list[dict[str, Any]] = [
        {"name": names.VOLUME_MODELS, **models},
        {"name": names.VOLUME_HOME, "emptyDir": {}},
        {"name": names.VOLUME_TMP, "emptyDir": {}},
        {"name": names.VOLUME_SHM, "emptyDir": {"medium": "Memory"}},
    ]
    if speculates(sd.spec):
        schedule = {"name": names.schedule_config_map(sd.metadata.name), "optional": True}
        volumes += [
            {"name": names.VOLUME_PACKAGE, "emptyDir": {}},
            {"name": names.VOLUME_SCHEDULE, "configMap": schedule},
            {"name": names.VOLUME_RUN, "emptyDir": {}},
        ]
    if profiles:
        profiled = {"name": names.profiled_config_map(sd.metadata.name), "optional": True}
        volumes.append({"name": names.VOLUME_PROFILED, "configMap": profiled})
    return volumes


def _mounts(speculates: bool) -> list[dict[str, Any]]:
    mounts = [
        _mount(names.VOLUME_MODELS, names.MODELS),
        _mount(names.VOLUME_HOME, names.HOME),
        _mount(names.VOLUME_TMP, "/tmp"),
        _mount(names.VOLUME_SHM, "/dev/shm"),
    ]
    if speculates:
        mounts += [
            _mount(names.VOLUME_PACKAGE, names.ENGINE_PACKAGE, readOnly=True),
            # The whole folder: a subPath mount would never see a new schedule.
            _mount(names.VOLUME_SCHEDULE, names.SCHEDULE_FOLDER, readOnly=True),
            _mount(names.VOLUME_RUN, names.RUN_FOLDER),
        ]
    return mounts


def _mount(volume: str, path: str, **more: bool) -> dict[str, Any]:
    return {"name": volume, "mountPath": path, **more}


def _health() -> dict[str, Any]:
    return {"httpGet": {"path": "/health", "port": names.PORT_NAME_HTTP}}


def _restricted() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _small() -> dict[str, Any]:
    return {"requests": {"cpu": "50m", "memory": "64Mi"}}
