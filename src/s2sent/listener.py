"""How long tasks report their progress."""

from __future__ import annotations


class Listener:
    """Receives the progress of a long task. This one ignores it; the command line's draws a bar."""

    def note(self, text: str) -> None:
        """Receive a line for the user: a choice that was made, a warning."""

    def status(self, what: str) -> None:
        """Receive what begins now, such as "Loading the backbone"."""

    def progress(self, done: int, total: int, loss: float | None = None) -> None:
        """Receive how many steps (in training, with the loss of the last one) or texts (in encoding) are done."""

    def evaluated(self, step: int, score: float, is_best: bool) -> None:
        """Receive the model's score at a step; step 0 is before training."""
