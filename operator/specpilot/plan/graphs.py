"""Which (depth, batch) pairs run in a captured CUDA graph, and the capture sizes that make all of them.

vLLM's model runner V2 captures, for each size s and each query length q = k+1 of the start-up
schedule, a graph of round_up(s, q) tokens for round_up(s, q)/q requests. At run time it looks at the
next captured token count alone, whatever its query length: with B requests at depth k the step has a
FULL graph only if the smallest captured count that holds B(k+1) tokens was also captured for q = k+1
(v1/worker/gpu/cudagraph_utils.py, `_init_candidates` and `dispatch`). V1 with a schedule runs
piecewise graphs, which any captured count up to the cap serves: what holds here holds there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import lcm

# Each graph costs start-up time and device memory; 0..7 captured in full would need 1,134 of them.
MAX_GRAPHS = 512
# Padding beyond this many tokens costs more than the graphs it saves.
_MAX_STRIDE = 64


@dataclass(frozen=True, slots=True)
class Graphs:
    """Captured token counts, ascending, each with the query lengths it was captured for."""

    counts: tuple[int, ...]
    query_lengths: tuple[frozenset[int], ...]

    def hit(self, depth: int, batch: int) -> bool:
        """Whether a decode step of `batch` requests at `depth` replays a FULL graph."""
        i = bisect_left(self.counts, batch * (depth + 1))
        return i < len(self.counts) and depth + 1 in self.query_lengths[i]

    def full(self, depth: int, batch: int) -> bool:
        """Whether a step of `batch` requests at `depth` fills its graph, so that one more takes a larger one."""
        tokens = batch * (depth + 1)
        return bisect_left(self.counts, tokens) < bisect_left(self.counts, tokens + depth + 1)

    def below(self, tokens: int) -> int:
        """The largest captured count below `tokens`, or 0."""
        i = bisect_left(self.counts, tokens)
        return self.counts[i - 1] if i else 0

    @property
    def total(self) -> int:
        """How many FULL graphs are captured."""
        return sum(len(lengths) for lengths in self.query_lengths)


def captured(sizes: Iterable[int], depths: Iterable[int], max_num_seqs: int, max_depth: int) -> Graphs:
    """What vLLM captures for capture `sizes` (tokens), the start-up schedule's `depths`, at most
    `max_num_seqs` requests and num_speculative_tokens = `max_depth`."""
    found: dict[int, set[int]] = {}
    ordered = sorted(set(sizes))
    for size in ordered:
        for q in sorted({depth + 1 for depth in depths}):
            count = -(-size // q) * q
            if count <= min(max_num_seqs * (max_depth + 1), ordered[-1]) and count // q <= max_num_seqs:
                found.setdefault(count, set()).add(q)
    counts = tuple(sorted(found))
    return Graphs(counts, tuple(frozenset(found[count]) for count in counts))


@lru_cache(maxsize=256)
def plan_captures(depths: tuple[int, ...], admitted: tuple[int, ...], cap: int) -> tuple[int, ...]:
    """Capture sizes, in tokens, with which every (depth, batch) of at most `cap` tokens hits a graph.

    `admitted`: the max_num_seqs that the engine may turn out to have, for each of which it must hold.
    Sizes that every query length divides serve all depths at once, so these are laid out first, about
    as densely as vLLM's own default (8 tokens apart, 16 above 256); what is still missed is added
    token count by token count. Depths whose query lengths share no such size stop at MAX_GRAPHS, from
    the small batches upwards. () without graphs (`cap` 0).
    """
    if cap <= 0:
        return ()
    lengths = sorted({depth + 1 for depth in depths})
    # Twice the widest decode, as vLLM's default: steps with a little prefill keep a piecewise graph.
    top = min(cap, 2 * max(admitted) * lengths[-1])
    sizes = {size for size in {1, 2, 4, top} | _grid(lengths, max(admitted), top) if size <= top}
    settled = 0  # what hits below cannot change any more: a new count only reaches down to the one before
    while True:
        maps = [captured(sizes, depths, seqs, max(depths)) for seqs in admitted]
        found = [
            _first_missed(m, lengths, seqs, settled, top) for m, seqs in zip(maps, admitted, strict=True)
        ]
        missed = min((tokens for tokens in found if tokens is not None), default=None)
        if missed is None or max(m.total for m in maps) >= MAX_GRAPHS:
            return tuple(sorted(sizes))
        settled = min(m.below(missed) for m in maps)
        sizes.add(missed)


def _grid(lengths: list[int], max_num_seqs: int, top: int) -> set[int]:
    common = lcm(*lengths)
    if common <= _MAX_STRIDE:
        fine, coarse = (-(-step // common) * common for step in (8, 16))
        return {*range(fine, min(top, 256) + 1, fine), *range(256 // fine * fine, top + 1, coarse)} - {0}
    counts = [1, 2, 4, *range(8, 32, 8), *range(32, max_num_seqs + 1, 16)]
    return {n * q for q in lengths for n in counts if n * q <= top}


def _first_missed(graphs: Graphs, lengths: list[int], max_num_seqs: int, above: int, top: int) -> int | None:
    best = top + 1
    for q in lengths:
        for tokens in range((above // q + 1) * q, min(best - 1, max_num_seqs * q) + 1, q):
            if not graphs.hit(q - 1, tokens // q):
                best = tokens
                break
    return best if best <= top else None
