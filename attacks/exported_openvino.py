"""An exported model for OpenVINO: files elsewhere or missing, a graph that is changed, NaN, and wrong settings."""

import os

from common import Attack, Change, Target, all_of, as_openvino, edit, remove, write, write_graph

CONFIG, GRAPH, WEIGHTS = "s2sent_export.json", "model.xml", "model.weights"


def _link(name: str) -> Change:
    def change(target: Target) -> None:
        (target.folder / name).rename(target.outside / name)
        (target.folder / name).symlink_to(target.outside / name)

    return change


def _replace(old: str, new: str) -> Change:
    def change(target: Target) -> None:
        text = (target.folder / GRAPH).read_text()
        assert old in text
        target.write(GRAPH, text.replace(old, new))

    return change


def _fifo(name: str) -> Change:
    return all_of(remove(name), lambda target: os.mkfifo(target.folder / name))


def _weight(value: float) -> Change:
    def change(target: Target) -> None:
        write_graph(target.folder, (1.0, value, 1.0, 1.0))
        as_openvino(target.folder)

    return change


ATTACK = Attack(
    {
        "the graph behind a link": _link(GRAPH),
        "the weights behind a link": _link(WEIGHTS),
        "the graph is a FIFO": _fifo(GRAPH),
        "the weights are a FIFO": _fifo(WEIGHTS),
        "no weights": remove(WEIGHTS),
        "empty weights": write(WEIGHTS, b""),
        "weights of another size": write(WEIGHTS, b"\0" * 4),
        "a graph that is no xml": write(GRAPH, b"\0" * 100),
        "a graph nested a million times": write(GRAPH, "<net>" * 1_000_000),
        "a constant behind the end of the weights": _replace('offset="0"', 'offset="99999999999999"'),
        "a constant of a negative place": _replace('offset="0"', 'offset="-8"'),
        "a constant of terabytes": _replace('size="16"', 'size="99999999999999"'),
        "an unknown operator": _replace('type="MatMul"', 'type="Planted"'),
        "an operator of a library": _replace('version="opset1"', 'version="planted.so"'),
        "a NaN weight": _weight(float("nan")),
        "an infinite weight": _weight(float("inf")),
        "dimension is another": edit(CONFIG, dimension=5),
        "the graph of another runtime": edit(CONFIG, runtime="onnxruntime"),
        "an unknown precision": edit(CONFIG, precision="int1"),
        "bucket is a text": edit(CONFIG, bucket="8"),
        "bucket is below zero": edit(CONFIG, bucket=-8),
        "bucket is a huge number": edit(CONFIG, bucket=10**30),
    },
    modules="openvino",
    entry_points=("load", "encode", "evaluate", "compare"),
)
