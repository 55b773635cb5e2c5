"""What one object must not say about itself, each rule in CEL and in Python side by side.

The models carry the CEL into the CRDs, so the API server refuses at admission; `validate` runs the
Python, for machines without an API server. A test holds the two against each other on a real one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specpilot.api import owned
from specpilot.api.base import Policy, seconds
from specpilot.api.vocabulary import (
    ENGINE_CONTAINER,
    LABEL_COMPONENT,
    LABEL_INSTANCE,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_PART_OF,
    LABEL_VERSION,
    Reason,
)

if TYPE_CHECKING:
    from specpilot.api.deployment import (
        Cache,
        Metrics,
        Objective,
        Parallelism,
        Profiling,
        Speculation,
        SpeculativeDeploymentSpec,
        Verification,
    )

NAME_LIMIT = 52  # leaves room for the longest suffix of a child within 63 characters
LONGEST_INTERVAL = 300.0  # seconds
NEEDS_DRAFT_MODEL = ("Eagle", "Eagle3", "DraftModel")
TAKES_DRAFT_MODEL = (*NEEDS_DRAFT_MODEL, "DSpark", "DFlash", "MTP")
OWNED_LABELS = (LABEL_NAME, LABEL_INSTANCE, LABEL_COMPONENT, LABEL_PART_OF, LABEL_MANAGED_BY, LABEL_VERSION)
_DNS_LABEL = "^[a-z]([-a-z0-9]*[a-z0-9])?$"

NAME: tuple[Policy[str], ...] = (
    Policy(
        "metadata.name",
        f"metadata.name must be at most {NAME_LIMIT} characters of a-z, 0-9 and -, begin with a letter and not"
        " end with -: Services and Jobs are named after it; choose another name",
        f"self.metadata.name.size() <= {NAME_LIMIT} && self.metadata.name.matches('{_DNS_LABEL}')",
        lambda name: len(name) > NAME_LIMIT or not re.fullmatch(_DNS_LABEL, name),
    ),
)

CACHE: tuple[Policy[Cache], ...] = (
    Policy(
        "spec.model.cache",
        "spec.model.cache takes persistentVolumeClaim or hostPath, not both: remove one",
        "!(has(self.persistentVolumeClaim) && has(self.hostPath))",
        lambda c: c.persistent_volume_claim is not None and c.host_path is not None,
    ),
)


def _owned(group: owned.Group) -> Policy[Sequence[str]]:
    return Policy(
        "spec.engine.args", group.message, owned.cel(group), lambda args: owned.sets_any(group, args)
    )


ARGS: tuple[Policy[Sequence[str]], ...] = (
    Policy(
        "spec.engine.args",
        "spec.engine.args must begin with a flag and not contain a bare --: the model goes into spec.model.name",
        "self.size() == 0 || (self[0].startsWith('-') && !('--' in self))",
        lambda args: bool(args) and (not args[0].startswith("-") or "--" in args),
    ),
    *(_owned(group) for group in owned.GROUPS),
    Policy(
        "spec.engine.args",
        "spec.engine.args sets captured graph sizes inside a configuration: remove them and let the operator"
        " plan them from spec.speculation.candidates",
        f"!self.exists(a, a.matches('{owned.CAPTURE_SIZES}'))",
        lambda args: any(re.search(owned.CAPTURE_SIZES, a) for a in args),
    ),
)

ENV: tuple[Policy[Sequence[Mapping[str, Any]]], ...] = (
    Policy(
        "spec.engine.env",
        "spec.engine.env has a variable twice: remove one",
        "self.all(e, self.exists_one(f, f.name == e.name))",
        lambda env: len({e["name"] for e in env}) < len(env),
    ),
    Policy(
        "spec.engine.env",
        "spec.engine.env sets a SPECPILOT_ variable, which the operator sets itself: remove it",
        "!self.exists(e, e.name.startsWith('SPECPILOT_') && e.name != 'SPECPILOT_SIM')",
        lambda env: any(e["name"].startswith("SPECPILOT_") and e["name"] != "SPECPILOT_SIM" for e in env),
    ),
    Policy(
        "spec.engine.env",
        "spec.engine.env has a variable with both value and valueFrom: keep one",
        "!self.exists(e, has(e.value) && has(e.valueFrom))",
        lambda env: any("value" in e and "valueFrom" in e for e in env),
    ),
)

PARALLELISM: tuple[Policy[Parallelism], ...] = (
    Policy(
        "spec.parallelism.nodes",
        "spec.parallelism.nodes above 1 is not supported yet: set it to 1",
        "self.nodes == 1",
        lambda p: p.nodes != 1,
        at=".nodes",
        reason=Reason.NOT_SUPPORTED,
    ),
)


def _engine_containers(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    containers = (template.get("spec") or {}).get("containers") or []
    return [c for c in containers if c.get("name") == ENGINE_CONTAINER]


def _labels(template: Mapping[str, Any]) -> Mapping[str, str]:
    return (template.get("metadata") or {}).get("labels") or {}


POD_TEMPLATE: tuple[Policy[Mapping[str, Any]], ...] = (
    Policy(
        "spec.podTemplate.spec.containers",
        f"spec.podTemplate sets image, command or args of the container {ENGINE_CONTAINER}: remove them and use"
        " spec.engine.image and spec.engine.args",
        "!has(self.spec) || !has(self.spec.containers) || !self.spec.containers.exists(c,"
        f" c.name == '{ENGINE_CONTAINER}' && (has(c.image) || has(c.command) || has(c.args)))",
        lambda t: any(key in c for c in _engine_containers(t) for key in ("image", "command", "args")),
    ),
    Policy(
        "spec.podTemplate.metadata.labels",
        "spec.podTemplate.metadata.labels sets a recommended label (app.kubernetes.io/name, instance, component,"
        " part-of, managed-by or version), which the operator owns: remove it",
        "!has(self.metadata) || !has(self.metadata.labels) ||"
        f" !{list(OWNED_LABELS)}.exists(l, l in self.metadata.labels)",
        lambda t: any(label in _labels(t) for label in OWNED_LABELS),
    ),
)

VERIFICATION: tuple[Policy[Verification], ...] = (
    Policy(
        "spec.speculation.verification.syntheticAcceptance",
        "spec.speculation.verification.syntheticAcceptance goes with method Synthetic, one rate per token:"
        " set both or neither",
        "(self.method == 'Synthetic') == has(self.syntheticAcceptance)",
        lambda v: (v.method == "Synthetic") != (v.synthetic_acceptance is not None),
    ),
    Policy(
        "spec.speculation.verification.syntheticAcceptance",
        "spec.speculation.verification.syntheticAcceptance must not rise: each rate is the chance that all"
        " tokens up to it are accepted",
        "!has(self.syntheticAcceptance) || self.syntheticAcceptance.map(r, 0.0 - r).isSorted()",
        lambda v: list(v.synthetic_acceptance or []) != sorted(v.synthetic_acceptance or [], reverse=True),
    ),
)

CANDIDATES: tuple[Policy[Sequence[int]], ...] = (
    Policy(
        "spec.speculation.candidates",
        "spec.speculation.candidates has a depth twice: remove one",
        "self.all(c, self.exists_one(d, d == c))",
        lambda c: len(set(c)) != len(c),
    ),
)

SPECULATION: tuple[Policy[Speculation], ...] = (
    Policy(
        "spec.speculation.verification.adaptive",
        "spec.speculation.verification.adaptive: Always is vLLM's adaptive verification, which needs the confidence"
        " of method DSpark: use that or set adaptive to Auto or Never",
        "self.verification.adaptive != 'Always' || self.method == 'DSpark'",
        lambda s: s.verification.adaptive == "Always" and s.method != "DSpark",
        at=".verification.adaptive",
        reason=Reason.NOT_SUPPORTED,
    ),
    Policy(
        "spec.speculation.candidates",
        "spec.speculation.candidates has a depth above spec.speculation.maxTokens: lower it or raise maxTokens",
        "!has(self.candidates) || self.candidates.all(c, c <= self.maxTokens)",
        lambda s: any(c > s.max_tokens for c in s.candidates or ()),
    ),
    Policy(
        "spec.speculation.maxTokens",
        "spec.speculation.maxTokens must be at least 1: for no speculation use method None",
        "self.method == 'None' || self.maxTokens >= 1",
        lambda s: s.method != "None" and s.max_tokens < 1,
        at=".maxTokens",
    ),
    Policy(
        "spec.speculation.draftModel",
        f"spec.speculation.draftModel is required by method {', '.join(NEEDS_DRAFT_MODEL)}: set its name",
        f"!(self.method in {list(NEEDS_DRAFT_MODEL)}) || has(self.draftModel)",
        lambda s: s.method in NEEDS_DRAFT_MODEL and s.draft_model is None,
    ),
    Policy(
        "spec.speculation.draftModel",
        "spec.speculation.draftModel is not used by this method: remove it",
        f"!has(self.draftModel) || self.method in {list(TAKES_DRAFT_MODEL)}",
        lambda s: s.draft_model is not None and s.method not in TAKES_DRAFT_MODEL,
    ),
    Policy(
        "spec.speculation.verification.syntheticAcceptance",
        "spec.speculation.verification.syntheticAcceptance needs one rate for each of maxTokens: add or remove rates",
        "!has(self.verification.syntheticAcceptance) ||"
        " self.verification.syntheticAcceptance.size() == self.maxTokens",
        lambda s: (
            s.verification.synthetic_acceptance is not None
            and len(s.verification.synthetic_acceptance) != s.max_tokens
        ),
    ),
)

OBJECTIVE: tuple[Policy[Objective], ...] = (
    Policy(
        "spec.tuning.objective.maxInterTokenLatency",
        "spec.tuning.objective.maxInterTokenLatency must be above zero: set it or remove it",
        "!has(self.maxInterTokenLatency) || duration(self.maxInterTokenLatency) > duration('0s')",
        lambda o: o.max_inter_token_latency is not None and seconds(o.max_inter_token_latency) <= 0,
    ),
)

# On the field itself: an object that was stored before a rule may still change whatever else it has.
INTERVAL: tuple[Policy[str], ...] = (
    Policy(
        "spec.tuning.interval",
        "spec.tuning.interval must be at least 1s: raise it, since shorter windows hold too few steps",
        "duration(self) >= duration('1s')",
        lambda interval: seconds(interval) < 1,
    ),
    Policy(
        "spec.tuning.interval",
        "spec.tuning.interval must be at most 5m, as which a longer one that was stored before counts: set 5m or less",
        f"duration(self) <= duration('{LONGEST_INTERVAL:.0f}s')",
        lambda interval: seconds(interval) > LONGEST_INTERVAL,
        younger=True,
    ),
)

PROFILING: tuple[Policy[Profiling], ...] = (
    Policy(
        "spec.profiling.deadline",
        "spec.profiling.deadline must be above zero: to measure nothing use policy Never",
        "duration(self.deadline) > duration('0s')",
        lambda p: seconds(p.deadline) <= 0,
        at=".deadline",
    ),
)

METRICS: tuple[Policy[Metrics], ...] = (
    Policy(
        "spec.metrics.prometheus",
        "spec.metrics.prometheus is required by source Prometheus: name an endpoint of the operator's"
        " configuration",
        "self.source != 'Prometheus' || has(self.prometheus)",
        lambda m: m.source == "Prometheus" and m.prometheus is None,
    ),
)


_NOT_ADAPTIVE = ("--enforce-eager", "--enforce_eager", "--enable-lora", "--enable_lora")


def _always(s: SpeculativeDeploymentSpec) -> bool:
    return s.speculation.verification.adaptive == "Always"


SPEC: tuple[Policy[SpeculativeDeploymentSpec], ...] = (
    Policy(
        "spec.parallelism.pipeline",
        "spec.parallelism.pipeline must be 1 where spec.speculation.verification.adaptive is Always: vLLM verifies"
        " adaptively in one pipeline stage only; lower it or set adaptive to Auto",
        "self.speculation.verification.adaptive != 'Always' || self.parallelism.pipeline == 1",
        lambda s: _always(s) and s.parallelism.pipeline != 1,
        reason=Reason.NOT_SUPPORTED,
    ),
    Policy(
        "spec.engine.args",
        "spec.engine.args has --enforce-eager or --enable-lora, with which vLLM refuses adaptive verification:"
        " remove it or set spec.speculation.verification.adaptive to Auto",
        "self.speculation.verification.adaptive != 'Always' ||"
        f" !self.engine.args.exists(a, a in {list(_NOT_ADAPTIVE)})",
        lambda s: _always(s) and any(a in _NOT_ADAPTIVE for a in s.engine.args),
        reason=Reason.NOT_SUPPORTED,
    ),
    Policy(
        "spec.profiling.grid.tokens",
        "spec.profiling.grid.tokens has a depth above spec.speculation.maxTokens: lower it or raise maxTokens",
        "!has(self.profiling.grid.tokens) ||"
        " self.profiling.grid.tokens.all(t, t <= self.speculation.maxTokens)",
        lambda s: any(t > s.speculation.max_tokens for t in s.profiling.grid.tokens or ()),
    ),
)
