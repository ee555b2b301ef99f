"""A Dense whose activation is not a layer: the host imports what is named, and calls it."""

from common import Attack, all_of, edit, put_code

DENSE = "2_Dense/config.json"

ATTACK = Attack(
    {
        "an import": all_of(put_code(), edit(DENSE, activation_function="planted.Payload")),
        "a function of torch": edit(DENSE, activation_function="torch.hub.list"),
        "a class that is no activation": edit(DENSE, activation_function="torch.nn.parallel.DistributedDataParallel"),
    },
    modules="dense",
)
