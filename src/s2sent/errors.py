"""The errors a user can meet. Each message says what was wrong, where, and what to do."""


class S2SentError(ValueError):
    """Base of every error this package raises on purpose; the command line prints its message without a traceback."""


class ConfigError(S2SentError):
    """An option that is not legal, or options that contradict each other."""


class DataError(S2SentError):
    """Text, labels or vectors that cannot be used as they are: a missing file, a wrong column, a bad line."""


class ModelError(S2SentError):
    """A model folder that must not or cannot be loaded, or a backbone that does not give what the selector needs."""
