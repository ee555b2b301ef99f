"""From records to results: the frame, table and figure of every experiment, and the paper's own numbers beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sent.data.senteval import STS_TASKS, TRANSFER_TASKS
from s2sent.evaluation.comparison import marked
from s2sent.evaluation.result import Frame, Score
from s2sent.evaluation.statistics import paired_t_test, summarize
from s2sent.experiments.catalogue import GRID_LETTERS, Experiment
from s2sent.experiments.plan import Place
from s2sent.experiments.store import Record, Store
from s2sent.report import figures
from s2sent.report.tables import Entry, Table, entry_of
from s2sent.untrusted import read_toml

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.05
LEAST_PAIRS = 3
"""Fewer seeds are not tested: with two, a difference of nothing can look significant."""
SHOWN = ("STS-B-dev", "STS-B", "SICK-R", "STS avg", *TRANSFER_TASKS, "Transfer avg")
"""Columns of a table, of those that were scored; the csv has them all."""
OBJECTIVES = {"simcse": "SimCSE", "promptcse": "PromptCSE", "whitened": "WhitenedCSE", "supervised": "supervised"}
RUN_COLUMNS = ("experiment", "profile", "backbone", "objective", "row", "seed", "key", "name", "value")
MISSING = Entry("…")


@dataclass(frozen=True)
class Results:
    """The records of one table: an experiment with one backbone and one objective.

    Attributes:
        experiment: The experiment.
        backbone: The backbone of all its rows.
        objective: The objective of all its rows.
        records: By row: the finished runs by seed. A row without any is there, too.
        cost: By row: what it costs.
        missing: How many of its runs are not finished.
    """

    experiment: Experiment
    backbone: str
    objective: str
    records: Mapping[str, Mapping[int, Record]]
    cost: Mapping[str, Record] = field(default_factory=dict)
    missing: int = 0

    @property
    def name(self) -> str:
        """The title of the table."""
        return f"{self.backbone} · {OBJECTIVES.get(self.objective, self.objective)}"

    @property
    def finished(self) -> list[Record]:
        """Every finished run."""
        return [record for seeds in self.records.values() for record in seeds.values()]

    @property
    def seeds(self) -> int:
        """The number of seeds of the row that has most."""
        return max((len(by_seed) for by_seed in self.records.values()), default=0)

    @property
    def begun(self) -> bool:
        """Whether any of its runs is finished."""
        return bool(self.finished or self.cost)

    def scores(self, row: str, column: str) -> dict[int, float]:
        """Return a row's scores by seed."""
        return {seed: float(record["scores"][column]) for seed, record in self.records[row].items()}

    @property
    def columns(self) -> list[str]:
        """The scores there are, in the papers' order; before any run is finished, those that there will be."""
        found = {name for record in self.finished for name in record.get("scores", {})}
        if not found:
            transfer = self.experiment.tasks == "transfer"
            found = {*TRANSFER_TASKS, "Transfer avg"} if transfer else {*STS_TASKS, "STS avg"}
        order = ("STS-B-dev", *STS_TASKS, "STS avg", *TRANSFER_TASKS, "Transfer avg")
        return [name for name in order if name in found]


def collect(places: Iterable[Place], experiments: Sequence[Experiment], store: Store) -> list[Results]:
    """Look up what is finished of every table."""
    by_name = {experiment.name: experiment for experiment in experiments}
    tables: dict[tuple[str, str, str], Results] = {}
    for place in places:
        of_table = (place.experiment, place.backbone, place.objective)
        if of_table not in tables:
            experiment = by_name[place.experiment]
            tables[of_table] = Results(
                experiment, place.backbone, place.objective, {row.name: {} for row in experiment.rows}, {}
            )
        results = tables[of_table]
        record = store.get(place.run.key)
        if record is None:
            tables[of_table] = replace(results, missing=results.missing + 1)
        elif place.run.kind == "cost":
            results.cost[place.row] = record  # type: ignore[index]
        else:
            results.records[place.row][place.seed] = record  # type: ignore[index]
    return list(tables.values())


