"""Which changes make another cost profile necessary, and which do not."""

from typing import Any

import pytest

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.plan.fingerprint import cost_arguments, fingerprint, key, mismatch


def spec(*args: str, env: list[dict[str, Any]] | None = None, **more: Any) -> SpeculativeDeploymentSpec:
    engine = {"image": "vllm:v0.33.0", "args": list(args), "env": env or []}
    body = {"model": {"name": "m"}, "speculation": {"method": "MTP"}, "engine": engine, **more}
    return SpeculativeDeploymentSpec.model_validate(body)


@pytest.mark.parametrize(
    "other",
    [
        spec("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        spec("--shutdown-timeout", "600"),
        spec("--chat-template=/t.jinja"),
        spec(env=[{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}, {"name": "HF_HOME", "value": "/x"}]),
        spec(env=[{"name": "VLLM_API_KEY", "value": "secret"}]),
        spec(model={"name": "m", "servedName": "other"}),
        spec(replicas=9, tuning={"mode": "Observe"}),
    ],
)
def test_what_leaves_a_steps_cost_alone_keeps_the_fingerprint(other: SpeculativeDeploymentSpec) -> None:
    assert mismatch(fingerprint(spec()), fingerprint(other)) == []
    assert key(fingerprint(spec())) == key(fingerprint(other))


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (spec("--max-num-seqs", "8"), "arguments"),
        (spec("--enforce-eager"), "arguments"),
        (spec(env=[{"name": "VLLM_ATTENTION_BACKEND", "value": "FLASHINFER"}]), "arguments"),
        (spec(model={"name": "other"}), "model"),
        (spec(model={"name": "m", "revision": "v2"}), "modelRevision"),
        (spec(parallelism={"tensor": 2}), "tensor"),
        (spec(speculation={"method": "NGram"}), "method"),
    ],
)
def test_what_changes_it_is_named(other: SpeculativeDeploymentSpec, field: str) -> None:
    assert field in mismatch(fingerprint(spec()), fingerprint(other))


def test_spelling_and_order_do_not_matter() -> None:
    one = spec("--max-num-seqs", "8", "--kv-cache-dtype=fp8")
    other = spec("--kv_cache_dtype", "fp8", "--max_num_seqs=8")
    assert cost_arguments(one) == cost_arguments(other)


def test_digest_and_device_of_the_running_pod_count() -> None:
    known = fingerprint(spec(), "sha256:1", "NVIDIA H200")
    assert mismatch(known, fingerprint(spec(), "sha256:2", "NVIDIA H200")) == ["imageDigest"]
    assert mismatch(known, fingerprint(spec(), "sha256:1", "NVIDIA B200")) == ["gpu"]
    assert len(key(known)) == 16


def test_arguments_too_long_for_the_field_become_a_hash() -> None:
    long = spec(env=[{"name": "VLLM_X", "value": "x" * 5000}])
    assert cost_arguments(long).startswith("sha256:")
    assert cost_arguments(long) != cost_arguments(spec(env=[{"name": "VLLM_X", "value": "y" * 5000}]))
