"""vLLM's dynamic speculative decoding: a table of depth by batch size, written once by its user.

Source: vLLM's documentation, "Dynamic Speculative Decoding" (`num_speculative_tokens_per_batch_size`,
docs.vllm.ai/en/latest/features/speculative_decoding). Users benchmark the step times of each depth at
each batch size and choose by the acceptance that they assume; nothing is measured afterwards.

To its favour: the table is made at every batch size, from the same profile that ours is given, with 0
among the depths. The assumed acceptance is 0.7 at each slot, between chat and code. Without a profile
it is the documentation's example.
"""

from __future__ import annotations

from specpilot.estimate.counters import Counters
from specpilot.replay.peers.common import Schedules, cost_table, nearest
from specpilot.replay.policy import Setup
from specpilot_engine.protocol import Schedule

ASSUMED = 0.7
EXAMPLE = ((64, 3), (128, 1))  # [[1, 64, 3], [65, 128, 1], [129, …, 0]]


class StaticSchedule:
    """The policy: the table of the first moment, for ever."""

    def start(self, setup: Setup) -> Schedule:
        seconds = cost_table(setup)

        def by_profile(batch: int) -> int:
            assert seconds is not None
            goodput = {k: _length(k) / seconds(k, batch) for k in setup.depths}
            return max(goodput, key=lambda k: goodput[k])

        def by_example(batch: int) -> int:
            return nearest(next((k for last, k in EXAMPLE if batch <= last), 0), setup.depths)

        self._schedule = Schedules(setup).by_batch(by_profile if seconds else by_example)
        return self._schedule

    def look(self, counters: Counters, now: float) -> Schedule:  # noqa: ARG002
        return self._schedule


def _length(depth: int) -> float:
    """Accepted length: 1 + 0.7 + 0.7² + …"""
    return sum(ASSUMED**j for j in range(depth + 1))
