"""The pickle of a Transformer inside a Router, by the Router's settings and by the Transformer's own."""

from common import Attack, all_of, edit, put_pickle

UNSAFE = {"use_safetensors": False, "weights_only": False, "dtype": "auto"}
INNER = "query_0_Transformer"

pickled = put_pickle(f"{INNER}/pytorch_model.bin")

ATTACK = Attack(
    {
        "the Transformer's settings": all_of(
            pickled,
            edit(f"{INNER}/sentence_bert_config.json", model_kwargs=UNSAFE),
            edit(f"{INNER}/config.json", dtype=...),
        ),
        "the Router's parameters": all_of(
            pickled, edit("router_config.json", parameters={"default_route": "query", "model_kwargs": UNSAFE})
        ),
        "the Router's settings": all_of(pickled, edit("router_config.json", model_kwargs=UNSAFE)),
    },
    works_on_host=("the Transformer's settings",),
    modules="router",
)
