"""A plan that takes seconds: a tiny backbone, a tiny SentEval folder, a few steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conftest import make_backbone
from s2sent.experiments.catalogue import read_catalogue
from s2sent.experiments.inputs import backbone_input
from s2sent.experiments.plan import Place, Settings, expand
from s2sent.experiments.run import Folders
from tiny_senteval import write_folder
from training.runs import make_lines

RECIPE: dict[str, Any] = {"steps": 2, "batch_size": 4, "evaluate_every": 2}


class Bench:
    """Inputs and places of tiny runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.backbone = make_backbone(root / "tiny-bert", "bert", num_hidden_layers=6)
        self.corpus = root / "lines.txt"
        self.corpus.write_text("\n".join(make_lines(64)) + "\n", encoding="utf-8")
        self.data = write_folder(root / "senteval", pairs=24, per_class=120)
        self.folders = Folders(root / "work", device="cpu")

    def settings(self, seeds: int = 1, profile: str = "cpu", **recipe: Any) -> Settings:
        return Settings(
            profile=read_catalogue().profile(profile),
            backbones=(backbone_input(str(self.backbone)),),
            corpus=(str(self.corpus),),
            seeds=seeds,
            recipe={**RECIPE, **recipe},
            data=str(self.data),
        )

    def places(self, *names: str, seeds: int = 1, profile: str = "cpu", **recipe: Any) -> list[Place]:
        catalogue = read_catalogue()
        chosen = [catalogue.experiment(name, profile) for name in names]
        return expand(catalogue, chosen, self.settings(seeds, profile, **recipe))

    def arguments(self, *names: str, store: Path) -> list[str]:
        """The command line's."""
        options = {"backbone": self.backbone, "corpus": self.corpus, "data": self.data, "store": store}
        options |= {"work": self.root / "work", "steps": 2, "batch-size": 4, "device": "cpu", "seeds": 1}
        return [*names, *(text for name, value in options.items() for text in (f"--{name}", str(value)))]
