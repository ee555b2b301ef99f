"""The same settings where they do not belong: modules.json, the host's own config, a backbone's."""

from common import Attack, all_of, edit, edit_module, put_pickle

UNSAFE = {"use_safetensors": False, "weights_only": False, "dtype": "auto"}
HOST = "config_sentence_transformers.json"
SETTINGS = "sentence_bert_config.json"
OTHER = "adapter_model.bin"

ATTACK = Attack(
    {
        "kwargs in modules.json": all_of(put_pickle(), edit_module(0, kwargs={"model_kwargs": UNSAFE})),
        "another key in modules.json": all_of(put_pickle(), edit_module(0, model_kwargs=UNSAFE)),
        "config_sentence_transformers.json": all_of(put_pickle(), edit(HOST, model_kwargs=UNSAFE)),
        "another kind of model": all_of(
            put_pickle(), edit(HOST, model_type="CrossEncoder"), edit(SETTINGS, model_kwargs=UNSAFE)
        ),
        "transformers_weights in config.json": all_of(
            put_pickle(OTHER), edit("config.json", transformers_weights=OTHER)
        ),
        "transformers_weights by config_kwargs": all_of(
            put_pickle(OTHER), edit(SETTINGS, config_kwargs={"transformers_weights": OTHER})
        ),
    },
    works_on_host=("transformers_weights in config.json",),
)
