import re

import numpy as np
import pytest
from jinja2 import UndefinedError

from s2sent.report.figures import Panel, densities
from s2sent.report.page import Picture, Text, page, render
from s2sent.report.tables import Entry, Table

NASTY = "<script>alert('&')</script>"
ESCAPED = "&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"


def test_everything_is_escaped() -> None:
    table = Table((NASTY,), ((NASTY, (Entry(NASTY, best=True),)),), (NASTY,))
    figure = densities([Panel("m", np.linspace(0, 1, 9), np.linspace(0, 5, 9), 90.0)])
    kinds = [Text(NASTY, kind) for kind in ("p", "banner", "h2", "h3")]  # type: ignore[arg-type]
    html = page(NASTY, [*kinds, table, Picture(figure, NASTY), {NASTY: NASTY}])
    assert "<script" not in html
    assert html.count(ESCAPED) == 2 + 4 + 4 + 1 + 2  # title, texts, table, picture, facts
    assert not re.search(r"(?:src|href)=(?![\"'](?:data:|#))|url\(|@import", html)


def test_marks_and_deviations() -> None:
    entries = (Entry("72.06 ± 0.29 †", best=True, significant=True), Entry("1.00"))
    html = page("t", [Table(("a", "b"), (("row", entries),), ("below",))])
    assert "<td><u><b>72.06<small> ± 0.29 †</small></b></u></td><td>1.00</td>" in html
    assert '<p class="below">below</p>' in html


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("page.html", title="t")
