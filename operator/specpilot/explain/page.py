"""The explanation as a page: what each depth gives at every load, and what that is made of."""

from __future__ import annotations

from html import escape

from specpilot.explain import charts, words
from specpilot.explain.subject import Explanation
from specpilot.report import theme

_COLUMNS = ("running", "depth", "accepted length", "step time, ms", "tokens/s", "ms a token", "over depth 0")


def page(it: Explanation) -> str:
    """The whole page, self-contained."""
    body = [
        f"<h1>Why this depth? {escape(it.subject.name)}</h1>",
        f'<p class="lead">{_which(it)}; {len(it.subject.points) or "no"} measured step times.</p>',
        *(f'<p class="warn">{escape(note)}</p>' for note in it.notes),
        _head(it),
        "<h2>What each depth would give</h2>",
        theme.panel(
            charts.goodput(it), "Goodput against the best depth at each load (faint: may not be chosen there)"
        ),
        '<div class="pair">',
        theme.panel(charts.choice(it), "Depth at each load, and the load itself", library=False),
        theme.panel(
            charts.marginal(it),
            "Marginal rule: the last slots pay where the line is below its dashes",
            library=False,
        ),
        "</div><h2>What that is made of</h2>",
        '<div class="pair">',
        theme.panel(charts.step_times(it), "C, step time in ms (dots: measured)", library=False),
        theme.panel(
            charts.lengths(it), "L, accepted length, and the survival that it sums up", library=False
        ),
        "</div><h2>Every alternative</h2>",
        _table(it),
        _legend(it),
        "<h2>Block verification</h2>",
        f"<p>{escape(words.block(it)[:1].upper() + words.block(it)[1:])}.</p>",
        _block(it),
    ]
    return theme.html(f"specpilot: {it.subject.name}", "".join(body))


def _which(it: Explanation) -> str:
    if it.subject.schedule is None:
        return "no schedule in force: the best is marked"
    return f"generation {it.subject.schedule.generation} in force"


def _head(it: Explanation) -> str:
    rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(how)}</td></tr>" for what, how in words.head(it))
    return f'<div class="panel scroll"><table>{rows}</table></div>'


def _block(it: Explanation) -> str:
    if not it.block.verification.may_gain:
        return ""
    told = (
        "A prediction of a model and no measurement: in it a draft is rejected either because the target would"
        " never say that token or because the two models give it different weights, and the share of the"
        " former is the one that published measurements of block verification suggest. The band reaches to"
        " where all rejections are of the latter kind; with none of them block is worth nothing."
    )
    figure = theme.panel(charts.block(it), "Accepted length by depth, predicted by a model", library=False)
    return f'<div class="pair">{figure}<p class="small">{told}</p></div>'


def _table(it: Explanation) -> str:
    rows = []
    for batch in it.batches:
        best = it.best(batch).goodput
        for i, r in enumerate(it.at(batch)):
            share = f'<span class="small">{r.share:.0%}</span>' if i == 1 and r.share >= 0.005 else ""
            first = f"<b>{batch}</b>" if i == 0 else share
            told = escape(words.verdict(it, r))
            cells = [
                f'<td class="n">{first}</td>',
                f'<td class="n{" best" if r.chosen else ""}">{r.tokens}</td>',
                f'<td class="n">{r.accepted_length:.2f}</td>',
                f'<td class="n">{1e3 * r.seconds:.1f}</td>',
                f'<td class="n" style="{theme.heat(r.goodput / best)}">{r.goodput:,.0f}</td>',
                f'<td class="n">{1e3 * r.latency:.1f}</td>',
                f'<td class="n">{r.speedup:.2f}</td>',
                f'<td class="n">{escape(words.margin(r))}</td>',
                f'<td class="n">{f"""<span class="tag">{told}</span>""" if r.chosen else told}</td>',
            ]
            rows.append(f"<tr>{''.join(cells)}</tr>")
    names = (*_COLUMNS, "its slots: bring, must", "goodput against it")
    head = "".join(f'<th class="n">{name}</th>' for name in names)
    return (
        f'<div class="panel scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _legend(it: Explanation) -> str:
    told = "".join(f"<p><b>{escape(word)}</b>: {escape(meaning)}</p>" for word, meaning in words.legend(it))
    return f'<div class="small method" style="margin-top: 12px">{told}</div>'
