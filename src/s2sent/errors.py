"""The errors that users see. Each message says what was wrong, where, and what to do."""


class S2SentError(ValueError):
    """Base of every error this package raises on purpose; the command line prints its message without a traceback.

    A message may quote a file: escape sequences, zero bytes and half characters in it are written as escapes.
    """

    def __str__(self) -> str:
        text = super().__str__()
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


class ConfigError(S2SentError):
    """An invalid option, or options that contradict each other."""


class DataError(S2SentError):
    """Text, labels or vectors that cannot be used as they are: a missing file, a wrong column, a bad line."""


class ModelError(S2SentError):
    """A model folder that is unsafe or damaged, or a backbone that does not give what the selector needs."""
