"""Names of what is rendered: children, volumes, mount paths. All follow from the object's own name,
which admission bounds at 52 characters, so every one stays within Kubernetes' 63."""

from __future__ import annotations

from specpilot_engine.protocol import PROFILED_KEY, SCHEDULE_KEY

ENGINE_PACKAGE_SOURCE = "/opt/specpilot/engine"  # in the operator's image
ENGINE_PACKAGE = "/specpilot/engine"  # in the serving pod, on PYTHONPATH
SCHEDULE_FOLDER = "/etc/specpilot"
SCHEDULE_FILE = f"{SCHEDULE_FOLDER}/{SCHEDULE_KEY}"
PROFILED_FOLDER = "/etc/specpilot-profiled"
PROFILED_FILE = f"{PROFILED_FOLDER}/{PROFILED_KEY}"
RUN_FOLDER = "/run/specpilot"
OVERRIDE_FILE = f"{RUN_FOLDER}/override.json"
PROFILE_FILE = f"{RUN_FOLDER}/profile.jsonl"
READY_FILE = f"{RUN_FOLDER}/may-serve"  # made by the profiler
HOME = "/home/specpilot"
MODELS = "/models"  # model cache: HF_HOME, and where a model.name that is a path usually points

VOLUME_PACKAGE = "specpilot-engine"
VOLUME_SCHEDULE = "specpilot-schedule"
VOLUME_PROFILED = "specpilot-profiled"
VOLUME_RUN = "specpilot-run"
VOLUME_HOME = "specpilot-home"
VOLUME_MODELS = "specpilot-models"
VOLUME_SHM = "specpilot-shm"
VOLUME_TMP = "specpilot-tmp"

IMPORT_CONTAINER = "specpilot-import"  # proves the import inside the user's own image
PORT_NAME_HTTP = "http"
PORT_NAME_SPECPILOT = "specpilot"
PORT_NAME_PROFILER = "profiler"


def schedule_config_map(name: str) -> str:
    return f"{name}-schedule"


def profiled_config_map(name: str) -> str:
    return f"{name}-profiled"


def tuner_config_map(name: str) -> str:
    return f"{name}-tuner"


def profile_job(name: str) -> str:
    return f"{name}-profile"


def cost_profile(name: str, key: str) -> str:
    """`key`: hex digest of the fingerprint (plan.fingerprint.key)."""
    return f"{name}-{key[:8]}"
