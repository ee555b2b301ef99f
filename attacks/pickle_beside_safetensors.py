"""Pickles and code in a folder whose safetensors are complete: the folder loads, and they are never opened."""

from common import Attack, all_of, put_code, put_pickle

PICKLES = ("pytorch_model.bin", "1_SelectivePooling/pytorch_model.bin", "training_args.bin", "optimizer.pt")
CODE = (
    *("s2sent.py", "pooling.py", "SelectivePooling.py", "torch.py"),
    *("s2sent/__init__.py", "s2sent/model/pooling.py", "custom_generate/generate.py"),
)

ATTACK = Attack(
    {"pickles": all_of(*map(put_pickle, PICKLES)), "code": all_of(*map(put_code, CODE))},
    loads=True,
    entry_points=("load", "build", "encode", "evaluate", "compare", "inspect", "train"),  # not export: 15 s
)
