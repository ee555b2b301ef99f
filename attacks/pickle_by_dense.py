"""A Dense whose weights are a pickle, alone or told to be read by its settings."""

from common import Attack, Target, main

UNSAFE = {"use_safetensors": False, "weights_only": False}


def _alone(target: Target) -> None:
    target.put_pickle("2_Dense/pytorch_model.bin")
    (target.folder / "2_Dense" / "model.safetensors").unlink()


def _settings(target: Target) -> None:
    target.put_pickle("2_Dense/pytorch_model.bin")
    target.edit("2_Dense/config.json", model_kwargs=UNSAFE)


def _encoder_alone(target: Target) -> None:
    target.put_pickle()
    (target.folder / "model.safetensors").unlink()


ATTACK = Attack(
    {"in place of safetensors": _alone, "by its settings": _settings, "in place of the encoder's": _encoder_alone},
    live=("in place of safetensors", "in place of the encoder's"),
    modules="dense",
)

if __name__ == "__main__":
    main({"pickle_by_dense": ATTACK})
