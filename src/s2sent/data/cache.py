"""The cache folder."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return `S2SENT_CACHE` if set, else `s2sent` in the user's cache folder (`XDG_CACHE_HOME` or `~/.cache`)."""
    own = os.environ.get("S2SENT_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "s2sent"
