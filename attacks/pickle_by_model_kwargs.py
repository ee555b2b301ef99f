"""A pickle beside complete safetensors, and a Transformer's settings that make the loader read the pickle instead.

sentence-transformers passes `model_kwargs` of the folder on to `from_pretrained`.
"""

from common import Attack, Change, Target, all_of, edit, put_pickle

SETTINGS = "sentence_bert_config.json"
UNSAFE = {"use_safetensors": False, "weights_only": False}


def _unsafe(key: str = "model_kwargs", file: str = SETTINGS, *, stored: object = ..., **options: str) -> Change:
    def move(target: Target) -> None:
        (target.folder / SETTINGS).rename(target.folder / file)

    return all_of(
        put_pickle(), move, edit(file, **{key: UNSAFE | options}), edit("config.json", dtype=stored, torch_dtype=stored)
    )


ATTACK = Attack(
    {
        "dtype auto": _unsafe(dtype="auto"),
        "without dtype": _unsafe(),
        "with a dtype": _unsafe(dtype="float32", stored="float32"),
        "by the old key": _unsafe("model_args", dtype="auto"),
        "by an old file": _unsafe(file="sentence_roberta_config.json", dtype="auto"),
    },
    works_on_host=("dtype auto", "without dtype", "by the old key", "by an old file"),
)
