"""What `specpilot bench replay` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from specpilot.replay.play import SETTLED
from specpilot.replay.registry import FIXED, ORACLE, PRODUCT, Outcome
from specpilot.replay.score import Score

SHOWN_PHASES = 6  # more of them are summed up in one word
BEST_FIXED = "best fixed"


def world_table(outcome: Outcome) -> Table:
    """Every policy in one world, best first."""
    world = outcome.world
    phases = "1 phase" if len(world.phases) == 1 else f"{len(world.phases)} phases"
    minutes = f"{phases}, {world.seconds / 60:g} min, seed {outcome.seed}"
    table = _table(Text.assemble((world.name, "bold"), (f"   {minutes}", "dim")))
    for name in ("tokens", "share", "worst", "changes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("settled, s", overflow="fold")
    for name, score in sorted(outcome.scores.items(), key=lambda item: -item[1].oracle_share):
        table.add_row(
            name,
            f"{score.tokens:,}",
            f"{score.oracle_share:.1%}",
            f"{score.worst_phase_share:.1%}",
            str(score.changes),
            _settled(score),
            style=_style(name),
        )
    return table


def summary_table(outcomes: Sequence[Outcome]) -> Table:
    """Every policy over several worlds, best mean share first.

    `best fixed` is the fixed depth that is best in each world, known only in hindsight: it has a row where more than one
    was played.
    """
    table = _table(Text(f"{len(outcomes)} worlds", "bold"))
    for name in ("worlds", "share", "worst", "changes"):
        table.add_column(name, justify="right", no_wrap=True)
    rows: dict[str, list[Score]] = {}
    for outcome in outcomes:
        fixed = [score for name, score in outcome.scores.items() if name.startswith(FIXED)]
        if len(fixed) > 1:
            rows.setdefault(BEST_FIXED, []).append(max(fixed, key=lambda score: score.oracle_share))
        for name, score in outcome.scores.items():
            rows.setdefault(name, []).append(score)
    for name, scores in sorted(rows.items(), key=lambda item: -_mean(item[1])):
        table.add_row(
            name,
            str(len(scores)),
            f"{_mean(scores):.1%}",
            f"{min(score.oracle_share for score in scores):.1%}",
            str(sum(score.changes for score in scores)),
            style=_style(name),
        )
    return table


def legend() -> Text:
    """What the columns mean."""
    return Text.assemble(
        ("share", "bold"),
        (
            "    of the oracle's tokens; in an open loop, its latency over this one's\n",
            "dim",
        ),
        ("worst", "bold"),
        ("    the share of the phase, or of the world, that went worst\n", "dim"),
        ("settled", "bold"),
        (f"  seconds into each phase until {SETTLED:.0%} of the oracle's rate; –: never", "dim"),
    )


def _table(title: Text) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("policy", no_wrap=True)
    return table


def _mean(scores: Sequence[Score]) -> float:
    return sum(score.oracle_share for score in scores) / len(scores)


def _settled(score: Score) -> str:
    times = [phase.settle_seconds for phase in score.phases]
    if len(times) <= SHOWN_PHASES:
        return " ".join("–" if t is None else f"{t:.0f}" for t in times)
    reached = [t for t in times if t is not None]
    latest = f"≤ {max(reached):.0f}" if reached else ""
    never = f"– in {len(times) - len(reached)}" if len(reached) < len(times) else ""
    return ", ".join(filter(None, (latest, never)))


def _style(name: str) -> str:
    return {PRODUCT: "bold magenta", ORACLE: "dim"}.get(name, "")
