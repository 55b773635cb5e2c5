"""What a deployment's spec and status say that bears on its depth, for the head of an explanation. Pure."""

from __future__ import annotations

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.api.objects import SpeculativeDeployment
from specpilot.decide.caps import in_words
from specpilot.explain.block import Drafts, Verification
from specpilot.explain.subject import Why
from specpilot.plan.limits import limits
from specpilot_engine.protocol import Step

_MODES = {"Observe": "nothing is decided or changed", "Recommend": "decisions are shown and not made"}
_BAD_WHEN_TRUE = {"Degraded", "Progressing"}


def facts(sd: SpeculativeDeployment) -> tuple[tuple[str, str], ...]:
    """(what, how it stands), from the status that the operator has written."""
    found = []
    if (mode := sd.spec.tuning.mode) in _MODES:
        found.append(("mode", f"{mode}: {_MODES[mode]}"))
    status = sd.status
    wanted, runs = (s.desired, s.effective) if (s := status.speculation) else (None, None)
    if wanted and runs and runs.pods:
        found.append(("acknowledged", f"{runs.pods} ready pods run generation {wanted.generation}"))
    if arm := status.arm:
        better = f"; {arm.better} is predicted to be better" if arm.better else ""
        found.append(("arm", f"{arm.in_force}{better}" + (f" ({arm.message})" if arm.message else "")))
    if wanted and wanted.adaptive and (in_force := (runs or wanted).schedule):
        said = in_words([Step(step.up_to, step.tokens) for step in in_force])
        found.append(("drafts", f"vLLM sizes what is verified, of {said}; the depths below are a schedule's"))
    if status.profile and status.profile.name:
        progress = f", {status.profile.progress} points" if status.profile.progress else ""
        at = f", measured {status.profile.measured_at}" if status.profile.measured_at else ""
        found.append(("profile", f"{status.profile.name}{progress}{at}"))
    if last := status.last_decision:
        gains = [f"predicted {last.predicted_gain}"] if last.predicted_gain else []
        gains += [f"measured {last.measured_gain}"] if last.measured_gain else []
        told = f" ({', '.join(gains)})" if gains else ""
        found.append(("last decision", f"{last.time} {last.reason}: {last.message}{told}"))
    return tuple(found)


def troubles(sd: SpeculativeDeployment) -> tuple[str, ...]:
    """Conditions that are not as they should be, and pods that do not run what is wanted."""
    found = [
        f"{c.type} is {c.status} ({c.reason}): {c.message}".removesuffix(": ")
        for c in sd.status.conditions
        if c.status != ("False" if c.type in _BAD_WHEN_TRUE else "True")
    ]
    wanted, runs = (s.desired, s.effective) if (s := sd.status.speculation) else (None, None)
    if wanted and runs and runs.generation != wanted.generation:
        found.append(
            f"the pods run generation {runs.generation}, generation {wanted.generation} is wanted: not"
            " acknowledged yet"
        )
    return tuple(found)


def verification(spec: SpeculativeDeploymentSpec) -> Verification:
    """How its engines verify. vLLM drafts greedily unless told otherwise, and n-grams have one token each."""
    asked = spec.speculation.verification
    drafts = Drafts.SAMPLED if asked.draft_sampling == "Probabilistic" else Drafts.GREEDY
    if spec.speculation.method == "NGram":
        drafts = Drafts.NGRAM
    return Verification(asked.method == "Block", drafts, asked.method == "Synthetic")


def why_not(spec: SpeculativeDeploymentSpec) -> Why:
    """In a word, why a depth that the plan does not allow at a batch size is out."""
    budget = limits(spec).max_num_batched_tokens
    return lambda depth, batch: "no room" if batch * (depth + 1) > budget else "no graph"
