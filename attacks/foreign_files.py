"""Files outside the folder, named in a json file of it."""

from pathlib import Path

from common import Attack, Target, main
from safetensors.torch import load_file, save_file


def _shard(target: Target) -> None:
    weights = load_file(target.folder / "model.safetensors")
    (target.folder / "model.safetensors").unlink()
    save_file(weights, target.outside / "x.safetensors", metadata={"format": "pt"})
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(weights, "../outside/x.safetensors")}
    target.edit("model.safetensors.index.json", **index)


def _tokenizer_name(target: Target) -> None:
    target.edit("sentence_bert_config.json", tokenizer_name_or_path=str(target.outside))


def _tokenizer_file(target: Target) -> None:
    file = str(target.outside / "tokenizer.json")
    target.edit("sentence_bert_config.json", processor_kwargs={"tokenizer_file": file})


def _special_tokens(target: Target) -> None:
    """Transformers takes every key of this file for one that the user gave."""
    target.edit("special_tokens_map.json", tokenizer_file=str(target.outside / "tokenizer.json"))


def _vocabulary(target: Target) -> None:
    target.edit("tokenizer_config.json", vocab_file=str(target.outside / "tokenizer.json"))


def _gguf(target: Target) -> None:
    target.edit("tokenizer_config.json", gguf_file=str(target.outside / "x.gguf"))


def _module(target: Target) -> None:
    target.edit_module(1, path="../outside/1_SelectivePooling")


def _absolute_module(target: Target) -> None:
    target.edit_module(1, path=str(target.outside / "1_SelectivePooling"))


def _cache(target: Target) -> None:
    target.edit("sentence_bert_config.json", model_kwargs={"cache_dir": str(target.outside)})


def _adapter(target: Target) -> None:
    target.edit("adapter_config.json", base_model_name_or_path=str(target.outside), peft_type="LORA")


def _processor(target: Target) -> None:
    target.edit("processor_config.json", processor_class="CLIPProcessor", audio_tokenizer={"x": str(target.outside)})


def _distributed(target: Target) -> None:
    """Transformers reads these in place of model.safetensors, which is what was checked."""
    weights = (target.folder / "model.safetensors").read_bytes()
    Path(target.folder, "shard-00000-model-00001-of-00001.safetensors").write_bytes(weights)


ATTACK = Attack(
    {
        "a shard": _shard,
        "tokenizer_name_or_path": _tokenizer_name,
        "processor_kwargs.tokenizer_file": _tokenizer_file,
        "special_tokens_map.json": _special_tokens,
        "vocab_file": _vocabulary,
        "gguf_file": _gguf,
        "a module's path": _module,
        "a module's absolute path": _absolute_module,
        "cache_dir": _cache,
        "an adapter's base": _adapter,
        "a processor": _processor,
        "a distributed checkpoint": _distributed,
    },
    live=("a shard", "tokenizer_name_or_path", "special_tokens_map.json"),
    loading_is_harm=("a shard", "special_tokens_map.json"),
)

if __name__ == "__main__":
    main({"foreign_files": ATTACK})
