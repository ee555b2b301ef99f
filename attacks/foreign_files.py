"""Files outside the folder, named in a json file of it."""

from common import Attack, Target, edit, edit_module
from safetensors.torch import load_file, save_file

SETTINGS = "sentence_bert_config.json"


def _shard(target: Target) -> None:
    weights = load_file(target.folder / "model.safetensors")
    (target.folder / "model.safetensors").unlink()
    save_file(weights, target.outside / "x.safetensors", metadata={"format": "pt"})
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(weights, "../outside/x.safetensors")}
    target.write("model.safetensors.index.json", index)


def _distributed(target: Target) -> None:
    """Transformers reads these in place of model.safetensors, which is what was checked."""
    weights = (target.folder / "model.safetensors").read_bytes()
    target.write("shard-00000-model-00001-of-00001.safetensors", weights)


ATTACK = Attack(
    {
        "a shard": _shard,
        "tokenizer_name_or_path": edit(SETTINGS, tokenizer_name_or_path="{outside}"),
        "processor_kwargs.tokenizer_file": edit(
            SETTINGS, processor_kwargs={"tokenizer_file": "{outside}/tokenizer.json"}
        ),
        # transformers takes every key of this file for one that the user gave.
        "special_tokens_map.json": edit("special_tokens_map.json", tokenizer_file="{outside}/tokenizer.json"),
        "vocab_file": edit("tokenizer_config.json", vocab_file="{outside}/tokenizer.json"),
        "gguf_file": edit("tokenizer_config.json", gguf_file="{outside}/x.gguf"),
        "a module's path": edit_module(1, path="../outside/1_SelectivePooling"),
        "a module's absolute path": edit_module(1, path="{outside}/1_SelectivePooling"),
        "cache_dir": edit(SETTINGS, model_kwargs={"cache_dir": "{outside}"}),
        "an adapter's base": edit("adapter_config.json", base_model_name_or_path="{outside}", peft_type="LORA"),
        "a processor": edit(
            "processor_config.json", processor_class="CLIPProcessor", audio_tokenizer={"x": "{outside}"}
        ),
        "a distributed checkpoint": _distributed,
    },
    works_on_host=("a shard", "tokenizer_name_or_path", "special_tokens_map.json"),
    loading_is_harm=("a shard", "special_tokens_map.json"),
)