def frame_of(results: Results) -> Frame:
    """Return means, deviations and tests. Runs are paired by seed; of a row with seeds missing, those that are there.

    `significant`: better than the base with p < 0.05, as the paper underlines. `p_holm` is corrected for all
    comparisons of the table. `best`: among the rows that have all seeds that any row has.
    """
    base = results.experiment.base
    rows = []
    for row, seeds in results.records.items():
        for column in results.columns if seeds else ():
            ours, theirs = results.scores(row, column), results.scores(base, column)
            summary = summarize(list(ours.values()))
            score = Score(row, column, summary.mean, summary.std, summary.runs)
            paired = sorted(set(ours) & set(theirs))
            if row != base and paired:
                score = replace(score, difference=fmean(ours[seed] - theirs[seed] for seed in paired))
                if len(paired) >= LEAST_PAIRS:
                    score = replace(score, p=paired_t_test([ours[s] for s in paired], [theirs[s] for s in paired]))
            rows.append(score)
    complete = {row for row, seeds in results.records.items() if len(seeds) == results.seeds}
    return Frame(marked(rows, LEVEL, correct=False, candidates=complete), baseline=base)


def table_of(results: Results) -> Table:
    """Return the table as people read it."""
    return _gradient_table(results) if results.experiment.kind == "gradients" else _score_table(results)


def _score_table(results: Results) -> Table:
    """Return scores with their marks, cost, and how far the weights spread."""
    columns = [name for name in SHOWN if name in results.columns]
    frame = frame_of(results)  # with all columns: one family of comparisons, here and in the csv
    scores = {(score.method, score.task): score for score in frame}
    several = len(frame.methods) > 1
    costs = ("Δ parameters", "Δ latency") if results.experiment.cost else ()
    rows = []
    for row, seeds in results.records.items():
        shown = [_entry(scores[row, column], several) if seeds else MISSING for column in columns]
        # Rows with fewer seeds than others do not compare with them at sight.
        name = row if len(seeds) in (0, results.seeds) else f"{row} ({len(seeds)} of {results.seeds} seeds)"
        cost = _cost(results.cost.get(row)) if costs else ()
        rows.append((name, (*shown, *cost, *_weights(seeds.values()))))
    heads = (*columns, *costs, "last block's share", "σ blocks", "σ features", "σ sentences")
    return Table(heads, tuple(rows), (_notes(results, frame),))


def _entry(score: Score, several: bool) -> Entry:
    entry = entry_of(score, several)
    return replace(entry, text=f"{entry.text} †") if _survives(score) else entry


def _survives(score: Score) -> bool:
    """Return whether it is better than the base also after Holm's correction."""
    return score.p_holm is not None and score.p_holm < LEVEL and (score.difference or 0) > 0


def _cost(record: Record | None) -> tuple[Entry, Entry]:
    if record is None:
        return MISSING, MISSING
    cost = record["cost"]
    low, high = cost["latency_quartiles"]
    parameters = Entry(f"{100 * cost['added'] / cost['parameters']:.2f} %")
    return parameters, Entry(f"{cost['latency']:+.1f} % ({low:+.1f} to {high:+.1f})")


def _weights(records: Iterable[Record]) -> list[Entry]:
    """Return the spread of the weights, averaged over seeds; a single fixed weight has none."""
    found = [record["weights"] for record in records if "weights" in record]
    if not found:
        return [MISSING] * 4
    share = Entry(f"{fmean(one['shares'][-1] for one in found):.3f}")
    if all(one["min"] == one["max"] for one in found):
        return [share, *[Entry("–")] * 3]
    return [share, *(Entry(f"{fmean(one[name] for one in found):.4f}") for name in ("blocks", "features", "sentences"))]


