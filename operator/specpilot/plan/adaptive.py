"""vLLM's own adaptive verification: whether an engine of a spec would start with it, and who chose it."""

from __future__ import annotations

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.versions import ADAPTIVE_SINCE, engine_version
from specpilot.plan import flags, user_env
from specpilot.plan.limits import limits

MODEL_RUNNER_V2 = "VLLM_USE_V2_MODEL_RUNNER"


def problem(spec: SpeculativeDeploymentSpec) -> str:
    """Why vLLM would not start with adaptive verification, as far as the spec tells; "" when it would.

    What vLLM 0.32 and 0.33 check (config/vllm.py, `_validate_adaptive_verification`), and that only DSpark
    has a confidence head, which their documentation asks for.
    """
    given = flags.parse(spec.engine.args)
    version = engine_version(spec.engine.image, spec.engine.vllm_version)
    if spec.speculation.method != "DSpark":
        return "it needs the confidence of method DSpark"
    if version is not None and version.release < ADAPTIVE_SINCE.release:
        return f"it needs vLLM {ADAPTIVE_SINCE} or newer"
    if not limits(spec).capture_cap:
        return (
            "it needs CUDA graphs: remove --enforce-eager, cudagraph_mode NONE or what makes it a CPU engine"
        )
    if flags.enabled(given, "--enable-lora"):
        return "it does not work with LoRA: remove --enable-lora"
    if spec.parallelism.pipeline > 1:
        return "it does not work with pipeline stages: set spec.parallelism.pipeline to 1"
    if user_env.value(spec, MODEL_RUNNER_V2) == "0":
        return "it needs model runner V2: remove VLLM_USE_V2_MODEL_RUNNER=0"
    return ""


def fixed(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether the user wants it in any case, and vLLM would start."""
    return spec.speculation.verification.adaptive == "Always" and not problem(spec)
