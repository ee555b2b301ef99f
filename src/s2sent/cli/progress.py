"""What a person sees while an evaluation runs: one bar, on standard error, gone when it is done."""

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from s2sent.cli.screen import errors
from s2sent.evaluation.listener import Listener
from s2sent.evaluation.result import Aggregation, TaskResult


class Bar(Listener):
    """A progress bar for the encoding, a line for every task that is finished."""

    def __init__(self, name: str = "", aggregation: Aggregation = Aggregation.ALL) -> None:
        self.name, self.aggregation = name, aggregation
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),  # a name may hold brackets
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=errors,
            transient=True,
            speed_estimate_period=600,  # a batch may take long, and an estimate from nothing is none
        )
        self.bar = self.progress.add_task(name, total=None)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
        if kind is KeyboardInterrupt:
            errors.print("Stopped. Finished tasks are kept, and the same command goes on from there.")

    def encoding(self, sentences: int) -> None:
        """A new bar of this length."""
        self.progress.reset(self.bar, total=sentences, description=f"{self.name} encoding")

    def encoded(self, sentences: int) -> None:
        """Move it."""
        self.progress.advance(self.bar, sentences)

    def scoring(self, task: str) -> None:
        """Say what is being done now."""
        self.progress.update(self.bar, description=f"{self.name} {task}")

    def scored(self, result: TaskResult) -> None:
        """Leave a line behind: should the run be killed, people know what is safe."""
        self._say(f"{result.task} {result.headline(self.aggregation):.2f}")

    def trouble(self, message: str) -> None:
        """Leave a line behind, too."""
        self._say(message)

    def _say(self, text: str) -> None:
        self.progress.console.print(f"{self.name} {text}".lstrip(), highlight=False, markup=False, soft_wrap=True)
