"""From records to tables: mean ± std over seeds, the best, and what differs from the base row by more than chance."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from s2sent.data.senteval import STS_TASKS, TRANSFER_TASKS
from s2sent.evaluation.comparison import Cell
from s2sent.evaluation.report import Entry as Text
from s2sent.evaluation.report import Grid
from s2sent.evaluation.statistics import holm, paired_t_test, summarize
from s2sent.experiments.catalogue import Experiment
from s2sent.experiments.plan import Entry
from s2sent.experiments.store import Record, Store

LEVEL = 0.05
LEAST_PAIRS = 3
"""Fewer seeds are not tested: with two, a difference of nothing can look significant."""
SHOWN = ("STS-B-dev", "STS-B", "SICK-R", "STS avg", *TRANSFER_TASKS, "Transfer avg")
"""Columns of a table, of those that were scored; the csv has them all."""
OBJECTIVES = {"simcse": "SimCSE", "promptcse": "PromptCSE", "whitened": "WhitenedCSE", "supervised": "supervised"}


@dataclass(frozen=True)
class Results:
    """One table: an experiment with one backbone and one objective.

    Attributes:
        experiment: The experiment.
        backbone, objective: What is the same in all its rows.
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
        """What the table is about."""
        return f"{self.backbone} · {OBJECTIVES.get(self.objective, self.objective)}"

    @property
    def finished(self) -> list[Record]:
        """Every finished run."""
        return [record for seeds in self.records.values() for record in seeds.values()]

    @property
    def seeds(self) -> int:
        """How many seeds the row has that has most."""
        return max((len(by_seed) for by_seed in self.records.values()), default=0)

    @property
    def begun(self) -> bool:
        """Whether any of its runs is finished."""
        return bool(self.finished or self.cost)

    def scores(self, row: str, column: str) -> dict[int, float]:
        """A row's scores by seed."""
        return {seed: float(record["scores"][column]) for seed, record in self.records[row].items()}

    @property
    def columns(self) -> list[str]:
        """The scores there are, in the field's order."""
        found = {name for record in self.finished for name in record.get("scores", {})}
        if not found:  # none is finished: those that there will be
            found = (
                {*TRANSFER_TASKS, "Transfer avg"} if self.experiment.tasks == "transfer" else {*STS_TASKS, "STS avg"}
            )
        order = ("STS-B-dev", *STS_TASKS, "STS avg", *TRANSFER_TASKS, "Transfer avg")
        return [name for name in order if name in found]


def collect(entries: Iterable[Entry], experiments: Sequence[Experiment], store: Store) -> list[Results]:
    """Look up what is finished of every table."""
    by_name = {experiment.name: experiment for experiment in experiments}
    tables: dict[tuple[str, str, str], Results] = {}
    missing: dict[tuple[str, str, str], int] = {}
    for entry in entries:
        place = (entry.experiment, entry.backbone, entry.objective)
        if place not in tables:
            experiment = by_name[entry.experiment]
            rows: dict[str, dict[int, Record]] = {row.name: {} for row in experiment.rows}
            tables[place] = Results(experiment, entry.backbone, entry.objective, rows, {})
        record = store.get(entry.run.key)
        if record is None:
            missing[place] = missing.get(place, 0) + 1
        elif entry.run.kind == "cost":
            tables[place].cost[entry.row] = record  # type: ignore[index]
        else:
            tables[place].records[entry.row][entry.seed] = record  # type: ignore[index]
    return [
        Results(t.experiment, t.backbone, t.objective, t.records, t.cost, missing.get(place, 0))
        for place, t in tables.items()
    ]


def cells(results: Results, columns: Sequence[str]) -> dict[str, dict[str, Cell]]:
    """Means, deviations and tests. Runs are paired by seed; of a row with seeds missing, those that are there.

    `significant`: better than the base with p < 0.05, as the paper underlines. `p_holm` is corrected for all
    comparisons of the table. `best`: among the rows that have all seeds that any row has.
    """
    base = results.experiment.base
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row, seeds in results.records.items():
        if not seeds:
            continue
        found[row] = {}
        for column in columns:
            ours, theirs = results.scores(row, column), results.scores(base, column)
            summary = summarize(list(ours.values()))
            values: dict[str, Any] = {"mean": summary.mean, "std": summary.std, "runs": summary.runs}
            paired = sorted(set(ours) & set(theirs))
            if row != base and paired:
                values["difference"] = fmean(ours[seed] - theirs[seed] for seed in paired)
                if len(paired) >= LEAST_PAIRS:
                    values["p"] = paired_t_test([ours[s] for s in paired], [theirs[s] for s in paired])
            found[row][column] = values
    places = [(row, column) for row in found for column in columns if "p" in found[row][column]]
    for (row, column), p in zip(places, holm([found[r][c]["p"] for r, c in places]), strict=True):
        values = found[row][column]
        values |= {"p_holm": p, "significant": values["difference"] > 0 and values["p"] < LEVEL}
    whole = [row for row in found if len(results.records[row]) == results.seeds]
    for column in columns:
        best = max((round(found[row][column]["mean"], 2) for row in whole), default=0.0)
        for row in whole:
            found[row][column]["best"] = round(found[row][column]["mean"], 2) == best
    return {row: {column: Cell(**values[column]) for column in columns} for row, values in found.items()}


