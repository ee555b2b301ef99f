import csv
import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from evaluation.test_compare import BASE, BETTER, runs, single
from s2sent.data.senteval import STS_TASKS
from s2sent.evaluation.comparison import Method, compare
from s2sent.evaluation.result import Report, TaskResult
from s2sent.report.tables import Format, frame_csv, report_rows, report_table, table_of, to_csv, to_json


def test_tables_mark_best_and_significant() -> None:
    table = compare([BASE, BETTER], "base")
    markdown = table_of(table).render(Format.MARKDOWN)
    assert isinstance(markdown, str)
    assert "| better | <u>**72.06 ± 0.29**</u> |" in markdown
    assert markdown.splitlines()[1] == "| --- | ---: | ---: |"
    latex = table_of(table).render(Format.LATEX)
    assert isinstance(latex, str)
    assert r"better & \underline{\textbf{72.06$_{\pm 0.29}$}}" in latex
    assert latex.count("\\\\") == 3
    console = Console(record=True, width=120, file=io.StringIO(), force_terminal=True)
    console.print(table_of(table).render(Format.TABLE))
    assert "\x1b[1;4m72.06 ± 0.29" in console.export_text(styles=True)
    plain = Console(width=120, file=io.StringIO())  # as to a pipe or a file, where letters have no style
    plain.print(table_of(table).render(Format.TABLE))
    assert "│ <u>**72.06 ± 0.29**</u> │" in plain.file.getvalue()


@pytest.mark.parametrize("width", [30, 60, 80, 100])
@pytest.mark.parametrize("count", [1, 3, 12])
def test_a_narrow_screen_cuts_neither_names_nor_numbers(width: int, count: int) -> None:
    scores = {task: [70 + i + j for j in range(3)] for i, task in enumerate(STS_TASKS)}
    methods = [runs(f"method-{i:02}", scores) for i in range(count)]
    table = table_of(compare(methods))
    console = Console(width=width, file=io.StringIO(), color_system="standard", force_terminal=True, no_color=True)
    console.print(replace(table, notes=()))
    printed = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert max(map(len, printed.splitlines())) <= width
    assert "…" not in printed
    words = printed.split()
    for column in (*STS_TASKS, "avg"):
        assert column in words
    for method in methods:
        assert method.name in words
    assert words.count("±") == count * len(table.columns)
    if count == 1:
        assert printed.count("method-00") == 1  # on its side, in one piece


def test_a_long_name_is_folded() -> None:
    report = Report("a/very/long/" * 12, single("a", 1.0).results)
    console = Console(width=80, file=io.StringIO())
    console.print(replace(report_table(report.frame()), notes=()))
    printed = console.file.getvalue()
    assert f"{report.score('STS12'):.2f}" in printed
    assert re.sub(r"[\s┃│]", "", printed).count("very") == 12


def test_csv_and_json_hold_every_number() -> None:
    table = compare([BASE, BETTER], "base")
    rows = list(csv.DictReader(io.StringIO(frame_csv(table))))
    assert len(rows) == 4
    found = next(row for row in rows if (row["method"], row["task"]) == ("better", "STS12"))
    cell = table["better", "STS12"]
    assert float(found["p_holm"]) == cell.p_holm
    assert found["significant"] == "True"
    assert json.loads(to_json(table.to_dict()))["rows"]["better"]["STS12"]["wilcoxon"] == cell.wilcoxon
    report = single("a,b", 1.0)
    (first, *_) = csv.DictReader(io.StringIO(to_csv(report_rows(report, report.frame()))))
    assert first["model"] == "a,b"
    with pytest.raises(ValueError, match="JSON"):
        to_json({"score": float("nan")})


def test_names_cannot_break_a_table() -> None:
    name = Report(r"a\b^~", (TaskResult("STS12", {"all": 70.0}, 9),))
    assert r"a\textbackslash{}b\textasciicircum{}\textasciitilde{} & 70.00" in str(
        report_table(name.frame()).render(Format.LATEX)
    )
    report = Report("a_b|c & [bold]", (TaskResult("STS12", {"all": 70.0}, 9),))
    latex = report_table(report.frame()).render(Format.LATEX)
    assert isinstance(latex, str)
    assert r"a\_b|c \& [bold] & 70.00 \\" in latex
    markdown = report_table(report.frame()).render(Format.MARKDOWN)
    assert isinstance(markdown, str)
    assert markdown.splitlines()[2] == r"| a_b\|c & [bold] | 70.00 |"
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(report_table(report.frame()).render(Format.TABLE))
    assert "[bold]" in console.export_text()


def test_what_makes_scores_incomparable_stands_below_the_table() -> None:
    note = "STS-B: 2 samples where SentEval has 1,379; not comparable with published scores."
    reports = [single(name, noise) for name, noise in (("a", 1.0), ("b", 2.0))]
    reports = [replace(one, results=tuple(replace(r, notes=(note,)) for r in one.results)) for one in reports]
    found = compare([Method(report.model, (report,)) for report in reports])
    assert found.notes == (note,)  # once, though both have it
    assert found.to_dict()["notes"] == [note]
    for style in (Format.MARKDOWN, Format.LATEX):
        assert note in str(table_of(found).render(style))
