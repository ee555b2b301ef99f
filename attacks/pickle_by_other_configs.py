"""The same settings where they do not belong: modules.json, the host's own config, a Router's, a backbone's."""

from common import Attack, Target, main

UNSAFE = {"use_safetensors": False, "weights_only": False, "dtype": "auto"}


def _modules(target: Target) -> None:
    target.put_pickle()
    target.edit_module(0, kwargs={"model_kwargs": UNSAFE})


def _modules_key(target: Target) -> None:
    target.put_pickle()
    target.edit_module(0, model_kwargs=UNSAFE)


def _host(target: Target) -> None:
    target.put_pickle()
    target.edit("config_sentence_transformers.json", model_kwargs=UNSAFE)


def _other_kind(target: Target) -> None:
    target.put_pickle()
    target.edit("config_sentence_transformers.json", model_type="CrossEncoder")
    target.edit("sentence_bert_config.json", model_kwargs=UNSAFE)


def _backbone(target: Target) -> None:
    target.put_pickle("adapter_model.bin")
    target.edit("config.json", transformers_weights="adapter_model.bin")


def _config_kwargs(target: Target) -> None:
    target.put_pickle("adapter_model.bin")
    target.edit("sentence_bert_config.json", config_kwargs={"transformers_weights": "adapter_model.bin"})


ATTACK = Attack(
    {
        "kwargs in modules.json": _modules,
        "another key in modules.json": _modules_key,
        "config_sentence_transformers.json": _host,
        "another kind of model": _other_kind,
        "transformers_weights in config.json": _backbone,
        "transformers_weights by config_kwargs": _config_kwargs,
    },
    live=("transformers_weights in config.json",),
)

if __name__ == "__main__":
    main({"pickle_by_other_configs": ATTACK})
