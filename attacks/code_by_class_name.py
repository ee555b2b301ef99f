"""Classes outside the two libraries, named where a loader imports what is named."""

from common import Attack, all_of, edit, edit_module, put_code

SETTINGS = "sentence_bert_config.json"
TRUST = {"trust_remote_code": True}

auto_map = all_of(
    put_code(),
    edit("config.json", auto_map={"AutoConfig": "planted.PayloadConfig", "AutoModel": "planted.PayloadModel"}),
)
# The host calls the method of the model that this names, for each batch.
save = {"method": "save_pretrained", "method_output_name": "last_hidden_state"}

ATTACK = Attack(
    {
        "a module": all_of(put_code(), edit_module(0, type="planted.Payload")),
        "auto_map": auto_map,
        "auto_map in a table inside": all_of(
            put_code(), edit("config.json", text_config={"auto_map": {"AutoConfig": "planted.PayloadConfig"}})
        ),
        "auto_map of the tokenizer": all_of(
            put_code(), edit("tokenizer_config.json", auto_map={"AutoTokenizer": ["planted.Payload", None]})
        ),
        "trust_remote_code": all_of(
            auto_map, edit(SETTINGS, model_kwargs=TRUST, config_kwargs=TRUST, processor_kwargs=TRUST)
        ),
        "a kernel of the hub": edit("config.json", attn_implementation="somebody/kernel"),
        "a kernel of the hub by model_kwargs": edit(SETTINGS, model_kwargs={"attn_implementation": "somebody/kernel"}),
        "a method to call": edit(SETTINGS, modality_config={"text": save}),
    },
    works_on_host=("a module",),
)
