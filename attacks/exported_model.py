"""An exported model: weights outside its folder, settings of another type, NaN, and files that are something else."""

import json
import os
from typing import Any

import numpy as np
from common import Attack, Spoil, Target, main, write_graph

CONFIG = "s2sent_export.json"


def _weights_at(place: str) -> Spoil:
    def spoil(target: Target) -> None:
        np.ones(4, dtype=np.float32).tofile(target.outside / "weights")
        if place == "link":
            (target.folder / "weights").symlink_to(target.outside / "weights")
        location = {"above": "../outside/weights", "absolute": str(target.outside / "weights"), "link": "weights"}
        write_graph(target.folder, (), location[place])

    return spoil


def _filled(value: float) -> Spoil:
    return lambda target: write_graph(target.folder, (1.0, value, 1.0, 1.0))


def _set(**changes: Any) -> Spoil:
    return lambda target: target.edit(CONFIG, **changes)


def _framing(**changes: Any) -> Spoil:
    def spoil(target: Target) -> None:
        framing = json.loads((target.folder / CONFIG).read_text())["framing"]
        target.edit(CONFIG, framing={**framing, **changes})

    return spoil


def _tokenizer(target: Target) -> None:
    (target.folder / "tokenizer.json").write_text('{"model": {"type": "WordPiece"}}')
    target.edit(CONFIG, files={})


def _fifo(target: Target) -> None:
    (target.folder / CONFIG).unlink()
    os.mkfifo(target.folder / CONFIG)


ATTACK = Attack(
    {
        "weights above the folder": _weights_at("above"),
        "weights at an absolute path": _weights_at("absolute"),
        "weights behind a link": _weights_at("link"),
        "a NaN weight": _filled(float("nan")),
        "an infinite weight": _filled(float("inf")),
        "dimension is a text": _set(dimension="4"),
        "dimension is another": _set(dimension=5),
        "dimension is a billion": _set(dimension=10**9),
        "special is a number": _set(special=3),
        "prompts is a list": _set(prompts=["x"]),
        "prepared is a text": _set(prepared="x"),
        "prepared without normalizers": _set(prepared=2),
        "files is a list": _set(files=["model.onnx"]),
        "files names a file outside": _set(files={"../outside/config.json": 1}),
        "framing is a list": _set(framing=[]),
        "an unknown key": _set(model_kwargs={}),
        "prefix has a text": _framing(prefix=["x"]),
        "prefix has a huge number": _framing(prefix=[10**30]),
        "room is below zero": _framing(room=-1),
        "a damaged tokenizer": _tokenizer,
        "the settings are a FIFO": _fifo,
    },
    modules="export",
    verbs=("load", "encode", "evaluate", "compare"),
)

if __name__ == "__main__":
    main({"exported_model": ATTACK})