def score_grid(results: Results) -> Grid:
    """The table as people read it: scores with their marks, cost, and how far the weights spread."""
    columns = [name for name in SHOWN if name in results.columns]
    table = cells(results, results.columns)  # all of them: one family of comparisons, here and in the csv
    costs = ["Δ parameters", "Δ latency"] if results.experiment.cost else []
    rows = []
    for row in results.records:
        shown = [Text("…")] * len(columns)
        if row in table:
            shown = [_text(table[row][column], len(table) > 1) for column in columns]
        entries = (*shown, *[_cost(results, row, name) for name in costs], *_weights(results, row))
        rows.append((_with_seeds(results, row), entries))
    heads = (*columns, *costs, "last block's share", "σ blocks", "σ features", "σ sentences")
    return Grid(heads, tuple(rows), _below(results, table))


def _with_seeds(results: Results, row: str) -> str:
    """A row's name; of one that has fewer seeds than others, and so does not compare with them at sight, how many."""
    seeds = len(results.records[row])
    return row if seeds in (0, results.seeds) else f"{row} ({seeds} of {results.seeds} seeds)"


def _text(cell: Cell, several: bool) -> Text:
    text = f"{cell.mean:.2f}" + ("" if cell.std is None else f" ± {cell.std:.2f}")
    if _survives(cell):
        text += " †"
    return Text(text, cell.best and several, cell.significant)


def _survives(cell: Cell) -> bool:
    """Whether it is better than the base also after Holm's correction."""
    return cell.p_holm is not None and cell.p_holm < LEVEL and (cell.difference or 0) > 0


def _cost(results: Results, row: str, name: str) -> Text:
    if row not in results.cost:
        return Text("…")
    cost = results.cost[row]["cost"]
    if name == "Δ parameters":
        return Text(f"{100 * cost['added'] / cost['parameters']:.2f} %")
    low, high = cost["latency_quartiles"]
    return Text(f"{cost['latency']:+.1f} % ({low:+.1f} to {high:+.1f})")


def _weights(results: Results, row: str) -> list[Text]:
    """The spread of the weights, averaged over seeds; what has a single fixed weight has none."""
    found = [record["weights"] for record in results.records[row].values() if "weights" in record]
    if not found:
        return [Text("…")] * 4
    if all(one["min"] == one["max"] for one in found):
        return [Text(f"{fmean(one['shares'][-1] for one in found):.3f}"), *[Text("–")] * 3]
    shares = Text(f"{fmean(one['shares'][-1] for one in found):.3f}")
    return [shares, *(Text(f"{fmean(one[name] for one in found):.4f}") for name in ("blocks", "features", "sentences"))]


def _below(results: Results, table: Mapping[str, Mapping[str, Cell]]) -> tuple[str, ...]:
    seeds = sorted({len(by_seed) for by_seed in results.records.values() if by_seed})
    tested = sum(cell.p is not None for row in table.values() for cell in row.values())
    corrected = any(_survives(cell) for row in table.values() for cell in row.values())
    said = []
    if seeds:
        said.append(
            f"Mean ± standard deviation over {' or '.join(map(str, seeds))} seeds." if seeds != [1] else "1 seed."
        )
    said.append("Bold: best of the column, of the rows with all seeds.")
    if tested:
        said.append(
            f"Underlined: better than “{results.experiment.base}” with p < {LEVEL} (paired t-test over seeds, "
            f"two-sided, not corrected, as in the paper; of {tested} comparisons chance alone underlines about "
            f"{tested * LEVEL / 2:.1f}). †: also after Holm's correction" + ("." if corrected else " (none here).")
        )
    said.append(
        "STS: Spearman × 100. The last block's weight (2D SS: shares that add up to 1; 1D SS: the gate, of an average "
        "divided by its blocks), and the standard deviation of the weights over blocks, features and sentences."
        if "STS-B" in results.columns
        else "Transfer: accuracy of linear probes."
    )
    if results.cost:
        said.append("Δ latency: median and quartiles of paired runs.")
    if results.missing:
        said.append(_missing(results))
    return (" ".join(said),)


def _missing(results: Results) -> str:
    return "1 run is missing." if results.missing == 1 else f"{results.missing} runs are missing."


def scores_csv(tables: Sequence[Results]) -> str:
    """Every score of every finished run: a line for each."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["experiment", "profile", "backbone", "objective", "row", "seed", "key", "name", "value"])
    for results in tables:
        head = (results.experiment.name,)
        for row, seeds in results.records.items():
            for seed, record in sorted(seeds.items()):
                place = [*head, record["profile"], results.backbone, results.objective, row, seed, record["key"]]
                writer.writerows([*place, name, value] for name, value in _values(record).items())
    return buffer.getvalue()


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


def gradient_grid(results: Results) -> Grid:
    """The direct gradient's norm by block, each row's divided by its largest, averaged over seeds."""
    depth = max((len(record["gradients"]["direct"]) for record in results.finished), default=0)
    rows = []
    for row, seeds in results.records.items():
        shares = [relative(record["gradients"]["direct"]) for record in seeds.values()]
        shown = [Text(f"{fmean(one[n] for one in shares):.3f}") if shares else Text("…") for n in range(depth)]
        rows.append((row, tuple(shown)))
    below = "Norm of the gradient that the fusion itself sends to a block's output, largest block = 1; mean over seeds."
    missing = (_missing(results),) if results.missing else ()
    return Grid(tuple(f"block {n + 1}" for n in range(depth)), tuple(rows), (below, *missing))


def relative(values: Sequence[float]) -> list[float]:
    """Values divided by their largest."""
    top = max(values)
    return [value / top if top else 0.0 for value in values]
