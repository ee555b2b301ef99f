"""Names and texts that no file system or terminal takes, and files that are something else."""

from common import Attack, Spoil, Target, main


def _path(path: str) -> Spoil:
    return lambda target: target.edit_module(1, path=path)


def _tokenizer(content: str) -> Spoil:
    def spoil(target: Target) -> None:
        (target.folder / "tokenizer.json").write_text(content)

    return spoil


def _surrogate(target: Target) -> None:
    target.edit("config_sentence_transformers.json", prompts={"query": "\ud800"})


def _escape(target: Target) -> None:
    target.edit_module(1, type="\x1b[31mred\n")


ATTACK = Attack(
    {
        "NUL in a path": _path("a\0b"),
        "half a character in a path": _path("a\ud800b"),
        "a name of 300 characters": _path("x" * 300),
        "half a character in a prompt": _surrogate,
        "an escape sequence in a class": _escape,
        "a tokenizer without a model": _tokenizer("{}"),
        "a tokenizer of another shape": _tokenizer('{"version": "1.0", "model": {"type": "WordPiece", "vocab": 3}}'),
        "a tokenizer that is a list": _tokenizer("[]"),
    },
    verbs=("load", "encode", "evaluate"),
)

if __name__ == "__main__":
    main({"damaged_text": ATTACK})
