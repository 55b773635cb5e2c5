"""The explanation for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from specpilot.decide.explain import Row
from specpilot.explain.subject import Explanation


def render(it: Explanation) -> RenderableType:
    """One table over all batch sizes, and what the words in it mean."""
    parts: list[RenderableType] = [_head(it)]
    parts += [Text(f"  {note}", "yellow") for note in it.subject.notes]
    parts += [_survival(it), _rows(it), _legend(it)]
    return Group(*parts)


def verdict(it: Explanation, row: Row) -> str:
    """What choosing this depth would give, against the one in force."""
    if row.chosen:
        return "in force" if it.subject.schedule is not None else "best"
    change = row.goodput / it.in_force(row.batch).goodput - 1
    text = f"{change:+.1%} ± {row.uncertainty:.1%}"
    return text if row.allowed else f"{text}, no graph or budget for it"


def _head(it: Explanation) -> Text:
    text = Text.assemble(("\n" + it.subject.name, "bold"))
    if it.subject.schedule is not None:
        text.append(f"   generation {it.subject.schedule.generation}", "dim")
    measured = f"   {len(it.subject.points)} measured step times" if it.subject.points else "   no profile"
    return text.append(measured, "dim")


def _survival(it: Explanation) -> Text:
    text = Text("\nsurvival of draft slots  ", "dim")
    for j, (s, d) in enumerate(zip(it.survival, it.deviation, strict=True), 1):
        text.append(f"{j}: ", "dim").append(f"{s:.2f}").append(f"±{d:.2f}  ", "dim")
    return text


def _rows(it: Explanation) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    names = (
        "running",
        "depth",
        "L, tokens a step",
        "C, ms a step",
        "tokens/s",
        "× depth 0",
        "next slot pays?",
    )
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("against the one in force" if it.subject.schedule else "against the best")
    for batch in it.batches:
        rows = it.at(batch)
        best = it.best(batch)
        for i, row in enumerate(rows):
            style = "bold" if row.chosen else "" if row.allowed else "dim"
            mark = Text(str(row.tokens), "bold magenta" if row.chosen else style)
            share = f"  {row.share:.0%}" if row.share >= 0.005 else ""
            pays = {None: "", True: "yes", False: "no"}[row.pays]
            told = Text(verdict(it, row), _style(row, row is best))
            table.add_row(
                Text.assemble((str(batch), "bold"), (share, "green")) if i == 0 else "",
                mark,
                f"{row.accepted_length:.2f}",
                f"{1e3 * row.seconds:.1f}",
                f"{row.goodput:,.0f}",
                f"{row.speedup:.2f}",
                Text(pays, "dim" if row.pays else "yellow"),
                told,
                style=style,
                end_section=i == len(rows) - 1,
            )
    return table


def _style(row: Row, best: bool) -> str:
    if row.chosen:
        return "bold magenta"
    return "green" if best else "dim"


def _legend(it: Explanation) -> Text:
    share = " A percentage beside it is the share of time the engines ran that many." if it.seen else ""
    return Text(
        f"running: requests in a step.{share} L: accepted length, 1 + survival of the drafted slots. C: step time."
        " goodput = running × L / C. A slot pays when its survival is above (C' − C) × L / C; that rule is local, so"
        " the choice goes by goodput.\n",
        "dim",
    )
