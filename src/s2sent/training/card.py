"""The model card: what the model is, how it came about, how good it is, how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import s2sent
from s2sent.training.recipes import Recipe, to_toml
from s2sent.untrusted import exists

_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, sentence-similarity, feature-extraction, s2sent]{base_model}
---

# {title}

{what}, trained with
s2sent {version} from `{backbone}` by the objective `{objective}`.

```python
import s2sent
model = s2sent.load("{title}")      # or SentenceTransformer("{title}", trust_remote_code=True)
vectors = model.encode(["A sentence.", "Another one."])
```

## Scores

{scores}

The weights are those of step {step}.{curve}

## Data

{data}

## Recipe

`s2sent train --recipe recipe.toml --output …` repeats it. Here files go by their names alone.

```toml
{recipe}```
"""

_WHAT = {
    "none": "A sentence encoder without selection",
    "static": "A sentence encoder with one learned weight per block of its Transformer",
}


def model_card(title: str, recipe: Recipe, data: str, scores: Mapping[str, str], step: str, *, has_curve: bool) -> str:
    """Write the card's text; `step` is the one whose weights these are, of how many."""
    is_local = exists(Path(recipe.backbone))
    recipe = recipe.unplaced()  # a place on this machine means nothing to whoever reads the card elsewhere
    table = ["| | score |", "|---|---:|", *(f"| {name} | {value} |" for name, value in scores.items())]
    return _CARD.format(
        title=title,
        what=_WHAT.get(
            recipe.selection.gate,
            "A sentence encoder that selects, per feature, what each block of its Transformer knows (S²Sent)",
        ),
        version=s2sent.__version__,
        backbone=recipe.backbone,
        base_model="" if is_local else f"\nbase_model: {recipe.backbone}",
        objective=recipe.objective,
        scores="\n".join(table) if scores else "Not evaluated.",
        step=step,
        curve="\n\n![The run](training/curve.png)" if has_curve else "",
        data=data,
        recipe=to_toml(recipe.to_dict()),
    )
