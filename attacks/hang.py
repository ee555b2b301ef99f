"""Folders that take for ever, or all the memory, to look at."""

import os

from common import Attack, Change, Target, all_of, edit, remove, write

GIGABYTES = 8 << 30


def _fifo(name: str) -> Change:
    return all_of(remove(name), lambda target: os.mkfifo(target.folder / name))


def _sparse_header(target: Target) -> None:
    with (target.folder / "model.safetensors").open("wb") as file:
        file.write(GIGABYTES.to_bytes(8, "little"))
        file.truncate(GIGABYTES + 8)


ATTACK = Attack(
    {
        "modules.json is a FIFO": _fifo("modules.json"),
        "config.json is a FIFO": _fifo("config.json"),
        "weights are a FIFO": _fifo("model.safetensors"),
        "special_tokens_map.json is a FIFO": _fifo("special_tokens_map.json"),
        "a json file is a device": all_of(
            remove("tokenizer_config.json"),
            lambda target: (target.folder / "tokenizer_config.json").symlink_to("/dev/zero"),
        ),
        "a json file is a folder": all_of(
            remove("config.json"), lambda target: (target.folder / "config.json").mkdir()
        ),
        "json 100,000 levels deep": write("config.json", '{"a":' * 100_000),
        "a header that claims 8 GB": write("model.safetensors", GIGABYTES.to_bytes(8, "little") + b"{}"),
        "a header of 8 GB": _sparse_header,
        "a billion layers": edit("config.json", num_hidden_layers=10**9),
        "ten billion positions": edit("config.json", max_position_embeddings=10**10),
        "a billion labels": edit("config.json", num_labels=10**9),
        "a billion features": edit("1_SelectivePooling/config.json", dim=10**9),
    },
)
