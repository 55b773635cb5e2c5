"""What a cost profile is a profile of, and whether another engine is the same."""

from __future__ import annotations

import hashlib

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.profile import Fingerprint
from specpilot.plan import flags
from specpilot.plan.arguments import arguments
from specpilot.plan.cost_env import cost_variables
from specpilot.plan.hashing import digest
from specpilot.plan.reading import as_at_first

# Flags that leave a step's cost alone: names, front end, logging, and what the fingerprint says elsewhere.
_FREE_FLAGS = """
--model --revision --served-model-name --tokenizer --tokenizer-revision --hf-config-path --download-dir
--load-format --model-loader-extra-config --max-parallel-loading-workers --trust-remote-code --seed
--tensor-parallel-size --pipeline-parallel-size --data-parallel-size --api-server-count
--host --port --uvicorn-log-level --disable-uvicorn-access-log --disable-access-log-for-endpoints
--allow-credentials --allowed-origins --allowed-methods --allowed-headers --root-path --middleware
--ssl-ca-certs --enable-ssl-refresh --ssl-cert-reqs --disable-fastapi-docs --enable-offline-docs
--chat-template --chat-template-content-format --trust-request-chat-template --default-chat-template-kwargs
--response-role --enable-auto-tool-choice --tool-call-parser --tool-parser-plugin --tool-server
--reasoning-parser --return-tokens-as-token-ids --exclude-tools-when-tool-choice-none
--enable-prompt-tokens-details --enable-server-load-tracking --enable-force-include-usage
--enable-tokenizer-info-endpoint --enable-log-outputs --enable-log-requests --no-enable-log-requests
--max-log-len --log-config-file --aggregate-engine-logging --enable-request-id-headers
--h11-max-incomplete-event-size --h11-max-header-count --otlp-traces-endpoint --collect-detailed-traces
--show-hidden-metrics-for-version --shutdown-timeout --scheduler-cls --generation-config
--override-generation-config --allowed-local-media-path --allowed-media-domains
"""
_FREE = frozenset(_FREE_FLAGS.split())
_LONGEST = 4096


def fingerprint(spec: SpeculativeDeploymentSpec, digest_of_image: str = "", gpu: str = "") -> Fingerprint:
    """`digest_of_image` and `gpu` as running pods and their node tell them; "" while none runs."""
    draft = spec.speculation.draft_model
    return Fingerprint(
        model=spec.model.name[:253],
        model_revision=spec.model.revision or "",
        draft_model=(draft.name if draft else "")[:253],
        draft_revision=(draft.revision or "" if draft else ""),
        method=spec.speculation.method,
        image_digest=digest_of_image,
        gpu=gpu,
        tensor=spec.parallelism.tensor,
        pipeline=spec.parallelism.pipeline,
        data=spec.parallelism.data,
        arguments=cost_arguments(spec),
    )


def cost_arguments(spec: SpeculativeDeploymentSpec) -> str:
    """The arguments and variables that change a step's cost, canonical: sorted, one spelling each.

    Ours are those of the first revision, as a name for the spec: an operator that plans it in another way must not
    take from pods that it leaves alone the profile that was measured on them."""
    parts = []
    for flag in flags.parse(arguments(spec, drain_seconds=0, read=as_at_first(spec))):
        if flag.name in _FREE:
            continue
        name = f"{flag.name}.{flag.key}" if flag.key else flag.name
        parts.append(" ".join([name, *flag.values]))
    text = " ".join(sorted([*parts, *cost_variables(spec)]))
    if len(text) > _LONGEST:
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return text


def key(of: Fingerprint) -> str:
    """Sixteen hex digits; the name of a CostProfile ends in its first eight."""
    return digest(of.to_json())


def request_key(spec: SpeculativeDeploymentSpec) -> str:
    """Names what a profiler measures before its pod's digest and device are known: by the image's name."""
    return key(fingerprint(spec, digest_of_image=spec.engine.image))


def mismatch(a: Fingerprint, b: Fingerprint) -> list[str]:
    """Fields, as users write them, in which two fingerprints differ; [] when a profile of one holds for the other."""
    left, right = a.to_json(), b.to_json()
    return [name for name in left if left[name] != right.get(name)]
