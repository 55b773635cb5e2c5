"""Environment of the engine container: ours, the hub token, and the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.decide.arm import Arm
from specpilot.plan import names
from specpilot_engine.protocol import ENV_OVERRIDE_FILE, ENV_PORT, ENV_SCHEDULE_FILE, PORT

PYTHONPATH = "PYTHONPATH"
TOKEN = "HF_TOKEN"
# Tokens of context at which vLLM times adaptive verification when it starts; vLLM's own default is 8192.
CONTEXT_VARIABLE = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN"

# The pod runs as a user that the image does not know: getpass needs USER, and every cache must lie on
# a volume of ours. The user may move each of them.
_FOLDERS = {
    "HOME": names.HOME,
    "USER": "specpilot",
    "HF_HOME": names.MODELS,
    "XDG_CACHE_HOME": f"{names.HOME}/.cache",
    "VLLM_CACHE_ROOT": f"{names.HOME}/.cache/vllm",
    "TRITON_CACHE_DIR": f"{names.HOME}/.cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{names.HOME}/.cache/inductor",
}
_OWNED = {
    ENV_SCHEDULE_FILE: names.SCHEDULE_FILE,
    ENV_OVERRIDE_FILE: names.OVERRIDE_FILE,
    ENV_PORT: str(PORT),
}
PROTECTED = frozenset(_OWNED)


def engine_environment(
    spec: SpeculativeDeploymentSpec, speculates: bool, arm: Arm | None = None
) -> list[dict[str, Any]]:
    """In order: folders, token, ours, the user's; a variable of the user's replaces a folder of ours, and the
    context of adaptive verification."""
    user = {str(entry.get("name")): entry for entry in spec.engine.env}
    entries: dict[str, dict[str, Any]] = {k: {"name": k, "value": text} for k, text in _FOLDERS.items()}
    if spec.model.token_secret:
        ref = {"name": spec.model.token_secret.name, "key": spec.model.token_secret.key}
        entries[TOKEN] = {"name": TOKEN, "valueFrom": {"secretKeyRef": ref}}
    if arm is not None and arm.context:
        entries[CONTEXT_VARIABLE] = {"name": CONTEXT_VARIABLE, "value": str(arm.context)}
    entries |= user
    if speculates:
        entries |= {k: {"name": k, "value": text} for k, text in _OWNED.items()}
        entries[PYTHONPATH] = {"name": PYTHONPATH, "value": python_path(user.get(PYTHONPATH))}
    return list(entries.values())


def python_path(entry: dict[str, Any] | None) -> str:
    """The engine package's folder, then the user's own path."""
    own = str((entry or {}).get("value") or "")
    return f"{names.ENGINE_PACKAGE}:{own}" if own else names.ENGINE_PACKAGE


def environment_problems(entries: Iterable[dict[str, Any]], path: str, token: bool) -> list[tuple[str, str]]:
    """(path, what to do) for each variable that the operator owns; `token`: it also sets HF_TOKEN."""
    found = []
    for index, entry in enumerate(entries):
        name = entry.get("name")
        where = f"{path}[{index}]"
        if name in PROTECTED:
            found.append((where, f"the operator owns {name}: remove it"))
        elif name == PYTHONPATH and "valueFrom" in entry:
            found.append(
                (
                    where,
                    "PYTHONPATH must be a plain value, so that the engine package can be put in front of it",
                )
            )
        elif name == TOKEN and token:
            found.append((where, "HF_TOKEN comes from spec.model.tokenSecret: set one of the two"))
    return found
