"""Classes outside the two libraries, named where a loader imports what is named."""

from common import Attack, Target, main


def _module(target: Target) -> None:
    target.put_code("planted.py")
    target.edit_module(0, type="planted.Payload")


def _auto_map(target: Target) -> None:
    target.put_code("planted.py")
    target.edit("config.json", auto_map={"AutoConfig": "planted.PayloadConfig", "AutoModel": "planted.PayloadModel"})


def _auto_map_inside(target: Target) -> None:
    target.put_code("planted.py")
    target.edit("config.json", text_config={"auto_map": {"AutoConfig": "planted.PayloadConfig"}})


def _tokenizer(target: Target) -> None:
    target.put_code("planted.py")
    target.edit("tokenizer_config.json", auto_map={"AutoTokenizer": ["planted.Payload", None]})


def _trust(target: Target) -> None:
    _auto_map(target)
    kwargs = {"trust_remote_code": True}
    target.edit("sentence_bert_config.json", model_kwargs=kwargs, config_kwargs=kwargs, processor_kwargs=kwargs)


def _kernel(target: Target) -> None:
    target.edit("config.json", attn_implementation="somebody/kernel")


def _kernel_kwargs(target: Target) -> None:
    target.edit("sentence_bert_config.json", model_kwargs={"attn_implementation": "somebody/kernel"})


def _method(target: Target) -> None:
    """The host calls the method of the model that this names, for each batch."""
    text = {"method": "save_pretrained", "method_output_name": "last_hidden_state"}
    target.edit("sentence_bert_config.json", modality_config={"text": text})


ATTACK = Attack(
    {
        "a module": _module,
        "auto_map": _auto_map,
        "auto_map in a table inside": _auto_map_inside,
        "auto_map of the tokenizer": _tokenizer,
        "trust_remote_code": _trust,
        "a kernel of the hub": _kernel,
        "a kernel of the hub by model_kwargs": _kernel_kwargs,
        "a method to call": _method,
    },
    live=("a module",),
)

if __name__ == "__main__":
    main({"code_by_class_name": ATTACK})
