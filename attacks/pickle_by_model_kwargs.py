"""A pickle beside whole safetensors, and a Transformer's settings that tell the loader to read the pickle instead.

sentence-transformers hands `model_kwargs` of the folder on to `from_pretrained`.
"""

from common import Attack, Spoil, Target, main

UNSAFE = {"use_safetensors": False, "weights_only": False}


def _by(key: str, file: str = "sentence_bert_config.json", *, dtype: str | None, stored: object = ...) -> Spoil:
    def spoil(target: Target) -> None:
        target.put_pickle()
        if file != "sentence_bert_config.json":
            (target.folder / file).write_text((target.folder / "sentence_bert_config.json").read_text())
            (target.folder / "sentence_bert_config.json").unlink()
        target.edit(file, **{key: UNSAFE | ({"dtype": dtype} if dtype else {})})
        target.edit("config.json", dtype=stored, torch_dtype=stored)

    return spoil


ATTACK = Attack(
    {
        "as in the issue": _by("model_kwargs", dtype="auto"),
        "without dtype": _by("model_kwargs", dtype=None),
        "with a dtype": _by("model_kwargs", dtype="float32", stored="float32"),
        "by the old key": _by("model_args", dtype="auto"),
        "by an old file": _by("model_kwargs", "sentence_roberta_config.json", dtype="auto"),
    },
    live=("as in the issue", "without dtype", "by the old key", "by an old file"),
)

if __name__ == "__main__":
    main({"pickle_by_model_kwargs": ATTACK})
