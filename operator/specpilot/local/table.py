"""A run as a person watches it in a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specpilot.api.vocabulary import Reason
from specpilot.local.replica import Phase
from specpilot.local.view import ReplicaView, View, explored_only
from specpilot_engine.protocol import Schedule

_PHASES = {
    Phase.STARTING: "yellow",
    Phase.PROFILING: "cyan",
    Phase.READY: "green",
    Phase.RESTARTING: "red",
}
_CALM = {Reason.HOLDING, Reason.BELOW_MINIMUM_GAIN, Reason.WAITING_FOR_EVIDENCE, Reason.DWELLING}
_EVENTS = 6
_WIDE = 100  # columns of a terminal that has room for URLs
_BLOCKS = " ▁▂▃▄▅▆▇█"
_TINTS = ("bright_black", "cyan", "green", "magenta")  # depth 0, 1, 2 and 3, 4 and deeper
_WIDTH = 60  # readings that are drawn


def render(view: View, heading: str = "", history: Sequence[View] = ()) -> RenderableType:
    """`heading` says what is going on; `history` are the views so far, drawn as lines."""
    parts: list[RenderableType] = []
    if heading:
        parts += [Text.from_markup(heading), ""]
    parts += [_Replicas(view), "", _operator(view, history)]
    if view.events:
        parts.append(_events(view))
    return Group(*parts)


class _Replicas:
    """One row a replica; the URLs only where there is room for them."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= _WIDE
        table = Table(expand=True, box=None, padding=(0, 1), header_style="dim")
        table.add_column("replica", no_wrap=True)
        table.add_column("state", no_wrap=True)
        for name in ("running", "depth", "accepted length", "tokens/s", "generation"):
            table.add_column(name, justify="right", no_wrap=True)
        for r in self._view.replicas:
            table.add_row(
                Text.assemble((r.name, "bold"), (f"  {r.url}" if wide else "", "dim")),
                Text(r.phase, _PHASES[r.phase]),
                _number(r.batch, ".0f"),
                _depth(r, self._view.schedule),
                _number(r.accepted_length, ".2f"),
                _number(r.goodput, ",.0f"),
                _acknowledged(r, self._view.schedule),
            )
        yield table


def _number(value: float | None, form: str) -> Text:
    return Text("–", "dim") if value is None else Text(format(value, form))


def _depth(r: ReplicaView, schedule: Schedule | None) -> Text:
    """What ran, and in brackets what the schedule says where the two differ (exploring, a change)."""
    if r.depth is None:
        return Text("–", "dim")
    text = Text(f"{r.depth:.1f}", "bold magenta")
    if schedule is not None and r.batch is not None:
        planned = schedule.tokens_at(round(r.batch))
        if abs(planned - r.depth) >= 0.05:
            text.append(f" ({planned})", "dim")
    return text


def _acknowledged(r: ReplicaView, schedule: Schedule | None) -> Text:
    if schedule is None:
        return Text("stock vLLM", "dim")
    if r.phase is not Phase.READY:
        return Text("–", "dim")
    done = r.acknowledged
    return Text(f"{'✓' if done else '…'} {schedule.generation}", "green" if done else "yellow")


def _operator(view: View, history: Sequence[View]) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    if view.schedule is not None:
        grid.add_row("schedule", _schedule(view.schedule))
        if explored := explored_only(view.changes):
            first, last = explored[0], explored[-1]
            of = f"generation {last}" if first == last else f"generations {first} to {last}"
            grid.add_row("", Text(f"{of}: the same depths, other exploring", "dim"))
    if view.decision is not None:
        d = view.decision
        style = "dim" if d.reason in _CALM else "bold green"
        ago = max(0.0, view.at - view.decided_at)
        grid.add_row(
            "last look",
            Text.assemble((str(d.reason), style), f"  {d.message}", (f"  {ago:.0f} s ago", "dim")),
        )
    if view.points_planned:
        grid.add_row("profile", f"{view.points} of {view.points_planned} step times")
    shown = [v for v in history if v.goodput][-_WIDTH:]
    if shown:
        now = Text(f"{view.goodput:,.0f} tokens/s", "bold")
        grid.add_row("goodput", Text.assemble((sparkline([v.goodput for v in shown]), "magenta"), "  ", now))
        grid.add_row("depth", _depths([v.depth for v in shown]))
    return Panel(grid, title="what the operator does, and why", title_align="left", border_style="dim")


def _schedule(schedule: Schedule) -> Text:
    text, first = Text(), 1
    for i, step in enumerate(schedule.steps):
        last = i == len(schedule.steps) - 1
        text.append("" if not i else "   ")
        text.append(f"{step.tokens}", "bold magenta")
        text.append(
            f" at {first}+"
            if last
            else f" at {first}–{step.up_to}"
            if step.up_to > first
            else f" at {first}",
            "dim",
        )
        first = step.up_to + 1
    text.append("   (depth at running requests)", "dim")
    return text


def _events(view: View) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for at, sentence in view.events[-_EVENTS:]:
        grid.add_row(time.strftime("%H:%M:%S", time.localtime(at)), sentence)
    return grid


def sparkline(values: Sequence[float]) -> str:
    """Values as blocks of eight heights, from zero."""
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    return "".join(_BLOCKS[round(v / top * (len(_BLOCKS) - 1))] for v in values)


def _depths(values: Sequence[float | None]) -> Text:
    """One digit for each reading: the depth that ran, shallow ones dim and deep ones bright."""
    text = Text()
    for value in values:
        depth = 0 if value is None else round(value)
        digit = "·" if value is None else str(depth) if depth < 10 else "+"
        text.append(digit, _TINTS[min(depth.bit_length(), len(_TINTS) - 1)])
    return text
