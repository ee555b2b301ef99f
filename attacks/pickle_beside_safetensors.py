"""Pickles and code that lie in a folder whose safetensors are whole: the folder loads, and nobody looks at them."""

from common import Attack, Target, main


def _pickles(target: Target) -> None:
    for name in ("pytorch_model.bin", "1_SelectivePooling/pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        target.put_pickle(name)


def _code(target: Target) -> None:
    for name in ("s2sent.py", "pooling.py", "torch.py", "s2sent/model/pooling.py", "custom_generate/generate.py"):
        target.put_code(name)


ATTACK = Attack(
    {"pickles": _pickles, "code": _code},
    loads=True,
    verbs=("load", "build", "encode", "evaluate", "compare", "inspect", "train"),  # not export, which takes 15 s
)

if __name__ == "__main__":
    main({"pickle_beside_safetensors": ATTACK})
