"""The result as Markdown, ready for the page of benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.replay.criteria import EXEMPT, Criterion, Runs, Standing, overall, standing

from specpilot.replay.registry import PRODUCT


def table(runs: Runs, criteria: Sequence[Criterion]) -> str:
    """Two tables: shares by world, and the criteria."""
    return "\n".join([*_shares(runs), "", *_criteria(criteria), *_exempt(runs)])


def _shares(runs: Runs) -> Iterator[str]:
    standings = {name: standing(seen) for name, seen in runs.items()}
    mean = overall(standings.values())
    rivals = mean.rival is not None
    yield f"| world | {PRODUCT} | its worst seed |{' best fixed depth | best peer | which |' if rivals else ''}"
    yield f"|---|--:|--:|{'--:|--:|---|' if rivals else ''}"
    for name, one in standings.items():
        yield f"| {name} | {one.ours:.1%} | {one.worst:.1%} |{_rivals(one, 1)}"
    yield f"| **mean** | **{mean.ours:.2%}** | |{_rivals(mean, 2)}"


def _rivals(of: Standing, digits: int) -> str:
    if of.fixed is None or of.peer is None:
        return ""
    return f" {of.fixed:.{digits}%} | {of.peers[of.peer]:.{digits}%} | {of.peer} |"


def _criteria(criteria: Sequence[Criterion]) -> Iterator[str]:
    yield "| criterion | goal | measured | |"
    yield "|---|---|---|---|"
    for one in criteria:
        yield f"| {one.what} | {one.goal} | {one.measured} | {'met' if one.met else 'MISSED'} |"


def _exempt(runs: Runs) -> Iterator[str]:
    reasons = [f"{name} ({why})" for name, why in EXEMPT.items() if name in runs]
    if reasons:
        yield ""
        yield f"Steady worlds with a criterion of their own instead: {'; '.join(reasons)}."
