"""Who plays: the product, the peers, every fixed depth and the oracle."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from specpilot.replay.engine import ScheduleRefused
from specpilot.replay.peers import PEERS
from specpilot.replay.play import oracle, play
from specpilot.replay.policy import Fixed, Policy
from specpilot.replay.product import Options, Product
from specpilot.replay.score import Score, score
from specpilot.replay.world import World, WorldError

ORACLE, PRODUCT, FIXED = "oracle", "specpilot", "fixed-"
POLICIES: dict[str, Callable[[], Policy]] = {PRODUCT: Product, **PEERS}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One world, played by every policy asked for."""

    world: World
    seed: int
    scores: dict[str, Score]

    def as_json(self) -> dict[str, object]:
        """The document of docs/worlds.md."""
        scores = {name: score.as_json() for name, score in self.scores.items()}
        return {"world": self.world.name, "seed": self.seed, "policies": scores}


def contenders(
    world: World, wanted: Sequence[str] = (), options: Options | None = None
) -> dict[str, Callable[[], Policy] | None]:
    """Policies by name, all or those `wanted`; the oracle is None. Raises WorldError for unknown names."""
    known: dict[str, Callable[[], Policy] | None] = {ORACLE: None, **POLICIES}
    if options is not None:
        known[PRODUCT] = partial(Product, options)
    known.update((f"{FIXED}{k}", partial(Fixed, k)) for k in world.depths)
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
            raise WorldError(f"{name} is not a policy that can play {world.name}: {hint}")
    return {name: known[name] for name in wanted or known}


def compare(
    world: World,
    seed: int = 0,
    wanted: Sequence[str] = (),
    options: Options | None = None,
    told: Callable[[str, float], None] = lambda _name, _seconds: None,
) -> Outcome:
    """Play every policy in one world; `told` hears of the policy playing and the seconds it has played.

    Raises WorldError for names that cannot play and ScheduleRefused for a policy that leaves the
    candidates.
    """
    names = contenders(world, wanted, options)
    best = oracle(world, seed, partial(told, ORACLE))
    scores = {}
    for name, policy in names.items():
        try:
            played = best if policy is None else play(world, policy(), seed, partial(told, name))
        except ScheduleRefused as e:
            raise ScheduleRefused(f"{name} {e} in {world.name}") from None
        scores[name] = score(world, played, best)
    return Outcome(world, seed, scores)
