"""Which of the engine's variables make another cost profile, and what of them a profile shows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.plan.cost_env import cost_variables, is_free
from specpilot.plan.fingerprint import cost_arguments, fingerprint, key

COSTLY = """
VLLM_ATTENTION_BACKEND VLLM_USE_V1 VLLM_USE_V2_MODEL_RUNNER VLLM_CPU_OMP_THREADS_BIND OMP_NUM_THREADS
VLLM_USE_BREAKABLE_CUDAGRAPH VLLM_USE_AOT_COMPILE VLLM_USE_STANDALONE_COMPILE VLLM_DISABLED_KERNELS
VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE VLLM_KV_CACHE_LAYOUT
VLLM_USE_DEEP_GEMM VLLM_ALLREDUCE_USE_SYMM_MEM VLLM_BATCH_INVARIANT VLLM_TRACE_FUNCTION
TORCHDYNAMO_DISABLE TORCH_NCCL_AVOID_RECORD_STREAMS PYTORCH_CUDA_ALLOC_CONF CUDA_LAUNCH_BLOCKING
CUDA_VISIBLE_DEVICES NVIDIA_TF32_OVERRIDE NCCL_ALGO NCCL_P2P_DISABLE NCCL_IB_HCA NVSHMEM_DISABLE_P2P
KMP_AFFINITY GOMP_CPU_AFFINITY MKL_NUM_THREADS LD_PRELOAD MALLOC_ARENA_MAX TRITON_INTERPRET
FLASHINFER_CUDA_ARCH_LIST HIP_VISIBLE_DEVICES HSA_ENABLE_SDMA PYTHONPATH PYTHONOPTIMIZE
SPECPILOT_SIM ANY_SWITCH_OF_TOMORROW KEYS TOKENS_AT_ONCE CATALOG
"""
FREE = """
HF_TOKEN HF_HOME HF_HUB_OFFLINE HUGGING_FACE_HUB_TOKEN TRANSFORMERS_CACHE MODELSCOPE_CACHE HOME USER
XDG_CACHE_HOME VLLM_CACHE_ROOT VLLM_CONFIG_ROOT TRITON_CACHE_DIR TORCHINDUCTOR_CACHE_DIR CUDA_CACHE_PATH
VLLM_LOGGING_LEVEL VLLM_CONFIGURE_LOGGING VLLM_LOG_STATS_INTERVAL LOG_LEVEL TORCH_LOGS NCCL_DEBUG
NCCL_DEBUG_SUBSYS VLLM_API_KEY OPENAI_API_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY DB_PASSWORD
SOME_SECRET github_token VLLM_NO_USAGE_STATS VLLM_DO_NOT_TRACK DO_NOT_TRACK HTTPS_PROXY no_proxy
SSL_CERT_FILE REQUESTS_CA_BUNDLE TZ LANG LC_ALL PYTHONUNBUFFERED OTEL_EXPORTER_OTLP_ENDPOINT
VLLM_IMAGE_FETCH_TIMEOUT VLLM_MAX_IMAGE_PIXELS VLLM_HTTP_TIMEOUT_KEEP_ALIVE VLLM_HOST_IP
VLLM_ENGINE_READY_TIMEOUT_S VLLM_NIXL_SIDE_CHANNEL_PORT TOKENIZERS_PARALLELISM
"""


def spec(*env: dict[str, Any], **container: Any) -> SpeculativeDeploymentSpec:
    body: dict[str, Any] = {
        "model": {"name": "m"},
        "speculation": {"method": "MTP"},
        "engine": {"image": "vllm:v0.33.0", "env": list(env)},
    }
    if container:
        body["podTemplate"] = {"spec": {"containers": [{"name": "vllm", **container}]}}
    return SpeculativeDeploymentSpec.model_validate(body)


def var(name: str, value: str = "1") -> dict[str, str]:
    return {"name": name, "value": value}


@pytest.mark.parametrize(
    "name",
    COSTLY.split(),
)
def test_a_switch_of_the_engine_makes_another_profile(name: str) -> None:
    prints = [key(fingerprint(one)) for one in (spec(), spec(var(name, "1")), spec(var(name, "2")))]
    assert len(set(prints)) == 3


@pytest.mark.parametrize(
    "name",
    FREE.split(),
)
def test_what_cannot_change_a_step_keeps_the_profile(name: str) -> None:
    assert is_free(name)
    assert key(fingerprint(spec(var(name, "x")))) == key(fingerprint(spec()))


def test_order_does_not_matter_and_the_last_of_one_name_counts_as_in_the_pod() -> None:
    a, b = var("OMP_NUM_THREADS", "4"), var("NCCL_ALGO", "Ring")
    assert cost_arguments(spec(a, b)) == cost_arguments(spec(b, a))
    in_template = spec(var("OMP_NUM_THREADS", "2"), b, env=[a])
    assert cost_arguments(in_template) == cost_arguments(spec(a, b))


def test_settings_of_the_engine_are_readable_and_other_values_are_not() -> None:
    words = cost_variables(spec(var("VLLM_ATTENTION_BACKEND", "FLASHINFER"), var("SITE", "hunter2")))
    assert words == ["VLLM_ATTENTION_BACKEND=FLASHINFER", "SITE=sha256:f52fbd32b2b3"]


def test_a_value_from_elsewhere_is_named_by_its_reference() -> None:
    reference = {"valueFrom": {"secretKeyRef": {"key": "backend", "name": "tuning"}}}
    words = cost_variables(
        spec({"name": "VLLM_ATTENTION_BACKEND", **reference}, envFrom=[{"configMapRef": {"name": "flags"}}])
    )
    assert words == [
        "VLLM_ATTENTION_BACKEND=(secretKeyRef key=backend name=tuning)",
        "envFrom(configMapRef name=flags)",
    ]


@given(
    st.sampled_from(["HF_TOKEN", "VLLM_API_KEY", "MY_SECRET", "REGISTRY_PASSWORD", "SESSION_TOKEN", "AUTH"]),
    st.text(min_size=8, max_size=40).filter(lambda value: value.strip()),
)
def test_no_credential_is_ever_part_of_it(name: str, value: str) -> None:
    assert cost_variables(spec(var(name, value), env=[var(name, value)])) == []
