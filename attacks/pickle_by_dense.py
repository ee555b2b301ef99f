"""A Dense whose weights are a pickle: in place of safetensors, or read because its settings say so."""

from common import Attack, all_of, edit, put_pickle, remove

UNSAFE = {"use_safetensors": False, "weights_only": False}

ATTACK = Attack(
    {
        "in place of safetensors": all_of(put_pickle("2_Dense/pytorch_model.bin"), remove("2_Dense/model.safetensors")),
        "by its settings": all_of(
            put_pickle("2_Dense/pytorch_model.bin"), edit("2_Dense/config.json", model_kwargs=UNSAFE)
        ),
        "in place of the encoder's": all_of(put_pickle(), remove("model.safetensors")),
    },
    works_on_host=("in place of safetensors", "in place of the encoder's"),
    modules="dense",
)
