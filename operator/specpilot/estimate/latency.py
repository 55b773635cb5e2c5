"""What vLLM's own series tell of steps and drafts, where the engine package does not."""

from __future__ import annotations

from specpilot.estimate.constants import MIXED_DEPTHS, PROMPT_HEAVY
from specpilot.estimate.counters import Cell, Counters, TrialCount, increase
from specpilot.estimate.discards import Discard, Discarded
from specpilot_engine.protocol import bucket


def of_one_depth(before: Counters, after: Counters) -> bool:
    """Whether all steps between two readings drafted about as deep, so that their latency is that of a depth: no trial
    ran, hardly any explored, and either there are drafts of what was explored alone, or of all requests and one depth.
    A drafter that proposes what it finds (n-gram) has drafts of some requests only."""
    trials = before.trial or TrialCount(), after.trial or TrialCount()
    if trials[0].generation != trials[1].generation or any(t.running for t in trials):
        return False
    share, explored, mean = _with_drafts(before, after), _explored(before, after), _mean_depth(before, after)
    if explored > MIXED_DEPTHS:
        return False
    finds = after.shape is not None and after.shape.draft == "none"
    whole = abs(mean - round(mean)) <= MIXED_DEPTHS and (finds or share >= 1 - MIXED_DEPTHS)
    return whole or _explored_alone(share, explored)


def cells(before: Counters, after: Counters) -> dict[tuple[int, int], Cell] | Discarded:
    """One cell at (depth, bucket's upper edge), from request-weighted means; none where there was no whole step.

    vLLM observes one inter-token latency per request and engine output.
    """
    seconds = after.at - before.at
    outputs = increase(before.latency_count, after.latency_count)
    waited = increase(before.latency_sum, after.latency_sum)
    if not outputs or not waited:
        return Discarded(Discard.IDLE, f"no decoding in {seconds:.0f} s")
    preempted = increase(before.preemptions, after.preemptions) or 0.0
    if preempted:
        return Discarded(Discard.PREEMPTED, f"{preempted:.0f} preemptions lengthened the steps between")
    generated = increase(before.generated, after.generated) or 0.0
    prompt = increase(before.prompt, after.prompt) or 0.0
    if prompt > PROMPT_HEAVY * generated:
        return Discarded(
            Discard.PROMPT_HEAVY,
            f"{prompt:.0f} prompt tokens for {generated:.0f} generated ones: the steps were prefill as well",
        )
    first = increase(before.first_tokens, after.first_tokens) or 0.0
    batch = max(waited / seconds, 1.0)
    # Each request observes each step once: outputs are steps times the batch.
    cell = Cell(outputs / batch, waited / batch, outputs, max(generated - first, 0.0))
    at_zero = _explored_alone(_with_drafts(before, after), _explored(before, after))
    key = 0 if at_zero else round(_mean_depth(before, after)), bucket(round(batch))
    return {key: cell} if cell.steps >= 1 else {}


def positions(before: Counters, after: Counters) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Drafted and accepted by position from totals: as if each slot were accepted with one probability.

    Only the mean is known, so deeper slots are a guess; the first ones are about right.
    """
    drafts = increase(before.drafts, after.drafts)
    accepted = increase(before.accepted_tokens, after.accepted_tokens)
    depth = round(_mean_depth(before, after))
    if not drafts or not depth or accepted is None:
        return (), ()
    mean = min(accepted / drafts, depth * 0.999)
    low, high = 0.0, 1.0
    for _ in range(40):
        q = (low + high) / 2
        low, high = (q, high) if sum(q**j for j in range(1, depth + 1)) < mean else (low, q)
    return (drafts,) * depth, tuple(drafts * low**j for j in range(1, depth + 1))


def _with_drafts(before: Counters, after: Counters) -> float:
    """Share of outputs whose step verified a draft."""
    outputs = increase(before.latency_count, after.latency_count)
    return (increase(before.drafts, after.drafts) or 0.0) / outputs if outputs else 0.0


def _explored(before: Counters, after: Counters) -> float:
    """Share of steps that explored; 0 where the engine package does not say."""
    steps = increase(before.all_steps, after.all_steps)
    return (increase(before.explored_steps, after.explored_steps) or 0.0) / steps if steps else 0.0


def _explored_alone(share: float, explored: float) -> bool:
    """Whether the steps that explored had all drafts, as at depth 0; they may have had more requests than others."""
    return share <= 2 * explored


def _mean_depth(before: Counters, after: Counters) -> float:
    """Of drafts; 0 without any."""
    drafts = increase(before.drafts, after.drafts)
    return (increase(before.drafted_tokens, after.drafted_tokens) or 0.0) / drafts if drafts else 0.0
