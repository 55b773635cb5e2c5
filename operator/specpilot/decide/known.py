"""What a memory and a profile make of every depth at every batch size. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from specpilot.decide.goodput import Allowed, Landscape, landscape
from specpilot.decide.memory import Memory
from specpilot.estimate.cost import Costs
from specpilot.estimate.profile import CostPrior
from specpilot.estimate.survival import believe
from specpilot_engine.protocol import ModelShape, ProfilePoint

# A profile and a shape are the same at every tick.
_prior = lru_cache(maxsize=256)(CostPrior)


def prior_of(profile: Sequence[ProfilePoint], shape: ModelShape | None = None) -> CostPrior:
    """Step times as a profile has them; where it has none, estimated by the model's shape, if that is known."""
    return _prior(tuple(profile), shape)


def known(
    memory: Memory, prior: CostPrior, depths: tuple[int, ...], max_batch: int, allowed: Allowed
) -> Landscape:
    """Beliefs at the context of the present load."""
    costs = Costs(memory.cost, prior, depths, max_batch, memory.load.context)
    land = landscape(depths, believe(memory.survival, depths[-1]), costs, allowed)
    return replace(land, noise=memory.cost.dispersion.value)
