"""What is wrong with an object that only rendering it shows; admission cannot see most of it."""

from __future__ import annotations

from collections.abc import Iterator

from specpilot.api.growth import MAX_BATCH
from specpilot.api.objects import SpeculativeDeployment
from specpilot.api.validate import Problem, Severity
from specpilot.api.vocabulary import Reason
from specpilot.plan import adaptive, flags
from specpilot.plan.env import environment_problems
from specpilot.plan.profiling import devices_wanted
from specpilot.plan.protect import split


def problems(sd: SpeculativeDeployment) -> list[Problem]:
    """Every part of the spec that `render` leaves out because it is the operator's, and what else will
    not work. What is rendered meanwhile is sound, so serving need not stop for them."""
    return list(_found(sd))


def _found(sd: SpeculativeDeployment) -> Iterator[Problem]:
    spec = sd.spec
    token = spec.model.token_secret is not None
    for path, message in environment_problems(spec.engine.env, "spec.engine.env", token):
        yield Problem(path, f"{path}: {message}")
    for refused in split(spec)[1]:
        yield Problem(refused.path, f"{refused.path}: {refused.message}", Reason.INVALID_POD_TEMPLATE)
    seqs = flags.integer(flags.parse(spec.engine.args), "--max-num-seqs") or 0
    if seqs > MAX_BATCH:
        yield Problem(
            "spec.engine.args",
            f"spec.engine.args sets --max-num-seqs above {MAX_BATCH}, up to which depths are tuned: lower it",
            severity=Severity.WARNING,
        )
    why = adaptive.problem(spec)
    if spec.speculation.verification.adaptive == "Always" and why:
        yield Problem(
            "spec.speculation.verification.adaptive",
            f"spec.speculation.verification.adaptive: Always is vLLM's adaptive verification, and {why}; until then"
            " depths are tuned as with Auto",
            Reason.NOT_SUPPORTED,
        )
    ranks = spec.parallelism.tensor * spec.parallelism.pipeline * spec.parallelism.data
    devices = devices_wanted(spec)
    if devices and sum(devices.values()) < ranks:
        asked = ", ".join(f"{count} {name}" for name, count in devices.items())
        yield Problem(
            "spec.parallelism",
            f"spec.parallelism needs {ranks} devices in a pod, but spec.podTemplate asks for {asked}: raise one"
            " or lower the other",
            severity=Severity.WARNING,
        )
