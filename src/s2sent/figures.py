"""Figures without a screen: made in memory, written to a file whose ending decides the format."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from s2sent.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("Figures need matplotlib, which is not installed: pip install 's2sent[plot]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


def drawn(figure: Figure, kind: str) -> bytes:
    """Return the figure as the bytes of an `svg` or `png`: of the same figure, the same ones."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "s2sent"}):
        figure.savefig(buffer, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def check_figure_path(path: Path) -> None:
    """Raise unless a figure can be written there, before anything long is computed for it; make its folder."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path} does not end in a format for figures. Legal: {', '.join(FORMATS)}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure."""
    check_figure_path(path)
    try:
        figure.savefig(path, dpi=160)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
