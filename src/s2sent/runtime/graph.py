"""A model as one ONNX graph, from token ids to the sentence vector, made for onnxruntime."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from s2sent.errors import ModelError
from s2sent.model.pooling import SelectivePooling

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "sentence_embedding"
_ATTENTION = "s2sent_onnxruntime"
_ONE_FILE = 1 << 30
"""Bytes of weights up to which they are in the graph's file. A protobuf ends at 2 GB."""


class _Graph(nn.Module):
    """What a model does with a padded batch: the backbone, and every module after it."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        encoder: Any = model[0]
        self.backbone = encoder.auto_model
        self.after = nn.ModuleList(list(model)[1:])
        self.truncate_dim = model.truncate_dim

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the sentence vectors (b, d) of tokens (b, l)."""
        out = self.backbone(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, return_dict=True
        )
        features: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
        features |= {"token_embeddings": out[0], "all_layer_embeddings": out.hidden_states}
        for module in self.after:
            if isinstance(module, SelectivePooling):
                features[OUTPUT] = module.select(features).embedding
            else:
                features = module(features)
        vectors: Tensor = features[OUTPUT]
        return vectors[:, : self.truncate_dim]


def write_graph(model: SentenceTransformer, input_ids: Tensor, attention_mask: Tensor, path: Path) -> list[str]:
    """Write a model's graph, and return the names of the backbone's matrix products, for `quantize`.

    Args:
        model: The model, on the CPU and in fp32.
        input_ids: An example (b, l) of at least two rows and two tokens. Both sizes stay open in the graph.
        attention_mask: Its mask.
        path: The file. A very large model's weights are put beside it.

    Raises:
        ModelError: the model has something that cannot be exported.
    """
    pipeline = _Graph(model).eval()
    dynamic = torch.export.Dim.DYNAMIC
    try:
        with quiet(), torch.no_grad(), _fused_attention(pipeline.backbone):
            program = torch.onnx.export(
                pipeline,
                (input_ids, attention_mask),
                dynamo=True,
                dynamic_shapes=({0: dynamic, 1: dynamic},) * 2,
                input_names=INPUTS,
                output_names=(OUTPUT,),
                verbose=False,
            )
    except Exception as error:  # the exporter wraps whatever a model's code raises
        parts = " → ".join(type(part).__name__ for part in (pipeline.backbone, *pipeline.after))
        raise ModelError(f"{parts} cannot be exported to ONNX: {_reason(error)}. Encode with it in torch.") from error
    assert program is not None
    graph = program.model_proto
    # Shapes of what is in between are for the exporter's own checks, and other tools stumble over them.
    del graph.graph.value_info[:]
    for value in (*graph.graph.input, *graph.graph.output):
        for dim, name in zip(value.type.tensor_type.shape.dim, ("batch", "length"), strict=True):
            if not dim.HasField("dim_value"):
                dim.dim_param = name
    products = [node.name for node in graph.graph.node if node.op_type == "MatMul" and _in_backbone(node)]
    _strip_notes(graph.graph)
    _save(graph, path)
    return products


def quantize(source: Path, target: Path, products: list[str]) -> None:
    """Write a graph whose backbone multiplies in int8: weights per channel, activations as each batch has them.

    The selection stays in fp32: its products are too small to gain anything. Weights have 7 bits, because processors
    without VNNI add pairs of products in 16 bits, where 8-bit weights overflow. The vocabulary's vectors are kept in
    8 bits, each with a scale of its own.

    Args:
        source: The graph in fp32.
        target: The file to write.
        products: The names of the matrix products, as `write_graph` returned them.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with quiet():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=products,
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=source.with_name(f"{source.name}.data").exists(),
            # onnxruntime's own operators have no shapes that onnx could infer: say that all floats are fp32.
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
    model = onnx.load(target)
    _quantize_vocabulary(model.graph)
    _save(model, target)


def _quantize_vocabulary(graph: Any) -> None:
    """Store the vectors of the vocabulary in int8, with a scale for each."""
    from onnx import TensorProto, helper, numpy_helper

    tables = {table.name: table for table in graph.initializer}
    for place, node in reversed(list(enumerate(graph.node))):
        if node.op_type != "Gather" or node.input[0] not in tables or node.input[1] != INPUTS[0]:
            continue
        name, vectors = node.input[0], numpy_helper.to_array(tables[node.input[0]])
        if vectors.dtype != np.float32 or any(name in other.input for other in graph.node if other is not node):
            continue
        scales = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), 1e-12).astype(np.float32) / 127
        graph.initializer.remove(tables[name])
        graph.initializer.append(numpy_helper.from_array(np.rint(vectors / scales).astype(np.int8), f"{name}_int8"))
        graph.initializer.append(numpy_helper.from_array(scales, f"{name}_scale"))
        found = f"{node.output[0]}_found"
        looked_up = [
            helper.make_node("Gather", [f"{name}_int8", INPUTS[0]], [f"{found}_int8"]),
            helper.make_node("Cast", [f"{found}_int8"], [found], to=TensorProto.FLOAT),
            helper.make_node("Gather", [f"{name}_scale", INPUTS[0]], [f"{found}_scale"]),
            helper.make_node("Mul", [found, f"{found}_scale"], [node.output[0]]),
        ]
        graph.node.remove(node)
        for new in reversed(looked_up):
            graph.node.insert(place, new)


def _save(model: Any, path: Path) -> None:
    import onnx

    data = path.with_name(f"{path.name}.data")
    data.unlink(missing_ok=True)
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    onnx.save(model, path, save_as_external_data=size > _ONE_FILE, location=data.name)


def _strip_notes(graph: Any) -> None:
    """Remove where in the source code each node comes from."""
    for item in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        item.ClearField("metadata_props")
        item.ClearField("doc_string")


@contextmanager
def quiet() -> Iterator[None]:
    """Hide what the exporter and the quantiser print."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        # What cannot be traced is printed whole, thousands of lines of it.
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _in_backbone(node: Any) -> bool:
    return any(item.key == "pkg.torch.onnx.name_scopes" and "'backbone'" in item.value for item in node.metadata_props)


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


@contextmanager
def _fused_attention(backbone: Any) -> Iterator[None]:
    """Export attention as one operator of onnxruntime, if the model lets one choose its attention."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(_ATTENTION, _attention)
    AttentionMaskInterface.register(_ATTENTION, eager_mask)  # as numbers that are added: 0, or a very negative one
    before = backbone.config._attn_implementation
    try:
        backbone.set_attn_implementation(_ATTENTION)
    except ValueError:  # MPNet, DeBERTa: they have one attention, their own
        yield
        return
    try:
        yield
    finally:
        backbone.set_attn_implementation(before)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of queries (b, heads, l, d/heads) as the operator that does not copy heads in memory."""
    del module
    b, heads, length, width = query.shape
    if key.shape[1] != heads:  # several heads share their keys and values
        key, value = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (key, value))
    q, k, v = (x.transpose(1, 2).reshape(b, length, heads * width) for x in (query, key, value))
    out = torch.onnx.ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        (q, k, v, None, None, attention_mask),
        {"num_heads": heads, "scale": float(scaling if scaling is not None else width**-0.5)},
        dtype=q.dtype,
        shape=q.shape,
        version=1,
    )
    return out.view(b, length, heads, width), None
