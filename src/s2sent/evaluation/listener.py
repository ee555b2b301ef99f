"""Hearing how an evaluation goes."""

import warnings

from s2sent.evaluation.result import TaskResult


class Listener:
    """What hears how an evaluation goes; this one says nothing but what went wrong."""

    def encoding(self, sentences: int) -> None:
        """So many sentences are about to be encoded."""

    def encoded(self, sentences: int) -> None:
        """So many more have been."""

    def scoring(self, task: str) -> None:
        """A task is about to be scored."""

    def scored(self, result: TaskResult) -> None:
        """A task is done."""

    def trouble(self, message: str) -> None:
        """Something went wrong that costs no score."""
        warnings.warn(message, stacklevel=2)
