"""The explanation for a terminal: what stands, a picture, and a table of every alternative."""

from __future__ import annotations

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from specpilot.decide.explain import Row
from specpilot.explain import words
from specpilot.explain.subject import Explanation

_COLUMNS = 48  # of the picture: batch sizes from 1 to the largest, evenly in their logarithm
# Share of the best depth's goodput, from which a cell is drawn so.
_SHADES = (
    (0.995, "█", "green"),
    (0.97, "▓", "green"),
    (0.9, "▒", "yellow"),
    (0.75, "░", "red"),
    (0, "·", "dim"),
)


def render(it: Explanation) -> RenderableType:
    """The whole text, 80 columns wide at least."""
    parts: list[RenderableType] = [_title(it)]
    parts += [Text(f"  {note}", "yellow") for note in it.notes]
    parts += [Text(), _head(it), Text(), _picture(it), Text(), _rows(it), Text(), _legend(it)]
    return Group(*parts)


def _title(it: Explanation) -> Text:
    text = Text.assemble(("\n" + it.subject.name, "bold"))
    if it.subject.schedule is not None:
        text.append(f"   generation {it.subject.schedule.generation}", "dim")
    measured = f"   {len(it.subject.points)} measured step times" if it.subject.points else "   no profile"
    return text.append(measured, "dim")


def _head(it: Explanation) -> Table:
    table = _pairs()
    for what, how in words.head(it):
        table.add_row(Text(what, "dim"), how)
    slots = Text()
    for j, (s, d) in enumerate(zip(it.survival, it.deviation, strict=True), 1):
        # A number stays with its slot where the line is broken.
        slots.append(f"{j}:\u00a0", "dim").append(f"{s:.2f}").append(f"±{d:.2f}  ", "dim")
    table.add_row(Text("survival of slots", "dim"), slots)
    return table


def _pairs() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    return table


def columns(largest: int) -> list[int]:
    """The batch size of each column of the picture."""
    return [round(float(size)) for size in np.geomspace(1, largest, _COLUMNS)]


def _picture(it: Explanation) -> Text:
    """Depth by batch size: how near each cell is to the best of its column, and what is in force."""
    sizes = columns(it.subject.max_batch)
    share = np.exp(it.land.log_goodput - np.where(it.may, it.land.log_goodput, -np.inf).max(axis=0))
    text = Text()
    for i in reversed(range(len(it.subject.depths))):
        depth = it.subject.depths[i]
        text.append(f"{f'depth {depth}':>9}  ", "dim")
        for size in sizes:
            if it.chosen[size - 1] == depth:
                text.append("●", "bold magenta")
            elif not it.may[i, size - 1]:
                text.append(" ")
            else:
                text.append(*next((c, style) for least, c, style in _SHADES if share[i, size - 1] >= least))
        text.append("\n")
    text.append(f"{'running':>9}  {_scale(sizes)}\n", "dim")
    text.append(" " * 11).append("●", "bold magenta")
    text.append(" in force" if it.subject.schedule is not None else " best", "dim")
    text.append("; blank: may not be chosen there", "dim")
    text.append("\n" + " " * 11 + "of the best at that load ", "dim")
    for least, shade, style in _SHADES:
        text.append(shade, style).append(f" {100 * least:g}%  " if least else " less", "dim")
    return text


def _scale(sizes: list[int]) -> str:
    """Doublings of the batch size, and the largest, under their columns."""
    line = ""
    for size in (*(2**e for e in range(sizes[-1].bit_length())), sizes[-1]):
        at = next(i for i, s in enumerate(sizes) if s >= size)
        if len(line) <= at and (size == sizes[-1] or at + 4 < len(sizes)):
            line = f"{line:{at}}{size} "
    return line


def _rows(it: Explanation) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    ceiling = it.subject.ceiling
    each = "ms/tok" if ceiling is not None else "× k=0"
    for name in ("running", "depth", "L", "C, ms", "tokens/s", each, "slots"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("goodput vs it", no_wrap=True)
    for batch in it.batches:
        rows, best = it.at(batch), it.best(batch)
        for i, row in enumerate(rows):
            style = "bold" if row.chosen else "" if it.may_run(row) else "dim"
            share = Text(f"{row.share:.0%}" if i == 1 and row.share >= 0.005 else "", "green")
            table.add_row(
                Text(str(batch), "bold") if i == 0 else share,
                Text(str(row.tokens), "bold magenta" if row.chosen else style),
                f"{row.accepted_length:.2f}",
                f"{1e3 * row.seconds:.1f}",
                f"{row.goodput:,.0f}",
                f"{1e3 * row.latency:.1f}" if ceiling is not None else f"{row.speedup:.2f}",
                Text(words.margin(row), "dim" if row.pays else "yellow"),
                Text(words.verdict(it, row), _style(row, row is best)),
                style=style,
                end_section=i == len(rows) - 1,
            )
    return table


def _style(row: Row, best: bool) -> str:
    if row.chosen:
        return "bold magenta"
    return "green" if best else "dim"


def _legend(it: Explanation) -> Table:
    table = _pairs()
    for word, meaning in words.legend(it):
        table.add_row(Text(word, "bold"), Text(meaning, "dim"))
    return table
