"""Tables and figures as one html page that needs nothing else: no network, no file beside it."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

from s2sent.evaluation.report import Entry, Grid
from s2sent.figures import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def page(title: str, body: str) -> str:
    """The whole page, from its title and what is in it, as html."""
    return _PAGE.format(title=escape(title), style=_STYLE, body=body)


def table(grid: Grid) -> str:
    """A table, with what stands below it; wide ones scroll by themselves."""

    def marked(entry: Entry) -> str:
        text = escape(entry.text).replace(" ± ", "<small> ± ") + ("</small>" if " ± " in entry.text else "")
        text = f"<b>{text}</b>" if entry.best else text
        return f"<u>{text}</u>" if entry.significant else text

    heads = "".join(f"<th>{escape(column)}</th>" for column in ("", *grid.columns))
    rows = [
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{marked(entry)}</td>' for entry in entries)}</tr>"
        for name, entries in grid.rows
    ]
    below = "".join(f"<p class='below'>{escape(text)}</p>" for text in grid.below)
    return (
        f"<div class='wide'><table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{below}"
    )


def picture(figure: Figure, title: str) -> str:
    """A figure inside the page, sharp at any size; the title is for those who cannot see it."""
    source = base64.b64encode(drawn(figure, "svg")).decode()
    alt = escape(title, quote=True)
    return f"<figure><div class='wide'><img alt=\"{alt}\" src='data:image/svg+xml;base64,{source}'></div></figure>"


def facts(known: dict[str, str]) -> str:
    """A list of names and what they are."""
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in known.items()) + "</dl>"


_STYLE = """
:root { color-scheme: light dark; --ink: #1c1917; --soft: #57534e; --line: #d6d3d1; --paper: #fafaf9; --page: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e5e4; --soft: #a8a29e; --line: #44403c; --paper: #292524;
  --page: #1c1917 } img { background: #fff; border-radius: 4px } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1240px;
  margin: 0 auto; padding: 1rem }
h1 { font-size: 1.7rem; line-height: 1.2 } h2 { margin: 2.5rem 0 0; font-size: 1.35rem }
h3 { margin: 1.4rem 0 .4rem; font-size: 1.05rem } h4 { margin: 0 0 .4rem; font-size: .9rem }
.where, .below, dl { color: var(--soft); font-size: .87rem } .where { margin: .2rem 0 }
.banner { padding: .7rem 1rem; border-left: 5px solid #c2410c; background: var(--paper) }
.badge { border: 1px solid var(--line); border-radius: 9px; padding: 0 .5em;
  white-space: nowrap }
.wide { overflow-x: auto }
table { border-collapse: separate; border-spacing: 0; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line) }
thead th { vertical-align: bottom; white-space: normal; min-width: 3.6em; color: var(--soft); font-weight: 600 }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--page); font-weight: 500 }
tbody tr:hover td { background: var(--paper) } td small { color: var(--soft) } u { text-underline-offset: 3px }
.theirs { margin: .8rem 0; padding: .7rem 1rem; background: var(--paper); border: 1px dashed var(--line) }
.theirs th:first-child { background: var(--paper) }
pre { white-space: pre-wrap; padding: .7rem 1rem; background: var(--paper); font-size: .82rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem } dd { margin: 0 }
figure { margin: 1rem 0 } figure img { max-width: 100%; min-width: 540px }
@media (max-width: 600px) { th:first-child { white-space: normal; min-width: 7.5em } dl { grid-template-columns: 1fr }
  dt { font-weight: 600 } }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""
