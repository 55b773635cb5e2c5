"""The explanation as a page: what each depth gives at every load, what steps cost, what survives."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specpilot.explain.subject import Explanation
from specpilot.explain.table import verdict
from specpilot.report import theme


def page(it: Explanation) -> str:
    """The whole page, self-contained."""
    schedule = it.subject.schedule
    which = (
        f"generation {schedule.generation} in force"
        if schedule
        else "no schedule in force: the best is marked"
    )
    body = [
        f"<h1>Why this depth? {escape(it.subject.name)}</h1>",
        f'<p class="lead">{escape(which)}; {len(it.subject.points)} measured step times.</p>',
        *(f"<p>{escape(note)}</p>" for note in it.subject.notes),
        theme.panel(picture(it)),
        "<h2>Every alternative</h2>",
        _table(it),
    ]
    return theme.html(f"specpilot: {it.subject.name}", "".join(body))


def picture(it: Explanation) -> Any:
    """Above, goodput against the best depth over all batch sizes; below, step times and survival."""
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        row_heights=[0.55, 0.45],
        vertical_spacing=0.14,
        subplot_titles=(
            "goodput at each load, against the best depth there",
            "step time (dots: measured)",
            "survival of draft slots",
        ),
    )
    batches = np.arange(1, it.subject.max_batch + 1)
    relative = np.exp(it.land.log_goodput - it.land.log_goodput.max(axis=0))
    depths = it.subject.depths
    for i, depth in enumerate(depths):
        tint = theme.color(round(i * 5 / max(1, len(depths) - 1)))
        common = {"name": f"depth {depth}", "legendgroup": str(depth), "mode": "lines"}
        line = {"color": tint, "width": 1.8}
        figure.add_trace(
            go.Scatter(x=batches, y=relative[i], line=line, hovertemplate="%{y:.1%}", **common), 1, 1
        )
        seconds = 1e3 * np.exp(it.land.log_seconds[i])
        more = {"showlegend": False, "hovertemplate": "%{y:.1f} ms"}
        figure.add_trace(go.Scatter(x=batches, y=seconds, line=line, **common, **more), 2, 1)
        points = [p for p in it.subject.points if p.tokens == depth]
        figure.add_trace(
            go.Scatter(
                x=[p.batch for p in points],
                y=[1e3 * p.seconds for p in points],
                text=[f"context {p.context}: {1e3 * p.seconds:.1f} ms" for p in points],
                mode="markers",
                marker={"color": tint, "size": 7, "line": {"color": "white", "width": 1}},
                legendgroup=str(depth),
                showlegend=False,
                hovertemplate="%{text}",
            ),
            2,
            1,
        )
    rank = {depth: i for i, depth in enumerate(depths)}
    chosen = [relative[rank[depth], b] for b, depth in enumerate(it.chosen)]
    label = "in force" if it.subject.schedule else "best allowed"
    figure.add_trace(
        go.Scatter(
            x=batches,
            y=chosen,
            text=[f"depth {depth}" for depth in it.chosen],
            name=label,
            line={"color": theme.OURS, "width": 4},
            opacity=0.75,
            hovertemplate="<b>%{text}, %{y:.1%}</b>",
        ),
        1,
        1,
    )
    figure.add_trace(
        go.Bar(
            x=list(range(1, len(it.survival) + 1)),
            y=it.survival,
            error_y={"array": it.deviation, "color": theme.MUTED, "thickness": 1.2},
            marker={"color": theme.OURS, "opacity": 0.7},
            showlegend=False,
            hovertemplate="%{y:.3f}",
        ),
        2,
        2,
    )
    figure.update_layout(**theme.layout(height=720))
    figure.update_annotations(font={"size": 13.5, "color": theme.MUTED})
    figure.update_xaxes(**theme.AXIS)
    figure.update_yaxes(**theme.AXIS, rangemode="tozero")
    for row, column in ((1, 1), (2, 1)):
        figure.update_xaxes(
            type="log", title_text="running requests", tickvals=_ticks(it), row=row, col=column
        )
    figure.update_xaxes(title_text="slot", dtick=1, row=2, col=2)
    figure.update_yaxes(tickformat=".0%", row=1, col=1)
    figure.update_yaxes(title_text="ms", row=2, col=1)
    figure.update_yaxes(range=[0, 1], row=2, col=2)
    return figure


def _ticks(it: Explanation) -> list[int]:
    return [2**e for e in range(12) if 2**e <= it.subject.max_batch]


def _table(it: Explanation) -> str:
    rows = []
    for batch in it.batches:
        best = it.best(batch).goodput
        for i, r in enumerate(it.at(batch)):
            first = f"<b>{batch}</b>" if i == 0 else ""
            style = theme.heat(r.goodput / best)
            pays = {None: "", True: "yes", False: "no"}[r.pays]
            told = escape(verdict(it, r))
            rows.append(
                f'<tr><td class="n">{first}</td><td class="n{" best" if r.chosen else ""}">{r.tokens}</td>'
                f'<td class="n">{r.accepted_length:.2f}</td><td class="n">{1e3 * r.seconds:.1f}</td>'
                f'<td class="n" style="{style}">{r.goodput:,.0f}</td><td class="n">{r.speedup:.2f}</td>'
                f'<td class="n">{pays}</td><td>{f"""<span class="tag">{told}</span>""" if r.chosen else told}</td></tr>'
            )
    names = (
        "running",
        "depth",
        "accepted length",
        "step time, ms",
        "tokens/s",
        "over depth 0",
        "last slots pay",
    )
    head = "".join(f'<th class="n">{name}</th>' for name in names)
    return f'<div class="panel scroll"><table><thead><tr>{head}<th></th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
