"""Folders that take for ever, or all the memory, to look at."""

import os

from common import Attack, Spoil, Target, main


def _fifo(name: str) -> Spoil:
    def spoil(target: Target) -> None:
        (target.folder / name).unlink(missing_ok=True)
        os.mkfifo(target.folder / name)

    return spoil


def _device(target: Target) -> None:
    (target.folder / "tokenizer_config.json").unlink()
    (target.folder / "tokenizer_config.json").symlink_to("/dev/zero")


def _folder(target: Target) -> None:
    (target.folder / "config.json").unlink()
    (target.folder / "config.json").mkdir()


def _deep(target: Target) -> None:
    (target.folder / "config.json").write_text('{"a":' * 100_000)


def _header(target: Target) -> None:
    (target.folder / "model.safetensors").write_bytes((8 << 30).to_bytes(8, "little") + b"{}")


def _sparse_header(target: Target) -> None:
    with (target.folder / "model.safetensors").open("wb") as file:
        file.write((8 << 30).to_bytes(8, "little"))
        file.truncate((8 << 30) + 8)


def _layers(target: Target) -> None:
    target.edit("config.json", num_hidden_layers=10**9)


def _positions(target: Target) -> None:
    target.edit("config.json", max_position_embeddings=10**10)


def _labels(target: Target) -> None:
    target.edit("config.json", num_labels=10**9)


def _frequencies(target: Target) -> None:
    target.edit("1_SelectivePooling/config.json", dim=10**9)


ATTACK = Attack(
    {
        "modules.json is a FIFO": _fifo("modules.json"),
        "config.json is a FIFO": _fifo("config.json"),
        "weights are a FIFO": _fifo("model.safetensors"),
        "special_tokens_map.json is a FIFO": _fifo("special_tokens_map.json"),
        "a json file is a device": _device,
        "a json file is a folder": _folder,
        "json 100,000 levels deep": _deep,
        "a header that claims 8 GB": _header,
        "a header of 8 GB": _sparse_header,
        "a billion layers": _layers,
        "ten billion positions": _positions,
        "a billion labels": _labels,
        "a billion features": _frequencies,
    },
)

if __name__ == "__main__":
    main({"hang": ATTACK})
