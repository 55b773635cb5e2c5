"""The pictures of an explanation, one figure each, so that a narrow page can stack them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specpilot.decide.explain import margins
from specpilot.explain.subject import Explanation
from specpilot.report import theme

SMALL = 330  # height in pixels


def goodput(it: Explanation) -> Any:
    """What each depth gives at every load, against the best one there; what is in force on top."""
    figure = go.Figure()
    batches = np.arange(1, it.subject.max_batch + 1)
    best = np.where(it.may, it.land.log_goodput, -np.inf).max(axis=0)
    relative = np.exp(it.land.log_goodput - best)
    for i, line, common in _lines(it):
        # What may not be chosen is drawn faint: it is an alternative all the same.
        for may, opacity in ((True, 1.0), (False, 0.3)):
            shown = np.where(_with_ends(it.may[i] == may), relative[i], np.nan)
            more = {"opacity": opacity, "showlegend": may, "hoverinfo": "skip"} if not may else {}
            figure.add_trace(
                go.Scatter(x=batches, y=shown, line=line, hovertemplate="%{y:.1%}", **common, **more)
            )
    rank = {depth: i for i, depth in enumerate(it.subject.depths)}
    figure.add_trace(
        go.Scatter(
            x=batches,
            y=[relative[rank[depth], b] for b, depth in enumerate(it.chosen)],
            text=[f"depth {depth}" for depth in it.chosen],
            name=_chosen(it),
            line={"color": theme.OURS, "width": 4},
            opacity=0.75,
            hovertemplate="<b>%{text}, %{y:.1%}</b>",
        )
    )
    _look(figure, it, height=430)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure


def choice(it: Explanation) -> Any:
    """The depth at every load: in force and best known; behind them the share of time at each load."""
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    batches = np.arange(1, it.subject.max_batch + 1)
    if it.weights.any():
        at = np.flatnonzero(it.weights > 0.002)
        figure.add_trace(
            go.Bar(
                x=at + 1,
                y=it.weights[at],
                # On a logarithmic axis a bar of constant width would shrink to nothing.
                width=0.16 * (at + 1),
                name="share of time",
                marker={"color": theme.MUTED, "opacity": 0.35},
                hovertemplate="%{y:.0%}",
            ),
            secondary_y=True,
        )
    dotted = {"color": theme.ORACLE, "width": 1.6, "dash": "dot", "shape": "hvh"}
    thick = {"color": theme.OURS, "width": 4, "shape": "hvh"}
    if it.subject.schedule is not None:
        figure.add_trace(go.Scatter(x=batches, y=it.chosen, name="in force", line=thick, mode="lines"))
        figure.add_trace(
            go.Scatter(x=batches, y=it.best_depths, name="best known", line=dotted, mode="lines")
        )
    else:
        figure.add_trace(go.Scatter(x=batches, y=it.best_depths, name="best", line=thick, mode="lines"))
    _look(figure, it)
    figure.update_yaxes(tickvals=list(it.subject.depths), range=[-0.5, it.subject.depths[-1] + 0.5])
    figure.update_yaxes(
        title_text="share of time",
        tickformat=".0%",
        range=[0, 1],
        showgrid=False,
        showline=False,
        secondary_y=True,
    )
    return figure


def step_times(it: Explanation) -> Any:
    """C_k: what is believed as lines, what was measured as dots."""
    figure = go.Figure()
    batches = np.arange(1, it.subject.max_batch + 1)
    for i, line, common in _lines(it):
        seconds = 1e3 * np.exp(it.land.log_seconds[i])
        figure.add_trace(go.Scatter(x=batches, y=seconds, line=line, hovertemplate="%{y:.1f} ms", **common))
        points = [p for p in it.subject.points if p.tokens == it.subject.depths[i]]
        figure.add_trace(
            go.Scatter(
                x=[p.batch for p in points],
                y=[1e3 * p.seconds for p in points],
                text=[f"measured at context {p.context}: {1e3 * p.seconds:.1f} ms" for p in points],
                mode="markers",
                marker={"color": line["color"], "size": 7, "line": {"color": "white", "width": 1}},
                legendgroup=common["legendgroup"],
                showlegend=False,
                hovertemplate="%{text}",
            )
        )
    _look(figure, it, legend=False)
    figure.update_yaxes(rangemode="tozero")
    return figure


def lengths(it: Explanation) -> Any:
    """L_k as a line over the candidates, and the survival of each slot that it sums up as bars."""
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    slots = list(range(1, len(it.survival) + 1))
    figure.add_trace(
        go.Bar(
            x=slots,
            y=it.survival,
            error_y={"array": it.deviation, "color": theme.MUTED, "thickness": 1.2},
            name="survival of the slot",
            marker={"color": theme.OURS, "opacity": 0.45},
            hovertemplate="%{y:.3f}",
        ),
        secondary_y=True,
    )
    spread = np.sqrt(it.land.length_variance[:, 0]) * it.land.lengths
    figure.add_trace(
        go.Scatter(
            x=list(it.subject.depths),
            y=it.land.lengths,
            error_y={"array": spread, "color": theme.MUTED, "thickness": 1.2},
            name="L at this depth",
            mode="lines+markers",
            line={"color": theme.ORACLE, "width": 2},
            hovertemplate="%{y:.2f}",
        )
    )
    figure.update_layout(**_layout())
    figure.update_xaxes(**theme.AXIS, title_text="depth, slot", dtick=1)
    figure.update_yaxes(**theme.AXIS, range=[0, 1.1 * (float(it.land.lengths[-1]) + float(spread[-1]))])
    figure.update_yaxes(
        range=[0, 1], dtick=0.2, showgrid=False, showline=False, title_text="survival", secondary_y=True
    )
    return figure


def marginal(it: Explanation) -> Any:
    """The marginal rule of each candidate: what its last slots bring, and what they must bring."""
    figure = go.Figure()
    batches = np.arange(1, it.subject.max_batch + 1)
    gained, needed = margins(it.land)
    for i, line, common in _lines(it):
        if not i:
            continue
        figure.add_trace(
            go.Scatter(x=batches, y=needed[i - 1], line=line, hovertemplate="needs %{y:.2f}", **common)
        )
        figure.add_trace(
            go.Scatter(
                x=[1, it.subject.max_batch],
                y=[gained[i - 1]] * 2,
                mode="lines",
                line={**line, "dash": "dash"},
                legendgroup=common["legendgroup"],
                showlegend=False,
                hoverinfo="skip",
            )
        )
    _look(figure, it, legend=False)
    top = 1.6 * float(max(gained.max(), 0.1)) if len(gained) else 1.0
    figure.update_yaxes(range=[min(0.0, float(needed.min(initial=0.0))), top])
    return figure


def block(it: Explanation) -> Any:
    """L_k under both verifications, one measured and one by the model; between, how far that may be off."""
    figure = go.Figure()
    worth = it.block
    depths = list(range(len(worth.standard)))
    band = {"mode": "lines", "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    shade = {"fill": "tonexty", "fillcolor": "rgba(91,63,214,.15)"}
    figure.add_trace(go.Scatter(x=depths, y=worth.measured, **band))
    figure.add_trace(go.Scatter(x=depths, y=worth.extreme, **band, **shade))
    known = "measured" if it.seen else "assumed"
    names = ("block", "standard") if worth.verification.block else ("standard", "block")
    for name, y, line in (
        (f"{names[0]}, {known}", worth.measured, {"color": theme.ORACLE, "width": 2}),
        (f"{names[1]}, predicted", worth.predicted, {"color": theme.OURS, "width": 3}),
    ):
        figure.add_trace(
            go.Scatter(x=depths, y=y, name=name, mode="lines", line=line, hovertemplate="%{y:.2f}")
        )
    figure.update_layout(**_layout())
    figure.update_xaxes(**theme.AXIS, title_text="depth", dtick=1)
    figure.update_yaxes(**theme.AXIS, rangemode="tozero")
    return figure


def _lines(it: Explanation) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Index, line and common arguments of each depth; the same colours in every figure."""
    depths = it.subject.depths
    for i, depth in enumerate(depths):
        line = {"color": theme.ranked(i, len(depths)), "width": 1.8}
        yield i, line, {"name": f"depth {depth}", "legendgroup": str(depth), "mode": "lines"}


def _with_ends(mask: Any) -> Any:
    """With the neighbours of each stretch, so that lines meet."""
    wide = mask.copy()
    wide[1:] |= mask[:-1]
    return wide


def _chosen(it: Explanation) -> str:
    return "in force" if it.subject.schedule is not None else "best allowed"


def _layout(height: int = SMALL, legend: bool = True) -> dict[str, Any]:
    margin = {"l": 56, "r": 18, "t": 40 if legend else 14, "b": 44}
    above = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    return {**theme.layout(height=height, margin=margin, showlegend=legend), "legend": above}


def _look(figure: Any, it: Explanation, height: int = SMALL, legend: bool = True) -> None:
    figure.update_layout(**_layout(height, legend))
    figure.update_xaxes(
        **theme.AXIS,
        type="log",
        title_text="running requests",
        tickvals=[2**e for e in range(12) if 2**e <= it.subject.max_batch],
        range=[-0.02, float(np.log10(max(it.subject.max_batch, 2))) + 0.02],
    )
    figure.update_yaxes(**theme.AXIS)
