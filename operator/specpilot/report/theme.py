"""How pages and pictures look: one palette, one page around them, nothing from the network."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

INK, MUTED, GRID, PAPER = "#1f2430", "#6b7280", "#e9e9e4", "#ffffff"
OURS, ORACLE = "#5b3fd6", "#1f2430"
# By rank of the depth, shallow to deep.
DEPTHS = ("#9aa3ad", "#2a9d8f", "#8ab17d", "#e9b44c", "#ee8959", "#d1495b", "#a23b72", "#6d2e46")
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'

_STYLE = f"""
:root {{ color-scheme: light }}
* {{ box-sizing: border-box }}
body {{ margin: 0; background: #f6f5f1; color: {INK}; font: 15px/1.5 {FONT} }}
main {{ max-width: 1180px; margin: 0 auto; padding: 36px 28px 56px }}
h1 {{ font-size: 27px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -.01em }}
h2 {{ font-size: 17px; margin: 34px 0 10px }}
p {{ margin: 0 0 10px; max-width: 76ch }}
.lead {{ color: {MUTED}; font-size: 16px }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(215px, 1fr)); gap: 14px; margin: 22px 0 }}
.card {{ background: {PAPER}; border: 1px solid {GRID}; border-radius: 12px; padding: 14px 18px }}
.card b {{ display: block; font-size: 30px; line-height: 1.2; font-weight: 650; letter-spacing: -.02em }}
.card.ours b {{ color: {OURS} }}
.card span {{ color: {MUTED}; font-size: 13.5px }}
.panel {{ background: {PAPER}; border: 1px solid {GRID}; border-radius: 12px; padding: 10px 12px }}
.scroll {{ overflow-x: auto }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }}
th {{ text-align: left; color: {MUTED}; font-weight: 500; font-size: 13px; padding: 8px 10px; border-bottom: 1px solid {GRID} }}
td {{ padding: 8px 10px; border-bottom: 1px solid #f1f0ec; vertical-align: top }}
tr:last-child td {{ border-bottom: 0 }}
.n {{ text-align: right; white-space: nowrap }}
.best {{ font-weight: 650 }}
.tag {{ display: inline-block; border-radius: 99px; padding: 1px 10px; background: #ece8fb; color: {OURS}; font-size: 13px; white-space: nowrap }}
.warn {{ background: #fdf3dc; border: 1px solid #efd9a0; border-radius: 10px; padding: 10px 14px; max-width: none }}
.method {{ columns: 2; column-gap: 36px }}
@media (max-width: 800px) {{ .method {{ columns: 1 }} }}
.small {{ color: {MUTED}; font-size: 13.5px }}
"""


def color(rank: int) -> str:
    """Colour of the depth at `rank` among those shown."""
    return DEPTHS[min(rank, len(DEPTHS) - 1)]


def heat(share: float) -> str:
    """Background of a table's cell: 1 is green, 0.5 and below red."""
    x = max(0.0, min(1.0, (share - 0.5) / 0.5))
    return f"background: hsl({8 + 132 * x:.0f} 62% {92 - 4 * abs(x - 0.5):.0f}%)"


def html(title: str, body: str) -> str:
    """A whole page; `body` is HTML already."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def cards(entries: Iterable[tuple[str, str, bool]]) -> str:
    """Big numbers: (number, what it is, whether it is ours)."""
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card{" ours" if ours else ""}"><b>{escape(number)}</b><span>{escape(text)}</span></div>'
            for number, text, ours in entries
        )
        + "</div>"
    )


def panel(figure: Any) -> str:
    """A plotly figure with the library inside, so that the page needs no network."""
    config = {"displayModeBar": False, "responsive": True}
    return f'<div class="panel">{figure.to_html(full_html=False, include_plotlyjs=True, config=config)}</div>'


def layout(**more: Any) -> dict[str, Any]:
    """What all figures share."""
    return {
        "template": "none",
        "paper_bgcolor": PAPER,
        "plot_bgcolor": PAPER,
        "font": {"family": FONT, "size": 13, "color": INK},
        "margin": {"l": 64, "r": 18, "t": 92, "b": 44},
        "hovermode": "x unified",
        "hoverlabel": {"font": {"family": FONT, "size": 12.5}},
        "legend": {"orientation": "h", "y": 1.075, "yanchor": "bottom", "x": 0, "traceorder": "reversed"},
        **more,
    }


AXIS: dict[str, Any] = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "ticks": ""}
