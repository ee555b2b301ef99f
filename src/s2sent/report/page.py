"""Html pages that need nothing else: no network, no file beside them. The templates are in `templates/`."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from s2sent.figures import drawn
from s2sent.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Text:
    """A paragraph, the banner at the head of a page, or a heading."""

    text: str
    kind: Literal["p", "banner", "h2", "h3"] = "p"


@dataclass(frozen=True)
class Picture:
    """A figure, with a description for those who cannot see it."""

    figure: Figure
    alt: str

    @property
    def source(self) -> str:
        """The figure as an svg inside the page, sharp at any size."""
        return f"data:image/svg+xml;base64,{base64.b64encode(drawn(self.figure, 'svg')).decode()}"


Part = Text | Table | Picture | Mapping[str, str]
"""Of a page; a mapping is a list of names and what they are."""


def page(title: str, parts: Sequence[Part]) -> str:
    """Return a page of these parts, one below the other."""
    return render("page.html", title=title, parts=[(_kind(part), part) for part in parts])


def _kind(part: Part) -> str:
    return "facts" if isinstance(part, Mapping) else type(part).__name__.lower()


def render(template: str, **values: Any) -> str:
    """Render a template of this package. Everything in `values` is escaped."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
