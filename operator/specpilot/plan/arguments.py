"""The vLLM command line: everything the operator owns, then the user's own arguments.

Names and fields were read in vLLM 0.30, 0.31, 0.32 and 0.33, which agree on all that is emitted here.
"""

from __future__ import annotations

import json
from typing import Any

from specpilot.api.deployment import Speculation, SpeculativeDeploymentSpec
from specpilot.api.vocabulary import PORT_HTTP
from specpilot.decide.arm import NONE, SCHEDULE, Arm, Kind
from specpilot.plan import adaptive, flags, user_env
from specpilot.plan.graphs import Graphs, captured, plan_captures
from specpilot.plan.limits import Limits, limits

COMMAND = ("python3", "-m", "vllm.entrypoints.openai.api_server")
DRAIN = "--shutdown-timeout"
SCHEDULER = "specpilot_engine.scheduler.factory"

METHODS = {
    "DSpark": "dspark",
    "MTP": "mtp",
    "Eagle": "eagle",
    "Eagle3": "eagle3",
    "DFlash": "dflash",
    "DraftModel": "draft_model",
    "NGram": "ngram",
}
_VERIFICATION = {"Block": "block", "Synthetic": "synthetic"}
_NGRAM_LOOKUP_MAX, _NGRAM_LOOKUP_MIN = 4, 2  # vLLM's own fall-back of 5 and 5 finds next to nothing


def arguments(
    spec: SpeculativeDeploymentSpec,
    drain_seconds: int,
    arm: Arm | None = None,
    capped: bool = False,
    read: SpeculativeDeploymentSpec | None = None,
) -> list[str]:
    """Arguments after COMMAND, in a fixed order. `drain_seconds`: how long SIGTERM waits for requests; `arm`:
    the spec's own where None; `capped`: depths under adaptive verification can be capped live; `read`: what ours
    follow from, the spec itself where None."""
    return [*_ours(read or spec, drain_seconds, arm, capped), *spec.engine.args]


def _ours(spec: SpeculativeDeploymentSpec, drain_seconds: int, arm: Arm | None, capped: bool) -> list[str]:
    arm = arm or base_arm(spec)
    model, parallel = spec.model, spec.parallelism
    line = ["--model", model.name, "--host", "0.0.0.0", "--port", str(PORT_HTTP)]
    if model.revision:
        line += ["--revision", model.revision]
    line += ["--served-model-name", model.served_name or model.name]
    for flag, size in (
        ("--tensor-parallel-size", parallel.tensor),
        ("--pipeline-parallel-size", parallel.pipeline),
        ("--data-parallel-size", parallel.data),
    ):
        if size > 1:
            line += [flag, str(size)]
    if flags.last(flags.parse(spec.engine.args), DRAIN) is None:
        line += [DRAIN, str(drain_seconds)]
    if speculates(spec):
        if arm.kind is not Kind.NONE:
            config = json.dumps(speculative_config(spec, arm, capped), separators=(",", ":"))
            line += ["--speculative-config", config]
        # Without a drafter too, where it was the operator that left it out: what comes of it is measured.
        line += ["--scheduler-cls", SCHEDULER]
        sizes = capture_sizes(spec, arm)
        if sizes:
            line += ["--cudagraph-capture-sizes", *(str(size) for size in sizes)]
    return line


def speculates(spec: SpeculativeDeploymentSpec) -> bool:
    """Whether there is a drafter at all; without one the engine runs as stock vLLM, package and all left out."""
    return spec.speculation.method != "None"


def live_support(spec: SpeculativeDeploymentSpec) -> tuple[bool, str]:
    """Whether the depth can change while the engine runs, or why not, as far as the spec tells: the engine
    package looks for itself, and says so where it cannot."""
    if not speculates(spec):
        return False, "spec.speculation.method is None: there is no depth to tune"
    if adaptive.fixed(spec):
        why = (
            "spec.speculation.verification.adaptive is Always: vLLM itself sizes what is verified of a draft"
        )
        return False, why
    if spec.parallelism.data > 1:
        return False, "vLLM drafts at one fixed depth under data parallelism: set spec.parallelism.data to 1"
    if user_env.value(spec, adaptive.MODEL_RUNNER_V2) == "0" and spec.speculation.method == "DSpark":
        return (
            False,
            "DSpark needs model runner V2 for a schedule of depths: remove VLLM_USE_V2_MODEL_RUNNER=0",
        )
    return True, ""


def base_arm(spec: SpeculativeDeploymentSpec) -> Arm:
    """The arm that a spec asks for, and that its engines start with."""
    if not speculates(spec):
        return NONE
    if adaptive.fixed(spec):
        return Arm(Kind.ADAPTIVE, spec.speculation.max_tokens)
    return SCHEDULE if live_support(spec)[0] else Arm(Kind.STATIC, spec.speculation.max_tokens)


def safe_depth(speculation: Speculation) -> int:
    """The depth to draft at before anything is known: the shallowest that drafts at all, which has the
    least to lose at high load and already wins most of what there is to win at low load."""
    return next((depth for depth in speculation.depths if depth > 0), 0)


