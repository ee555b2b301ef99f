"""What a person sees of the paper's reruns: the list of runs, and a line for each as it is finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from s2sent.cli.screen import console, errors
from s2sent.experiments.progress import progress_of, show_duration
from s2sent.experiments.runner import Watcher
from s2sent.listener import Listener

if TYPE_CHECKING:
    from rich.status import Status

    from s2sent.experiments.plan import Entry, Run
    from s2sent.experiments.store import Store


def show_list(entries: list[Entry], runs: list[Run], store: Store, profile: str) -> None:
    """Every row of every experiment with the state of its seeds, and the sum."""
    found = progress_of(runs, store)
    state = {run.key: "·" for run in runs}
    state |= {run.key: "✓" for run in found.done} | {run.key: "✗" for run in found.failed}
    rows: dict[tuple[str, str, str, str], str] = {}
    for entry in entries:
        if entry.run.kind != "cost":
            place = (entry.experiment, entry.backbone, entry.objective, entry.row)
            rows[place] = rows.get(place, "") + state[entry.run.key]
    heading: tuple[str, str, str] | None = None
    for place, marks in rows.items():
        if place[:3] != heading:
            heading = place[:3]
            console.print(f"[bold]{escape(place[0])}[/] · {escape(place[1])} · {place[2]}")
        console.print(f"  {marks}  {escape(place[3])}")
    console.print("✓ done  ✗ failed  · missing, seed by seed")
    left = (
        "unknown until a training run is finished" if found.seconds_left is None else show_duration(found.seconds_left)
    )
    console.print(
        f"Profile {profile}: {len(runs)} runs for {len(entries)} places in tables; {len(found.done)} done, "
        f"{len(found.missing)} missing, of which {len(found.failed)} failed the last time.",
        soft_wrap=True,
    )
    console.print(f"Time left: {left}.")


class Steps(Listener):
    """Shows how far one run is."""

    def __init__(self, line: Status, title: str) -> None:
        self.line, self.title = line, title

    def note(self, text: str) -> None:
        """Show it until the next step."""
        self.line.update(f"{self.title}: {escape(text)}")

    def status(self, what: str) -> None:
        """Show it until the next step."""
        self.note(what)

    def progress(self, done: int, total: int, loss: float | None = None) -> None:
        """Show the step."""
        self.line.update(f"{self.title}: step {done} of {total}" + ("" if loss is None else f", loss {loss:.4f}"))


class Screen(Watcher):
    """A line for every run that is finished; below it, on a terminal, what is being done."""

    def __init__(self, status: Status, store: Store, runs: list[Run]) -> None:
        self.status, self.store, self.runs = status, store, runs

    def listener(self, run: Run, number: int, total: int) -> Listener:
        """Show what begins."""
        title = escape(f"{number}/{total} {run.name}")
        self.status.update(title)
        return Steps(self.status, title)

    def done(self, run: Run, record: dict[str, Any], left: int) -> None:
        """Leave a line behind, with the time left."""
        time_left = progress_of(self.runs, self.store).seconds_left
        after = "" if time_left is None or not left else f", about {show_duration(time_left)} for {left} more"
        said = f"{run.name}: {headline(record)} ({show_duration(record['seconds']['total'])}{after})"
        errors.print(escape(said), soft_wrap=True)

    def failed(self, run: Run, error: str) -> None:
        """Leave a line behind."""
        errors.print(f"[bold red]failed:[/] {escape(f'{run.name}: {error}')}", soft_wrap=True)

    def waiting(self, runs: int) -> None:
        """Say why nothing seems to happen."""
        self.status.update(f"Waiting for {runs} runs that other processes are doing.")


def headline(record: dict[str, Any]) -> str:
    """The number a person looks for first."""
    if "scores" in record:
        scores = record["scores"]
        name = next(name for name in ("STS-B", "Transfer avg", *scores) if name in scores)
        if "dev" not in record:
            return f"{name} {scores[name]:.2f}, held-out loss {record['held_out']['loss']:.3f}"
        before, after = record["dev"][0][1], scores["STS-B-dev"]
        return f"{name} {scores[name]:.2f}, dev {before:.2f} → {after:.2f}"
    if "cost" in record:
        return f"{record['cost']['added']:,} parameters more, {record['cost']['latency']:+.1f} % time"
    return "gradients by block " + " ".join(f"{value:.2g}" for value in record["gradients"]["direct"])
