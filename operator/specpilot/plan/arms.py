"""Which arms the engines of a spec can be restarted with."""

from __future__ import annotations

import math

from specpilot.api.deployment import SpeculativeDeploymentSpec
from specpilot.decide.arm import NONE, SCHEDULE, Arm, Kind
from specpilot.plan import adaptive, user_env
from specpilot.plan.arguments import base_arm
from specpilot.plan.env import CONTEXT_VARIABLE
from specpilot.plan.limits import limits

_LEAST_CONTEXT, _MOST_CONTEXT = 1024, 2**20
_BLOCK_DRAFTERS = ("DSpark", "DFlash")


def arms(spec: SpeculativeDeploymentSpec, context: float | None = None) -> tuple[Arm, ...]:
    """All that a deployment may be restarted with, the spec's own among them; `context`: mean tokens of
    context of the requests that run, None where unknown.

    Depths that some checkpoints of a method refuse are left out: block drafters draft their whole block, and
    multi-token prediction beyond a module's own depth only multiples of it, which nothing but the checkpoint
    tells.
    """
    base = base_arm(spec)
    if not base.scheduled:
        return (base,)
    speculation = spec.speculation
    depths = [k for k in speculation.depths if k > 0]
    if speculation.method in _BLOCK_DRAFTERS:
        depths = [k for k in depths if k == speculation.max_tokens]
    elif speculation.method == "MTP":
        depths = [k for k in depths if k in (1, speculation.max_tokens)]
    found = [SCHEDULE, NONE, *(Arm(Kind.STATIC, k) for k in depths)]
    if speculation.verification.adaptive == "Auto" and not adaptive.problem(spec):
        found.append(Arm(Kind.ADAPTIVE, speculation.max_tokens, _context(spec, context)))
    return tuple(found)


def _context(spec: SpeculativeDeploymentSpec, context: float | None) -> int:
    """The traffic's, as a power of two so that it holds for a while; 0 (vLLM's default) where it is unknown
    or the user sets it."""
    if not context or CONTEXT_VARIABLE in user_env.variables(spec):
        return 0
    most = limits(spec).max_model_len or _MOST_CONTEXT
    return min(max(1 << round(math.log2(max(context, 1.0))), _LEAST_CONTEXT), most)
