"""Counters of one engine: clean steps by (depth, batch bucket), acceptance by position, recent samples.

Written by the engine's thread alone, read by the export server's. Its copies of lists and tables are atomic under
the GIL; a cell's fields are read one by one, so that a step may be in some of them and not yet in others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from specpilot_engine.protocol import StepSample, bucket, exported_cells, exported_positions
from specpilot_engine.trial import TrialRun
from specpilot_engine.trim import Trimmer

RING = 4096  # samples kept for STEPS_PATH


@dataclass(slots=True)
class Cell:
    """Totals over the clean steps of one depth in one batch bucket."""

    steps: int = 0
    seconds: float = 0.0
    requests: int = 0
    emitted: int = 0
    context: float = 0.0
    last: int = 0  # sequence number of its latest step


class Recorder:
    """What an engine whose deepest draft is `max_tokens` has done since it started.

    `draft_lengths[d]` counts drafts of d tokens that were verified and `accepted_lengths[a]` those of
    which a were accepted: counting whole drafts keeps the step path at one increment a request, and
    the exported counts by position are their tail sums.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.draft_lengths = [0] * (max_tokens + 1)
        self.accepted_lengths = [0] * (max_tokens + 1)
        self.all_steps = 0
        self.explored_steps = 0
        self.exploration_share = 0.0
        self.trial: TrialRun | None = None  # of the schedule in force
        self.trimmer: Trimmer | None = None
        self._cells: dict[tuple[int, int], Cell] = {}
        self._ring: deque[tuple[int, int, int, float, float]] = deque(maxlen=RING)
        self._seq = 0

    def clean_step(self, tokens: int, batch: int, context: int, seconds: float, emitted: int) -> None:
        """Count one clean decode step: `batch` requests with `context` tokens among them."""
        self._seq += 1
        key = tokens, bucket(batch)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = Cell()
        cell.steps += 1
        cell.seconds += seconds
        cell.requests += batch
        cell.emitted += emitted
        cell.context += context
        cell.last = self._seq
        self._ring.append((self._seq, tokens, batch, context / batch, seconds))

    def exported_cells(self) -> dict[tuple[int, int], Cell]:
        """Totals by (depth, batch bucket) of the most recently active cells.

        Only what is exported is bounded: a cell that comes back goes on from its own totals.
        """
        cells = self._cells.copy()
        recent = sorted(cells, key=lambda key: cells[key].last, reverse=True)
        return {key: cells[key] for key in sorted(recent[: exported_cells(self.max_tokens)])}

    @property
    def positions(self) -> int:
        """How many draft positions are exported."""
        return exported_positions(self.max_tokens)

    def drafted(self) -> list[int]:
        """Drafts that had each exported position (0-based)."""
        return _tails(self.draft_lengths, self.positions)

    def accepted(self) -> list[int]:
        """Drafts accepted at each exported position (0-based)."""
        return _tails(self.accepted_lengths, self.positions)

    def samples(self, since: int = 0) -> list[StepSample]:
        """Recent clean steps later than sequence number `since`, oldest first."""
        return [StepSample(*row) for row in list(self._ring) if row[0] > since]


def _tails(lengths: list[int], positions: int) -> list[int]:
    counts = list(lengths)
    return [sum(counts[position + 1 :]) for position in range(positions)]
