"""What pods were planned by before revision r3: an operator that understands more of a spec would plan the same spec
in another way, and so restart engines that nobody touched."""

from __future__ import annotations

from collections.abc import Iterator

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.plan import flags

# By no prefix, and no optimization level. What is read since then does not belong here.
_UNDERSTOOD = frozenset(
    {
        *("--max-num-seqs", "--max-num-batched-tokens", "--max-model-len", "--compilation-config"),
        *("--enforce-eager", "--no-enforce-eager", "--enable-lora", "--no-enable-lora", "--shutdown-timeout"),
    }
)


def as_at_first(spec: SpeculativeDeploymentSpec) -> SpeculativeDeploymentSpec:
    """To plan by only, never to be rendered itself: without the arguments that were not understood, and without the
    variables of spec.podTemplate, which were not looked at."""
    pod = (spec.pod_template or {}).get("spec") or {}
    placement = {field: part for field, part in pod.items() if field != "containers"}
    engine = spec.engine.model_copy(update={"args": list(_understood(spec.engine.args))})
    return spec.model_copy(update={"engine": engine, "pod_template": {"spec": placement}})


def _understood(args: list[str]) -> Iterator[str]:
    for flag in flags.parse(args):
        if flag.name in _UNDERSTOOD:
            name = f"{flag.name}.{flag.key}" if flag.key else flag.name
            first, *more = flag.values or ("",)
            yield from (f"{name}={first}" if flag.values else name, *more)
