"""How well policies did, as shares of the oracle's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specpilot.replay.play import PhasePlayed, Played
from specpilot.replay.world import World


@dataclass(frozen=True, slots=True)
class PhaseScore:
    """`settle_seconds` is None where the oracle's rate was never reached."""

    tokens: int
    oracle_share: float
    settle_seconds: float | None


@dataclass(frozen=True, slots=True)
class Score:
    """One policy in one world; shares of 1 are the oracle's."""

    phases: tuple[PhaseScore, ...]
    oracle_share: float
    changes: int

    @property
    def tokens(self) -> int:
        """Emitted over the whole world."""
        return sum(phase.tokens for phase in self.phases)

    @property
    def worst_phase_share(self) -> float:
        """The share of the phase that went worst."""
        return min(phase.oracle_share for phase in self.phases)

    def as_json(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "oracle_share": self.oracle_share,
            "worst_phase_share": self.worst_phase_share,
            "changes": self.changes,
            "phases": [
                {"tokens": p.tokens, "oracle_share": p.oracle_share, "settle_seconds": p.settle_seconds}
                for p in self.phases
            ],
        }


def score(world: World, played: Played, oracle: Played) -> Score:
    """Closed loops by tokens emitted, open ones by mean request latency.

    Over the world the phases of each kind are added up, and the two kinds weigh by their seconds.
    """
    pairs = list(zip(world.phases, played.phases, oracle.phases, strict=True))
    total = 0.0
    for measure, of_kind in (
        (_tokens, [pair for pair in pairs if pair[0].rate is None]),
        (_latency, [pair for pair in pairs if pair[0].rate is not None]),
    ):
        seconds = sum(phase.seconds for phase, _, _ in of_kind)
        total += seconds * measure([(ours, best) for _, ours, best in of_kind])
    phases = tuple(
        PhaseScore(ours.tokens, (_tokens if phase.rate is None else _latency)([(ours, best)]), ours.settled)
        for phase, ours, best in pairs
    )
    return Score(phases, total / world.seconds, played.changes)


def share_from(world: World, played: Played, oracle: Played, second: float) -> float:
    """Share of the oracle's tokens from the first scrape at or after `second` on; for closed loops."""
    mark = math.ceil(second / world.scrape_seconds)
    ours, best = (sum(phase.tokens for phase in one.phases) - one.emitted[mark] for one in (played, oracle))
    return ours / best if best else 1.0


Pairs = Sequence[tuple[PhasePlayed, PhasePlayed]]  # ours, the oracle's


def _tokens(pairs: Pairs) -> float:
    best = sum(oracle.tokens for _, oracle in pairs)
    return sum(ours.tokens for ours, _ in pairs) / best if best else 1.0


def _latency(pairs: Pairs) -> float:
    """Everybody meets the same arrivals, so mean latencies compare as request-seconds do."""
    ours = sum(played.stayed for played, _ in pairs)
    return sum(oracle.stayed for _, oracle in pairs) / ours if ours else 1.0
