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
    parts += [_survival(it), _rows(it), _legend()]
    return Group(*parts)


def verdict(it: Explanation, row: Row) -> str:
    """What choosing this depth would give, against the one in force."""
    if row.chosen:
        return "in force" if it.subject.schedule is not None else "best"
    change = row.goodput / it.in_force(row.batch).goodput - 1
    return f"{change:+.1%} ± {row.uncertainty:.1%}" if row.allowed else f"cannot run ({change:+.1%})"


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
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("running", "time", "depth", "L", "C, ms", "tokens/s", "× k=0", "pays?"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("goodput against it", no_wrap=True)
    for batch in it.batches:
        rows = it.at(batch)
        best = it.best(batch)
        for i, row in enumerate(rows):
            style = "bold" if row.chosen else "" if row.allowed else "dim"
            mark = Text(str(row.tokens), "bold magenta" if row.chosen else style)
            share = f"{row.share:.0%}" if row.share >= 0.005 else ""
            pays = {None: "", True: "yes", False: "no"}[row.pays]
            told = Text(verdict(it, row), _style(row, row is best))
            table.add_row(
                Text(str(batch), "bold") if i == 0 else "",
                Text(share, "green") if i == 0 else "",
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


def _legend() -> Text:
    return Text.assemble(
        ("\nrunning, time", "bold"),
        ("  requests in a step, and the share of time the engines ran that many\n", "dim"),
        ("L", "bold"),
        ("  accepted length: tokens a request and step, 1 + survival of the drafted slots\n", "dim"),
        ("C", "bold"),
        ("  step time; goodput is running × L / C, and the choice goes by it\n", "dim"),
        ("pays?", "bold"),
        ("  the marginal rule, local only: the last slots' survival is above (C' − C) × L / C\n", "dim"),
        ("cannot run", "bold"),
        ("  over the token budget of a step, or without a CUDA graph\n", "dim"),
    )
