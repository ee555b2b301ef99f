"""Hearing how an evaluation goes."""

from s2sent.evaluation.result import TaskResult


class Listener:
    """What hears how an evaluation goes; this one says nothing."""

    def encoding(self, sentences: int) -> None:
        """So many sentences are about to be encoded."""

    def encoded(self, sentences: int) -> None:
        """So many more have been."""

    def scoring(self, task: str) -> None:
        """A task is about to be scored."""

    def scored(self, result: TaskResult) -> None:
        """A task is done."""
