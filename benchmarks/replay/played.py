"""Plays one world with one seed, and keeps what the criteria ask of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specpilot.replay.play import Played, oracle, play, setup
from specpilot.replay.product import Product
from specpilot.replay.registry import ORACLE, PRODUCT, contenders
from specpilot.replay.score import score, share_from
from specpilot.replay.truth import Truth
from specpilot.replay.world import Phase, World, read_world

WORLDS = Path(__file__).parents[1] / "worlds"
LATER = (300, 600)  # seconds from which a steady world's share is asked for
PART, SCRAPES = 0.01, 2  # of a phase: what may be lost of it whatever happens, and scrapes at the stale depth


@dataclass(frozen=True, slots=True)
class Task:
    """`everybody`: the peers and every fixed depth as well, not the product alone."""

    world: str
    seed: int
    everybody: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one task; shares are of the oracle's.

    `shares` of every policy over the whole run. Of the product: `later` from so many seconds on, `lost` in each
    phase and how much `may` be, the `moves` of its depth at the load (seconds), and the processor `seconds` it takes
    for an hour.
    """

    world: str
    seed: int
    shares: dict[str, float]
    later: dict[int, float]
    lost: tuple[float, ...]
    may: tuple[float, ...]
    moves: tuple[float, ...]
    seconds: float


def see(task: Task) -> Seen:
    """Raises WorldError and ScheduleRefused."""
    world, seed = read_world(WORLDS / f"{task.world}.json"), task.seed
    best = oracle(world, seed)
    begun = time.process_time()
    ours = play(world, Product(), seed)
    spent = time.process_time() - begun
    found = score(world, ours, best)
    shares = {PRODUCT: found.oracle_share}
    for name, policy in contenders(world).items() if task.everybody else ():
        if policy is not None and name not in (ORACLE, PRODUCT):
            shares[name] = score(world, play(world, policy(), seed), best).oracle_share
    return Seen(
        task.world,
        seed,
        shares,
        later(world, ours, best),
        tuple(1 - phase.oracle_share for phase in found.phases),
        allowances(world, seed),
        ours.moves,
        spent * 3600 / world.seconds,
    )


def later(world: World, ours: Played, best: Played) -> dict[int, float]:
    """Share from each of LATER on; nothing of an open loop, whose measure is latency."""
    if any(phase.rate is not None for phase in world.phases):
        return {}
    return {at: share_from(world, ours, best, at) for at in LATER if at < world.seconds}


def allowances(world: World, seed: int) -> tuple[float, ...]:
    """What may be lost of each phase: a hundredth of it, and two scrapes at the depth that was right before.

    In the first phase that is the depth the product begins with. An open loop gets no scrapes: what a wrong depth
    costs of latency depends on what waits.
    """
    truth = Truth(world)
    stale = Product().start(setup(world, seed))
    may = []
    for phase in world.phases:
        may.append(
            PART + SCRAPES * world.scrape_seconds / phase.seconds * _stale_loss(truth, phase, stale.tokens_at)
        )
        stale = truth.best(phase)
    return tuple(may)


def _stale_loss(truth: Truth, phase: Phase, depth_at: Callable[[int], int]) -> float:
    if not phase.requests:
        return 0.0
    goodput = truth.goodput(phase)[:, phase.requests - 1]
    return float(1 - goodput[truth.depths.index(depth_at(phase.requests))] / goodput.max())
