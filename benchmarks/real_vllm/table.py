"""The result as Markdown, ready for the page of benchmarks."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.real_vllm.report import Estimate, Result
from benchmarks.real_vllm.scenario import ARMS, DEEPEST, PRODUCT, phase

LEAST_DIFFERENCE, LEAST_SHARE, LEAST_RATIO = -0.01, 0.95, 1.2


def table(found: Result) -> str:
    """Two tables: specpilot against fixed depths, and goodput by phase."""
    return "\n".join([*_verdicts(found), "", *_phases(found)])


def _verdicts(found: Result) -> Iterator[str]:
    yield "| over the whole scenario | mean (95% interval) | of the repeats | goal | |"
    yield "|---|--:|--:|--:|---|"
    best, share, ratio = found.against_best, found.of_phase_best, found.over_deepest
    words = _met(best.low is not None and best.low >= LEAST_DIFFERENCE, best)
    yield f"| {PRODUCT} against {found.best}, the best fixed depth in hindsight | {_percent(best)} | from ≥ −1% | {words} |"
    each = found.against_best_alike
    yield f"| the same, each phase alike (against {found.best_alike}) | {_percent(each)} | | |"
    yield f"| of the best fixed depth of each phase | {_percent(share, '')} | ≥ 95% | {_met(share.mean >= LEAST_SHARE, share)} |"
    words = _met(ratio.mean >= LEAST_RATIO, ratio)
    yield f"| over {DEEPEST} | {_ratio(ratio)} | ≥ 1.2 | {words} |"
    yield ""
    left = f" ({found.left_out} not complete, left out)" if found.left_out else ""
    yield f"Repeats: {found.repeats}{left}. Changes of depth in each: {found.changes:.1f}."


def _phases(found: Result) -> Iterator[str]:
    yield f"| draft | clients | {' | '.join(ARMS)} | {PRODUCT} of the best | time at its depth |"
    yield f"|---|---|{'--:|' * len(ARMS)}--:|--:|"
    for row in found.phases:
        load = phase(row.phase)
        cells = []
        for arm in ARMS:
            mean, deviation = row.goodput[arm]
            text = f"{mean:.0f} ± {deviation:.0f}" if found.repeats > 1 else f"{mean:.0f}"
            cells.append(f"**{text}**" if arm == row.best else text)
        kind = "sampling" if load.sampling else "greedy"
        yield f"| {row.draft} | {load.clients} {kind} | {' | '.join(cells)} | {row.share:.1%} | {row.at_best:.0%} |"
    means = [f"{found.totals[arm]:.0f}" for arm in ARMS]
    yield f"| all | | {' | '.join(means)} | | |"


def _met(met: bool, of: Estimate) -> str:
    if of.low is None:
        return "one repeat proves nothing"
    return "met" if met else "MISSED"


def _percent(of: Estimate, sign: str = "+") -> str:
    interval = "" if of.low is None or of.high is None else f" ({of.low:{sign}.1%} to {of.high:{sign}.1%})"
    return f"{of.mean:{sign}.1%}{interval} | {of.least:{sign}.1%} to {of.most:{sign}.1%}"


def _ratio(of: Estimate) -> str:
    interval = "" if of.low is None or of.high is None else f" ({of.low:.2f} to {of.high:.2f})"
    return f"{of.mean:.2f}{interval} | {of.least:.2f} to {of.most:.2f}"
