"""Names and texts that no file system or terminal takes, and files that are something else."""

from common import Attack, edit, edit_module, write

ATTACK = Attack(
    {
        "NUL in a path": edit_module(1, path="a\0b"),
        "half a character in a path": edit_module(1, path="a\ud800b"),
        "a name of 300 characters": edit_module(1, path="x" * 300),
        "half a character in a prompt": edit("config_sentence_transformers.json", prompts={"query": "\ud800"}),
        "an escape sequence in a class": edit_module(1, type="\x1b[31mred\n"),
        "a tokenizer without a model": write("tokenizer.json", "{}"),
        "a tokenizer of another shape": write(
            "tokenizer.json", '{"version": "1.0", "model": {"type": "WordPiece", "vocab": 3}}'
        ),
        "a tokenizer that is a list": write("tokenizer.json", "[]"),
    },
    entry_points=("load", "encode", "evaluate"),
)