def speculative_config(
    spec: SpeculativeDeploymentSpec, arm: Arm | None = None, capped: bool = False
) -> dict[str, Any]:
    """`--speculative-config` of an arm with a drafter. Under a schedule num_speculative_tokens is maxTokens
    even where no candidate is that deep: block drafters need their block's size, synthetic acceptance one
    rate for each. `capped`: adaptive verification starts with one row of all drafts, at which vLLM captures and
    times just what it would without, and which the engine package can change."""
    speculation, arm = spec.speculation, arm or base_arm(spec)
    verification = speculation.verification
    config: dict[str, Any] = {"method": METHODS[speculation.method]}
    if speculation.draft_model:
        config["model"] = speculation.draft_model.name
        if speculation.draft_model.revision:
            config["revision"] = speculation.draft_model.revision
    tokens = speculation.max_tokens if arm.scheduled else arm.tokens
    config["num_speculative_tokens"] = tokens
    if speculation.method == "NGram":
        config |= {"prompt_lookup_max": _NGRAM_LOOKUP_MAX, "prompt_lookup_min": _NGRAM_LOOKUP_MIN}
    bounds = limits(spec)
    if arm.scheduled:
        rows = startup_schedule(speculation, bounds)
        config["num_speculative_tokens_per_batch_size"] = [list(row) for row in rows]
    elif arm.capped and capped and spec.parallelism.data == 1:
        widest = max(bounds.max_num_seqs, bounds.widest_batch)
        config["num_speculative_tokens_per_batch_size"] = [[1, widest, tokens]]
    if verification.method in _VERIFICATION:
        config["rejection_sample_method"] = _VERIFICATION[verification.method]
    if verification.synthetic_acceptance:
        config["synthetic_acceptance_rates"] = list(verification.synthetic_acceptance[:tokens])
    if verification.draft_sampling:
        config["draft_sample_method"] = verification.draft_sampling.lower()
    if arm.kind is Kind.ADAPTIVE:
        config["enable_adaptive_verification"] = True
    return config


def startup_schedule(speculation: Speculation, bounds: Limits) -> list[tuple[int, int, int]]:
    """[(first, last, depth), …]: the safe depth at every batch but the widest few, and one row for each
    other candidate there. It is in force until a schedule file is read, and vLLM captures graphs for
    just the depths that occur in it. Rows must lie within max_num_seqs to count: where that is
    unknown, the least it can be decides. With fewer sequences than candidates the deepest are left out."""
    safe = safe_depth(speculation)
    others = [depth for depth in speculation.depths if depth != safe]
    others = sorted(others[: bounds.max_num_seqs - 1], reverse=True)
    first = bounds.max_num_seqs - len(others)
    rows = [(1, first, safe), *((first + i, first + i, k) for i, k in enumerate(others, 1))]
    if bounds.widest_batch > bounds.max_num_seqs:
        rows.append((bounds.max_num_seqs + 1, bounds.widest_batch, safe))
    return rows


def captured_depths(spec: SpeculativeDeploymentSpec, arm: Arm | None = None) -> tuple[int, ...]:
    """Depths that vLLM captures graphs for, ascending."""
    arm = arm or base_arm(spec)
    if not arm.scheduled:
        return (arm.tokens,)
    return tuple(sorted({k for _, _, k in startup_schedule(spec.speculation, limits(spec))}))


def capture_sizes(spec: SpeculativeDeploymentSpec, arm: Arm | None = None) -> tuple[int, ...]:
    """Planned capture sizes, in tokens; () where the engine captures nothing, and where vLLM's own serve:
    without drafts each batch size has its graph, and adaptive verification times itself at them."""
    arm, bounds = arm or base_arm(spec), limits(spec)
    if arm.kind in (Kind.NONE, Kind.ADAPTIVE):
        return ()
    return plan_captures(captured_depths(spec, arm), _admitted(bounds), bounds.capture_cap)


class Usable:
    """Which (depth, batch) pairs are worth choosing or exploring: within the token budget of a step,
    and in a captured graph where the engine has any."""

    def __init__(self, spec: SpeculativeDeploymentSpec) -> None:
        self.limits = limits(spec)
        depths, sizes = captured_depths(spec), capture_sizes(spec)
        self.graphs: list[tuple[int, Graphs]] = [
            (seqs, captured(sizes, depths, seqs, spec.speculation.max_tokens))
            for seqs in (_admitted(self.limits) if self.limits.capture_cap else ())
        ]

    def __call__(self, depth: int, batch: int) -> bool:
        if batch * (depth + 1) > self.limits.max_num_batched_tokens:
            return False
        return all(graphs.hit(depth, batch) for seqs, graphs in self.graphs if batch <= seqs)

    def full(self, depth: int, batch: int) -> bool:
        """Whether one request more would take a larger graph, whichever the engine turns out to have."""
        return bool(self.graphs) and all(graphs.full(depth, batch) for _, graphs in self.graphs)


def _admitted(bounds: Limits) -> tuple[int, ...]:
    return tuple(sorted({bounds.max_num_seqs, bounds.widest_batch}))
