"""Which variables of the engine's environment may change what a step costs, and how a fingerprint names them.

Every variable counts that is not known to be irrelevant: a switch that nobody thought of must rather cost a
measurement than make a wrong profile fit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.plan import user_env

# Where models come from and lie, logging and tracing, proxies and certificates, locale, what Python prints.
_FREE = re.compile(
    r"HF_\w+|HUGGING_?FACE\w*|TRANSFORMERS_\w+|MODELSCOPE_\w+|AWS_\w+|S3_\w+|GOOGLE_\w+|AZURE_\w+"
    r"|XDG_\w+|\w+_CACHE_(?:DIR|ROOT|PATH|HOME)|HOME|USER|LOGNAME|HOSTNAME|TERM|TZ|LANG|LANGUAGE|LC_\w+"
    r"|(?:\w+_)?LOG(?:S|GING)?(?:_\w+)?|NCCL_DEBUG(?:_\w+)?|OTEL_\w+|(?i:(?:https?|no|all)_proxy)"
    r"|SSL_CERT_(?:FILE|DIR)|(?:REQUESTS|CURL)_CA_BUNDLE|DO_NOT_TRACK|TOKENIZERS_PARALLELISM"
    r"|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|WARNINGS|FAULTHANDLER)"
)
# vLLM's own for its front end, media, limits on waiting, and how its processes find each other.
_FREE_OF_VLLM = re.compile(
    r"VLLM_(?:NO_USAGE_STATS|DO_NOT_TRACK|USAGE_\w+|CONFIG_ROOT|ASSETS_CACHE\w*|MEDIA_\w+|\w+_FETCH_TIMEOUT"
    r"|MAX_(?:AUDIO|IMAGE|MEDIA|EMBED)_\w+|HTTP_\w+|CHAT_TEMPLATE_\w+|TOOL_\w+|HOST_IP|PORT|LOOPBACK_IP"
    r"|RPC_BASE_PATH|DP_MASTER_(?:IP|PORT)|\w+_SIDE_CHANNEL_(?:HOST|PORT)|PROCESS_NAME_PREFIX"
    r"|ENGINE_READY_TIMEOUT_S|EXECUTE_MODEL_TIMEOUT_SECONDS|WORKER_SHUTDOWN_TIMEOUT_SECONDS"
    r"|KEEP_ALIVE_ON_ENGINE_DEATH|SERVER_DEV_MODE|IMAGE_TAG|BUILD_\w+|ALLOW_LONG_MAX_MODEL_LEN"
    r"|SKIP_MODEL_NAME_VALIDATION|ENABLE_RESPONSES_API_STORE|ENABLE_COHERE_API|FASTSAFETENSORS_\w+)"
)
# A credential costs nothing, and what is named like one must not be written anywhere, not even hashed.
_SECRET = re.compile(r"(?i)(?:\w*_)?(?:TOKEN|KEY|KEY_ID|AUTH|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)")
# Settings of the engine and its libraries, which people may read in a profile; other values are hashed.
_READABLE = (
    *("VLLM_", "NCCL_", "CUDA_", "TORCH", "PYTORCH_", "OMP_", "MKL_", "KMP_", "GOMP_", "TRITON_"),
    *("FLASHINFER_", "NVSHMEM_", "UCX_", "GLOO_", "HIP_", "HSA_", "ROCM_"),
)


def cost_variables(spec: SpeculativeDeploymentSpec) -> list[str]:
    """One word each, for variables of spec.engine.env and of the engine's container in spec.podTemplate.

    A value that comes from elsewhere in the cluster is named by its reference, and never read.
    """
    words = [_word(name, entry) for name, entry in user_env.variables(spec).items() if not is_free(name)]
    sources = user_env.engine_container(spec).get("envFrom") or ()
    return [*words, *(f"envFrom({_reference(source)})" for source in sources)]


def is_free(name: str) -> bool:
    """Whether a variable is known to leave a step's cost alone."""
    return any(pattern.fullmatch(name) for pattern in (_FREE, _FREE_OF_VLLM, _SECRET))


def _word(name: str, entry: Mapping[str, Any]) -> str:
    if "valueFrom" in entry:
        return f"{name}=({_reference(entry['valueFrom'])})"
    value = str(entry.get("value") or "")
    if name.startswith(_READABLE):
        return f"{name}={value}"
    return f"{name}=sha256:{hashlib.sha256(value.encode()).hexdigest()[:12]}"


def _reference(source: Any) -> str:
    """For example secretKeyRef name=tokens key=hub."""
    if not isinstance(source, dict):
        return str(source)
    parts = []
    for kind, to in sorted(source.items()):
        inner = " ".join(f"{k}={v}" for k, v in sorted(to.items())) if isinstance(to, dict) else str(to)
        parts.append(f"{kind} {inner}")
    return ", ".join(parts)
