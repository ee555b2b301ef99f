"""Where a command's work can be done."""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """This machine, or a Ray cluster."""

    LOCAL = "local"
    RAY = "ray"