def _notes(results: Results, frame: Frame) -> str:
    seeds = sorted({len(by_seed) for by_seed in results.records.values() if by_seed})
    tested = sum(score.p is not None for score in frame)
    notes = []
    if seeds:
        over = " or ".join(map(str, seeds))
        notes.append("1 seed." if seeds == [1] else f"Mean ± standard deviation over {over} seeds.")
    notes.append("Bold: best of the column, of the rows with all seeds.")
    if tested:
        notes.append(
            f"Underlined: better than “{results.experiment.base}” with p < {LEVEL} (paired t-test over seeds, "
            f"two-sided, not corrected, as in the paper; of {tested} comparisons chance alone underlines about "
            f"{tested * LEVEL / 2:.1f}). †: also after Holm's correction"
            + ("." if any(map(_survives, frame)) else " (none here).")
        )
    notes.append(
        "STS: Spearman × 100. The last block's weight (2D SS: shares that add up to 1; 1D SS: the gate, of an average "
        "divided by its blocks), and the standard deviation of the weights over blocks, features and sentences."
        if "STS-B" in results.columns
        else "Transfer: accuracy of linear probes."
    )
    if results.cost:
        notes.append("Δ latency: median and quartiles of paired runs.")
    return " ".join([*notes, *_missing(results)])


def _missing(results: Results) -> list[str]:
    if not results.missing:
        return []
    return ["1 run is missing." if results.missing == 1 else f"{results.missing} runs are missing."]


def _gradient_table(results: Results) -> Table:
    """Return the direct gradient's norm by block, each row's divided by its largest, averaged over seeds."""
    depth = max((len(record["gradients"]["direct"]) for record in results.finished), default=0)
    rows = []
    for row, seeds in results.records.items():
        shares = _gradients(seeds.values(), "direct")
        rows.append((row, tuple(Entry(f"{share:.3f}") for share in shares) if seeds else (MISSING,) * depth))
    note = "Norm of the gradient that the fusion itself sends to a block's output, largest block = 1; mean over seeds."
    return Table(tuple(f"block {n + 1}" for n in range(depth)), tuple(rows), (note, *_missing(results)))


def _gradients(records: Iterable[Record], name: str) -> list[float]:
    """Return norms by block, each run's divided by its largest, averaged over runs."""
    values = [record["gradients"][name] for record in records]
    relative = [[value / max(one) if max(one) else 0.0 for value in one] for one in values]
    return [float(mean) for mean in np.mean(relative, axis=0)] if relative else []


def run_rows(tables: Iterable[Results]) -> list[dict[str, Any]]:
    """Return every number of every finished run: a row for each."""
    rows = []
    for results in tables:
        for row, seeds in results.records.items():
            for seed, record in sorted(seeds.items()):
                place = (results.experiment.name, record["profile"], results.backbone, results.objective, row, seed)
                for number in _values(record).items():
                    rows.append(dict(zip(RUN_COLUMNS, (*place, record["key"], *number), strict=True)))
    return rows


def _values(record: Record) -> dict[str, float]:
    found = dict(record.get("scores", {}))
    for group in ("weights", "geometry"):
        found |= {f"{group} {k}": v for k, v in record.get(group, {}).items() if not isinstance(v, list)}
    for number, share in enumerate(record.get("weights", {}).get("shares", []), start=1):
        found[f"weights share, block {number} of the selected"] = share
    for name in ("direct", "total"):
        values = record.get("gradients", {}).get(name, [])
        found |= {f"gradient {name}, block {number}": value for number, value in enumerate(values, start=1)}
    return found


