"""A Dense whose activation is not a layer: the host imports what is named, and calls it."""

from common import Attack, Target, main


def _import(target: Target) -> None:
    target.put_code("planted.py")
    target.edit("2_Dense/config.json", activation_function="planted.Payload")


def _function(target: Target) -> None:
    target.edit("2_Dense/config.json", activation_function="torch.hub.list")


def _other_module(target: Target) -> None:
    target.edit("2_Dense/config.json", activation_function="torch.nn.parallel.DistributedDataParallel")


ATTACK = Attack(
    {"an import": _import, "a function of torch": _function, "a class that is no activation": _other_module},
    modules="dense",
)

if __name__ == "__main__":
    main({"code_by_activation": ATTACK})
