"""An exported model: weights outside its folder, settings of another type, NaN, and files that are something else."""

import os
from typing import Any

import numpy as np
from common import Attack, Change, Target, all_of, edit, remove, write, write_graph

CONFIG = "s2sent_export.json"


def _weights_at(location: str, *, link: bool = False) -> Change:
    def change(target: Target) -> None:
        np.ones(4, dtype=np.float32).tofile(target.outside / "weights")
        if link:
            (target.folder / "weights").symlink_to(target.outside / "weights")
        write_graph(target.folder, (), location.format(outside=target.outside))

    return change


def _framing(**changes: Any) -> Change:
    return lambda target: edit(CONFIG, framing={**target.json(CONFIG)["framing"], **changes})(target)


ATTACK = Attack(
    {
        "weights above the folder": _weights_at("../outside/weights"),
        "weights at an absolute path": _weights_at("{outside}/weights"),
        "weights behind a link": _weights_at("weights", link=True),
        "a NaN weight": lambda target: write_graph(target.folder, (1.0, float("nan"), 1.0, 1.0)),
        "an infinite weight": lambda target: write_graph(target.folder, (1.0, float("inf"), 1.0, 1.0)),
        "dimension is a text": edit(CONFIG, dimension="4"),
        "dimension is another": edit(CONFIG, dimension=5),
        "dimension is a billion": edit(CONFIG, dimension=10**9),
        "special is a number": edit(CONFIG, special=3),
        "prompts is a list": edit(CONFIG, prompts=["x"]),
        "prepared is a text": edit(CONFIG, prepared="x"),
        "prepared without normalizers": edit(CONFIG, prepared=2),
        "files is a list": edit(CONFIG, files=["model.onnx"]),
        "files names a file outside": edit(CONFIG, files={"../outside/config.json": 1}),
        "framing is a list": edit(CONFIG, framing=[]),
        "an unknown key": edit(CONFIG, model_kwargs={}),
        "an unknown runtime": edit(CONFIG, runtime="os"),
        "prefix has a text": _framing(prefix=["x"]),
        "prefix has a huge number": _framing(prefix=[10**30]),
        "room is below zero": _framing(room=-1),
        "a damaged tokenizer": all_of(
            write("tokenizer.json", '{"model": {"type": "WordPiece"}}'), edit(CONFIG, files={})
        ),
        "the settings are a FIFO": all_of(remove(CONFIG), lambda target: os.mkfifo(target.folder / CONFIG)),
    },
    modules="export",
    entry_points=("load", "encode", "evaluate", "compare"),
)
