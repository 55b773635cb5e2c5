"""How pages and pictures look: one palette, one page around them, nothing from the network."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

INK, MUTED, GRID, PAPER = "#1f2430", "#6b7280", "#e9e9e4", "#ffffff"
OURS, ORACLE = "#5b3fd6", "#1f2430"
BAND = "#f3f1ea"  # behind every second stretch of time
CLEAR = "rgba(0,0,0,0)"  # figures show the panel that they stand in
# By rank of the depth, shallow to deep.
DEPTHS = ("#9aa3ad", "#2a9d8f", "#8ab17d", "#e9b44c", "#ee8959", "#d1495b")
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'

_STYLE = f"""
:root {{ color-scheme: light dark; --ink: {INK}; --muted: {MUTED}; --grid: {GRID}; --paper: {PAPER};
  --back: #f6f5f1; --rule: #f1f0ec; --ours: {OURS}; --tag: #ece8fb; --band: {BAND};
  --warn: #fdf3dc; --warn-rule: #efd9a0 }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6e7ea; --muted: #9aa1ac; --grid: #333945; --paper: #1b1f27;
    --back: #13161c; --rule: #262b35; --ours: #a594f9; --tag: #2d2750; --band: #232833;
    --warn: #3a2f14; --warn-rule: #6b5626 }}
  /* What plotly has drawn carries its colours; these are the ones that need to follow. */
  .panel svg text {{ fill: var(--ink) !important }}
  .panel .hoverlayer text {{ fill: {INK} !important }}
  .panel .gridlayer path, .panel .zerolinelayer path {{ stroke: var(--grid) !important }}
  .panel path[class*="lines-"] {{ stroke: var(--grid) !important }}
  .panel path[style*="stroke: rgb(31, 36, 48)"] {{ stroke: var(--ink) !important }}
  .panel path[style*="stroke: rgb(91, 63, 214)"] {{ stroke: var(--ours) !important }}
  .panel path[style*="fill: rgb(31, 36, 48)"] {{ fill: var(--ink) !important }}
  .panel path[style*="fill: rgb(91, 63, 214)"] {{ fill: var(--ours) !important }}
  .panel path[style*="fill: rgb(243, 241, 234)"] {{ fill: var(--band) !important }}
}}
* {{ box-sizing: border-box }}
body {{ margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 {FONT} }}
main {{ max-width: 1180px; margin: 0 auto; padding: 36px 28px 56px }}
h1 {{ font-size: 27px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -.01em }}
h2 {{ font-size: 17px; margin: 34px 0 10px }}
p {{ margin: 0 0 10px; max-width: 76ch }}
.lead {{ color: var(--muted); font-size: 16px }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(215px, 1fr)); gap: 14px; margin: 22px 0 }}
.card {{ background: var(--paper); border: 1px solid var(--grid); border-radius: 12px; padding: 14px 18px }}
.card b {{ display: block; font-size: 30px; line-height: 1.2; font-weight: 650; letter-spacing: -.02em }}
.card.ours b {{ color: var(--ours) }}
.card span {{ color: var(--muted); font-size: 13.5px }}
.panel {{ background: var(--paper); border: 1px solid var(--grid); border-radius: 12px; padding: 10px 12px }}
.pair {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(430px, 100%), 1fr)); gap: 14px; margin: 14px 0 }}
.pair > * {{ min-width: 0 }}
.scroll {{ overflow-x: auto }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }}
th {{ text-align: left; color: var(--muted); font-weight: 500; font-size: 13px; padding: 8px 10px; border-bottom: 1px solid var(--grid) }}
td {{ padding: 8px 10px; border-bottom: 1px solid var(--rule); vertical-align: top }}
td[style] {{ color: {INK} }}
tr:last-child td {{ border-bottom: 0 }}
.n {{ text-align: right; white-space: nowrap }}
.best {{ font-weight: 650 }}
.tag {{ display: inline-block; border-radius: 99px; padding: 1px 10px; background: var(--tag); color: var(--ours); font-size: 13px; white-space: nowrap }}
.warn {{ background: var(--warn); border: 1px solid var(--warn-rule); border-radius: 10px; padding: 10px 14px; max-width: none }}
.method {{ columns: 2; column-gap: 36px }}
@media (max-width: 800px) {{ .method {{ columns: 1 }} main {{ padding: 22px 14px 40px }} }}
.small {{ color: var(--muted); font-size: 13.5px }}
"""


def ranked(rank: int, count: int) -> str:
    """Colour of the depth at `rank` among `count` that are shown, shallow to deep."""
    return DEPTHS[round(rank * (len(DEPTHS) - 1) / max(1, count - 1))]


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


def panel(figure: Any, title: str = "", library: bool = True) -> str:
    """A plotly figure with the library inside, so that the page needs no network; once is enough for a page."""
    config = {"displayModeBar": False, "responsive": True}
    drawn = figure.to_html(full_html=False, include_plotlyjs=library, config=config)
    heading = f'<div class="small">{escape(title)}</div>' if title else ""
    return f'<div class="panel">{heading}{drawn}</div>'


def layout(**more: Any) -> dict[str, Any]:
    """What all figures share."""
    return {
        "template": "none",
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": FONT, "size": 13, "color": INK},
        "margin": {"l": 64, "r": 18, "t": 92, "b": 44},
        "hovermode": "x unified",
        "hoverlabel": {"font": {"family": FONT, "size": 12.5}, "bgcolor": "rgba(255,255,255,.94)"},
        "legend": {"orientation": "h", "y": 1.075, "yanchor": "bottom", "x": 0, "traceorder": "reversed"},
        **more,
    }


AXIS: dict[str, Any] = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "ticks": ""}
