"""vLLM's adaptive K: conditional acceptance by position and one profiled ratio of draft to target time.

Source: vLLM's pull request 44336 ("Adaptive K*: dynamic speculation length from per-position
acceptance rates"), its successor 47111 and their page "Adaptive K (Online)". Every ten steps an
exponential average (weight 0.3) of each position's conditional acceptance a_j takes in what was seen;
a position not seen yet has 0.85. Of all K the one with the highest

    goodput(K) = (1 + sum_i prod_{j<=i} a_j) / (1 + K·c + 0.002·batch)

is drafted, or none where that is below 1. c, the drafter's time over the target's, is profiled once;
0.1144 by default. One step in ten drafts a random K (epsilon-greedy). It works alone or under a table of
depth by batch size (`vllm_static`), whose depth is then the most that it drafts.

To its favour: c comes from the world's profile at its smallest batch, verification's share included;
K is only taken from the world's candidates, by goodput; its cooldown and its hysteresis of one step,
which are against noise within seconds, are left out (so it changes more often than it would).
"""

from __future__ import annotations

import statistics

from specpilot.estimate.counters import Counters
from specpilot.replay.peers.common import Schedules, Windows, cost_table, follow, load, survival
from specpilot.replay.peers.vllm_static import StaticSchedule
from specpilot.replay.policy import Setup
from specpilot_engine.protocol import Exploration, Schedule

ALPHA, EVERY = 0.3, 10.0  # of the average; steps it takes in at once
PRIOR = 0.85
DRAFT_RATIO = 0.1144
PER_REQUEST = 0.002
EPSILON = 0.1


class AdaptiveK:
    """The policy: goodput by a cost linear in K; `capped` by the static table."""

    def __init__(self, capped: bool = False) -> None:
        self._capped = capped

    def start(self, setup: Setup) -> Schedule:
        self._table = StaticSchedule().start(setup) if self._capped else None
        self._setup = setup
        self._rates = [PRIOR] * max(setup.depths)
        self._ratio = _draft_ratio(setup)
        self._looks = 0
        self._windows, self._schedules = Windows(), Schedules(setup)
        return self._schedules.by_batch(self._best)

    def look(self, counters: Counters, now: float) -> Schedule:  # noqa: ARG002
        window = self._windows.since_last(counters)
        if window is None:
            return self._schedules.by_batch(self._best, self._explore(self._best(1)))
        before = 1.0
        for j, (share, steps) in enumerate(survival(window)):
            conditional = min(share / before, 1.0) if before > 0 else 0.0
            self._rates[j] = follow(self._rates[j], conditional, ALPHA, steps / EVERY)
            before = share
        return self._schedules.by_batch(self._best, self._explore(self._best(round(load(window)))))

    def _explore(self, present: int) -> Exploration:
        """A random K a step is each of the others in turn, a scrape each, and at times the present one."""
        others = [k for k in self._setup.depths if k != present]
        if not others:
            return Exploration()
        self._looks += 1
        # Deepest first, as it shows all positions.
        depth = others[-(self._looks % len(others))]
        share = EPSILON * len(others) / len(self._setup.depths)
        return Exploration(share, depth, 1.0, self._setup.max_batch)

    def _best(self, batch: int) -> int:
        most = max(self._setup.depths) if self._table is None else self._table.tokens_at(batch)
        goodputs = {k: self._goodput(k, batch) for k in self._setup.depths if 0 < k <= most}
        best = max(goodputs, key=lambda k: goodputs[k], default=most)
        return 0 if 0 in self._setup.depths and goodputs.get(best, 0.0) < 1.0 else best

    def _goodput(self, depth: int, batch: int) -> float:
        tokens, alive = 1.0, 1.0
        for rate in self._rates[:depth]:
            alive *= rate
            tokens += alive
        return tokens / (1.0 + depth * self._ratio + PER_REQUEST * batch)


def capped() -> AdaptiveK:
    """Under the static table."""
    return AdaptiveK(capped=True)


def _draft_ratio(setup: Setup) -> float:
    """The drafter's time per token over the target's step, from the profile's smallest batch."""
    seconds = cost_table(setup)
    drafting = [k for k in setup.depths if k > 0]
    if seconds is None or 0 not in setup.depths or not drafting:
        return DRAFT_RATIO
    batch = min(p.batch for p in setup.profile)
    plain = seconds(0, batch)
    return max(statistics.median((seconds(k, batch) / plain - 1.0) / k for k in drafting), 0.0)