def figure_of(tables: Sequence[Results]) -> Figure | None:
    """Return the figure of one experiment from its tables; None if it has none, or nothing to show yet."""
    tables = [results for results in tables if results.finished]
    kind = tables[0].experiment.figure if tables else ""
    if kind == "bars":
        plots = [plot for plot in map(_differences, tables) if plot.values]
        return figures.bars(plots) if plots else None
    if kind == "densities":
        panels = [panel for results in tables for panel in _histograms(results)]
        return figures.histograms(panels) if panels else None
    if kind == "gradients":
        return figures.gradients([_gradient_plot(results) for results in tables])
    if kind == "boxes":
        return figures.boxes([_grid(results) for results in tables])
    return figures.line([_grid(results) for results in tables], GRID_LETTERS) if kind == "line" else None


def _headline(results: Results) -> str:
    """Return the score a figure shows: the average of a suite where all of it was scored, else STS-B."""
    return next(name for name in ("STS avg", "Transfer avg", "STS-B", *results.columns) if name in results.columns)


def _differences(results: Results) -> figures.Plot:
    """Return the differences of each row to the base, seed by seed."""
    column, base = _headline(results), results.experiment.base
    theirs = results.scores(base, column)
    rows = {row: results.scores(row, column) for row in results.records if row != base}
    found = {
        row: [score - theirs[seed] for seed, score in ours.items() if seed in theirs] for row, ours in rows.items()
    }
    found = {row: values for row, values in found.items() if values}
    return figures.Plot(results.name, column, base, fmean(theirs.values()) if theirs else None, found)


def _grid(results: Results) -> figures.Plot:
    """Return the mean and deviation of each row over the seeds that all rows have, and its place in the grid."""
    column, base = _headline(results), results.experiment.base
    begun = {row: set(seeds) for row, seeds in results.records.items() if seeds}
    common = set.intersection(*begun.values())
    found = {}
    for row in begun if common else ():
        summary = summarize([score for seed, score in results.scores(row, column).items() if seed in common])
        found[row] = (summary.mean, summary.std or 0.0)
    changes = {row.name: row.changes for row in results.experiment.rows if row.name in found and row.name != base}
    places = {
        name: {row: value for value in values for row, changed in changes.items() if changed.get(name) == value}
        for name, values in results.experiment.grid.items()
    }
    return figures.Plot(results.name, column, base, found[base][0] if base in found else None, found, places)


def _histograms(results: Results) -> list[figures.Histogram]:
    panels = []
    for row, seeds in results.records.items():
        records = [record for record in seeds.values() if "density" in record]
        if records:
            score = fmean(record["scores"]["STS-B"] for record in records)
            panels.append(figures.Histogram(results.name, row, score, [record["density"] for record in records]))
    return panels


def _gradient_plot(results: Results) -> figures.Plot:
    kinds = ("direct", "total")
    values = {
        row: {kind: _gradients(seeds.values(), kind) for kind in kinds} if seeds else {}
        for row, seeds in results.records.items()
    }
    return figures.Plot(results.name, values=values)


@cache
def _published() -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("paper.toml"))


def paper_table(experiment: str, objective: str) -> Table | None:
    """Return the paper's numbers for an experiment and objective, a group of columns per backbone; None if none."""
    published = _published().get(experiment, {"rows": {}})
    groups = {
        name.split(" · ")[0]: rows for name, rows in published["rows"].items() if name.endswith(f" · {objective}")
    }
    if not groups:
        return None
    cost = published.get("cost", {})
    columns: list[str] = []
    rows: dict[str, list[Entry]] = {row: [] for row in next(iter(groups.values()))}
    for backbone, numbers in groups.items():
        columns += [f"{backbone} {column}" for column in published["columns"]]
        if backbone in cost:
            columns += [f"{backbone} Δ parameters", f"{backbone} Δ latency"]
        for row, entries in rows.items():
            entries += [Entry(f"{value:.2f}") for value in numbers[row]]
            if backbone in cost:
                entries += [Entry(f"{value:.2f} %") for value in cost[backbone][row]] or [Entry("–")] * 2
    shown = tuple((row, tuple(entries)) for row, entries in rows.items())
    return Table(tuple(columns), shown, (published["caption"] + ".",))
