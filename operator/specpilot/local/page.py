"""report.html of a demonstration: depth, goodput and the fixed-depth alternatives over time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specpilot.local.record import Played, Record, busy_machine
from specpilot.report import theme

_SMOOTH = 3  # seconds over which the alternatives are averaged; a batch's prefills make them jagged


def page(record: Record) -> str:
    """The whole page, self-contained."""
    waits = [c.acknowledged_after for c in record.changes if c.acknowledged_after is not None]
    worst = min(record.fixed, key=record.total)
    body = [
        "<h1>Traffic shifted twice. The depth followed.</h1>",
        f'<p class="lead">{record.replicas} simulated vLLM replicas, three phases of traffic, one operator that'
        " measures what drafting pays and retunes its depth while the engines run.</p>",
        "" if record.kept_up else f'<p class="warn">{escape(busy_machine(record))}</p>',
        theme.cards(
            [
                (
                    f"{record.oracle_share:.1%}",
                    "of the tokens of an oracle that knows each phase's best depth",
                    True,
                ),
                (
                    f"{record.best_fixed_share:.1%}",
                    f"is what the best single depth ({record.best_fixed}) gets, chosen with hindsight",
                    False,
                ),
                (
                    f"{record.total(worst) / record.oracle_tokens:.1%}",
                    f"with the worst single depth ({worst})",
                    False,
                ),
                (
                    str(record.depth_changes),
                    "changes of the schedule, no restart"
                    + (f"; in use after {max(waits):.2f} s at most" if waits else ""),
                    False,
                ),
            ]
        ),
        theme.panel(picture(record)),
        "<h2>Phase by phase</h2>",
        _phases(record),
        "<h2>What the operator did, and why</h2>",
        _changes(record),
        "<h2>How these numbers are made</h2>",
        _method(record),
    ]
    return theme.html("specpilot: a demonstration", "".join(body))


def picture(record: Record) -> Any:
    """Goodput above, depth in the middle, running requests below, over one axis of time."""
    figure = make_subplots(
        rows=3, cols=1, shared_xaxes=True, row_heights=[0.52, 0.32, 0.16], vertical_spacing=0.045
    )
    shown = [k for k in record.candidates if k in record.fixed]
    for rank, depth in enumerate(shown):
        # The last second is seldom a whole one.
        values = smooth(record.fixed[depth].seconds[:-1], record.played)
        x = [i + 0.5 for i in range(len(values))]
        line = {"color": theme.ranked(rank, len(shown)), "width": 1.6}
        figure.add_trace(
            go.Scatter(
                x=x, y=values, name=f"depth {depth}, fixed", line=line, opacity=0.9, hovertemplate="%{y:,.0f}"
            ),
            row=1,
            col=1,
        )
    x, y = _stairs([(p.start, p.end, record.oracle(i)[1] / p.seconds) for i, p in enumerate(record.played)])
    dash = {"color": theme.ORACLE, "width": 1.5, "dash": "dot"}
    figure.add_trace(
        go.Scatter(
            x=x, y=y, mode="lines", name="oracle, mean of the phase", line=dash, hovertemplate="%{y:,.0f}"
        ),
        row=1,
        col=1,
    )
    at = [m.at for m in record.moments]
    ours = {"color": theme.OURS, "width": 3.2}
    figure.add_trace(
        go.Scatter(
            x=at,
            y=[m.goodput for m in record.moments],
            name="specpilot",
            line=ours,
            hovertemplate="<b>%{y:,.0f}</b>",
        ),
        row=1,
        col=1,
    )
    _depths(figure, record, at)
    figure.add_trace(
        go.Scatter(
            x=at,
            y=[m.running for m in record.moments],
            name="running requests",
            line={"color": theme.MUTED, "width": 1.5},
            fill="tozeroy",
            fillcolor="rgba(107,114,128,.12)",
            showlegend=False,
            hovertemplate="%{y:.0f}",
        ),
        row=3,
        col=1,
    )
    _scenes(figure, record)
    figure.update_layout(**theme.layout(height=690))
    figure.update_xaxes(**theme.AXIS, range=[0, record.played[-1].end])
    figure.update_yaxes(**theme.AXIS, rangemode="tozero")
    figure.update_xaxes(title_text="seconds", row=3, col=1)
    for row, title in ((1, "tokens per second"), (2, "depth"), (3, "running")):
        figure.update_yaxes(title_text=title, row=row, col=1)
    figure.update_yaxes(
        tickvals=list(record.candidates), range=[-0.4, max(record.candidates) + 0.7], row=2, col=1
    )
    return figure


def _depths(figure: Any, record: Record, at: Sequence[float]) -> None:
    x, y = _stairs([(p.start, p.end, float(record.oracle(i)[0])) for i, p in enumerate(record.played)])
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines",
            name="the oracle's depth",
            line={"color": theme.ORACLE, "width": 1.5, "dash": "dot"},
            showlegend=False,
            hovertemplate="%{y:.0f}",
        ),
        row=2,
        col=1,
    )
    figure.add_trace(
        go.Scatter(
            x=at,
            y=[m.depth for m in record.moments],
            name="specpilot's depth",
            line={"color": theme.OURS, "width": 3.2, "shape": "hvh"},
            showlegend=False,
            hovertemplate="<b>%{y:.1f}</b>",
        ),
        row=2,
        col=1,
    )
    figure.add_trace(
        go.Scatter(
            x=[c.at - record.started for c in record.changes],
            y=[max(record.candidates) + 0.45] * len(record.changes),
            mode="markers",
            name="change",
            marker={
                "symbol": [
                    "triangle-down" if c.steps_changed else "triangle-down-open" for c in record.changes
                ],
                "size": 11,
                "color": theme.OURS,
            },
            showlegend=False,
            text=[wrapped(f"{c.reason}: {c.message}") for c in record.changes],
            hovertemplate="%{text}",
        ),
        row=2,
        col=1,
    )


def _scenes(figure: Any, record: Record) -> None:
    for i, p in enumerate(record.played):
        if i % 2:
            figure.add_vrect(x0=p.start, x1=p.end, fillcolor=theme.BAND, layer="below", line_width=0)
        text = f"<b>{escape(p.scene.title)}</b><br>{p.scene.clients} clients, {escape(p.scene.traffic)}"
        figure.add_annotation(
            x=(p.start + p.end) / 2,
            y=1.005,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            text=text,
            font={"size": 12.5, "color": theme.MUTED},
        )


def _stairs(parts: Sequence[tuple[float, float, float]]) -> tuple[list[float], list[float]]:
    xs, ys = [], []
    for start, end, value in parts:
        xs += [start, end]
        ys += [value, value]
    return xs, ys


def smooth(values: Sequence[float], played: Sequence[Played]) -> list[float]:
    """A centred mean over a few seconds that does not reach across a shift of the traffic."""
    bounds = [round(p.start) for p in played] + [len(values)]
    result = []
    for i in range(len(values)):
        low = max(b for b in bounds if b <= i)
        high = min(b for b in bounds if b > i)
        near = values[max(low, i - _SMOOTH // 2) : min(high, i + _SMOOTH // 2 + 1)]
        result.append(sum(near) / len(near))
    return result


def wrapped(text: str, width: int = 60) -> str:
    """Words broken into lines, for a hover box."""
    lines = [""]
    for word in escape(text).split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(lines)


def _phases(record: Record) -> str:
    depths = [k for k in record.candidates if k in record.fixed]
    head = "".join(f'<th class="n">depth {k}</th>' for k in depths)
    rows = []
    for i, p in [*enumerate(record.played), (None, None)]:
        oracle = record.oracle(i)[1] if i is not None else record.oracle_tokens
        emitted = p.emitted if p else record.emitted
        name = f"<b>{escape(p.scene.title)}</b>" if p else "<b>all</b>"
        what = f"{p.scene.clients} clients, {escape(p.scene.traffic)}, {p.seconds:.0f} s" if p else ""
        best = f"depth {record.oracle(i)[0]}" if i is not None else ""
        cells = []
        for tokens, style in [(emitted, "n best"), *((_fixed(record, k, i), "n") for k in depths)]:
            share = tokens / oracle
            title = f"{tokens:,.0f} tokens"
            cells.append(f'<td class="{style}" style="{theme.heat(share)}" title="{title}">{share:.1%}</td>')
        rows.append(
            f'<tr><td>{name}<br><span class="small">{what}</span></td>'
            f'<td class="n">{oracle:,.0f}<br><span class="small">{best}</span></td>{"".join(cells)}</tr>'
        )
    return (
        '<div class="panel scroll"><table><thead><tr><th>phase</th><th class="n">oracle, tokens</th>'
        f'<th class="n">specpilot</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _fixed(record: Record, depth: int, scene: int | None) -> float:
    return record.total(depth) if scene is None else record.fixed_tokens(depth, scene)


def _changes(record: Record) -> str:
    if not record.changes:
        return "<p>Nothing: the schedule it began with stayed the best known.</p>"
    rows = []
    for c in record.changes:
        steps = ", ".join(f"{s.tokens} up to {s.up_to}" for s in c.schedule.steps)
        after = "" if c.acknowledged_after is None else f"{c.acknowledged_after:.2f} s"
        rows.append(
            f'<tr><td class="n">{c.at - record.started:.1f} s</td><td><span class="tag">{escape(str(c.reason))}</span></td>'
            f'<td>{escape(c.message)}<br><span class="small">depth by running requests: {steps}</span></td>'
            f'<td class="n">{after}</td></tr>'
        )
    return (
        '<div class="panel scroll"><table><thead><tr><th class="n">at</th><th>reason</th><th>what and why</th>'
        f'<th class="n">in use after</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _method(record: Record) -> str:
    played = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.started))
    return (
        f'<div class="small method"><p>Played on {played}. The engines are simulated: their step times come from a table'
        f" ({escape(record.engine)}), their accepted tokens from one survival curve for each kind of traffic. Their"
        f" clock runs {record.time_scale:g} times faster than a wall clock, so tokens per second are that much higher."
        " Everything else is real: vLLM's API and metrics over HTTP, the schedule file, the profiler, the scrapes, and"
        " the operator's own code, which sees none of the truth. Filled triangles are changes of the schedule, open ones"
        " what a trial said of one; while a trial runs, the depth drawn is a mean of two.</p>"
        "<p>The fixed depths and the oracle were not run beside it. They are the same engine code, playing the same"
        " phases with the same numbers of clients and the same noise without waiting for a clock, once for every depth"
        " from 0 to the deepest. The oracle takes the best depth of each phase. Its clients need no time between two"
        " requests, where the real ones send theirs over HTTP: that is counted against specpilot, as are the seconds"
        " in which it had not yet noticed a shift and the steps in which it explored. (Here the engines decoded in"
        f" {record.busy_share:.1%} of their clients' time.) Shares are tokens counted by the"
        " engines (vllm:generation_tokens_total) over tokens of the oracle.</p></div>"
    )
