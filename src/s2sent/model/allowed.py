"""The allowed keys and values of the json files in a model folder. Every other key is refused.

A loader passes much of a folder's json on to functions that open files, import classes or unpickle. The lists follow
from what sentence-transformers and transformers do with each key: a key is here if it only sets a plain value. The
exception is a backbone's config.json, where every family of models has keys of its own, most of them numbers: there the
keys that do more than set a value are listed, and all others are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from s2sent.errors import ModelError
from s2sent.model.rules import EMPTY, Required, Rules, check_value, each, is_int, refusal
from s2sent.untrusted import Table

_COUNT = range((1 << 31) + 1)
_FEW = range(1001)
_NAME = re.compile(r"\w+", re.ASCII)
_SIDE = {"left", "right"}
_DTYPE = {"auto", "float32", "float16", "bfloat16", "float64", "half", "float", "double"}
# transformers' own. Any other name can be a kernel on the hub, which is code.
_ATTENTION = {"eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "paged|eager", "paged|sdpa"}
_EXPERTS = {"eager", "batched_mm", "grouped_mm"}

# --- sentence-transformers ----------------------------------------------------------------------------------------

MODULES_ENTRY: Rules = {"idx": _COUNT, "name": str, "path": str, "type": str, "kwargs": [_NAME]}

CONFIG_SENTENCE_TRANSFORMERS: Rules = {
    **each({"*": str}, "__version__ requirements prompts"),
    **each(str, "default_prompt_name similarity_fn_name"),
    "truncate_dim": _COUNT,
    "model_type": {"SentenceTransformer"},  # for another one sentence-transformers builds other modules than are listed
}

_MODEL_KWARGS: Rules = {
    **each(_DTYPE, "dtype torch_dtype"),
    "attn_implementation": _ATTENTION,
    "add_pooling_layer": bool,
}
_PROCESSOR_KWARGS: Rules = {
    "model_max_length": _COUNT,
    **each(_SIDE, "padding_side truncation_side"),
    **each(bool, "use_fast do_lower_case add_prefix_space"),
}
_CONFIG_KWARGS: Rules = each(bool, "use_cache is_causal use_bidirectional_attention")
_TOKENIZER_CALL: Rules = {
    "padding": (bool, {"longest", "max_length", "do_not_pad"}),
    "truncation": (bool, {"longest_first", "only_first", "only_second", "do_not_truncate"}),
    **each(_COUNT, "max_length pad_to_multiple_of"),
    "padding_side": _SIDE,
    **each(bool, "add_special_tokens return_token_type_ids"),
}
# The host calls the method of the model that is named here, and takes the output that is named.
_MODALITY: Rules = {
    "method": Required({"forward"}),
    "method_output_name": Required({"last_hidden_state"}),
    "format": {"structured", "flat", "auto"},
}
_TRANSFORMER: Rules = {
    "transformer_task": {"feature-extraction"},
    "modality_config": {"text": _MODALITY, "message": _MODALITY},
    "module_output_name": _NAME,
    "processing_kwargs": {
        "common": _TOKENIZER_CALL,
        "text": _TOKENIZER_CALL,
        "chat_template": {"add_generation_prompt": bool},
    },
    **each(bool, "unpad_inputs do_lower_case"),
    **each(_COUNT, "query_length document_length max_seq_length"),
    **each(None, "query_expansion tokenizer_name_or_path"),
    **dict.fromkeys(("model_kwargs", "model_args"), _MODEL_KWARGS),
    **dict.fromkeys(("processor_kwargs", "tokenizer_args"), _PROCESSOR_KWARGS),
    **dict.fromkeys(("config_kwargs", "config_args"), _CONFIG_KWARGS),
}
ROUTER: Rules = {
    "types": {"*": str},
    "structure": {"*": [str]},
    "parameters": {"default_route": str, "allow_empty_key": bool, "route_mappings": {"*": str}},
}
ROUTER_FILES = ("router_config.json", "config.json")
"""Where sentence-transformers looks for a Router's settings: in the second if the first is empty."""

# --- transformers -------------------------------------------------------------------------------------------------

_TOKEN = (str, {"*": (str, bool)})
# transformers passes every key of this file on as if a user had given it, a path of a vocabulary included.
_SPECIAL_TOKENS_MAP: Rules = {
    "*_token": _TOKEN,
    "additional_special_tokens": [_TOKEN],
    "extra_special_tokens": ([_TOKEN], {"*": _TOKEN}),
}
_TOKENIZER_CONFIG: Rules = {
    **_SPECIAL_TOKENS_MAP,
    **each({"*": _TOKEN}, "added_tokens_decoder model_specific_special_tokens"),
    **each(_NAME, "tokenizer_class backend"),
    # Where the author had it. transformers puts its own value in its place, or never reads it.
    **each(str, "name_or_path special_tokens_map_file _commit_hash"),
    "chat_template": (str, [{"*": str}]),  # runs in transformers' sandbox, and only for chats
    "model_max_length": float,  # 1e30 stands for no limit
    "max_model_input_sizes": {"*": float},
    "model_input_names": [_NAME],
    **each(EMPTY, "sp_model_kwargs init_inputs"),  # could name the file of a vocabulary
    **each(None, "device_map tokenizer_file vocab_file merges_file"),
    **each(float, "max_len max_length stride pad_to_multiple_of pad_token_type_id vocab_size"),
    **each(_SIDE, "padding_side truncation_side"),
    **each(str, "errors truncation_strategy padding src_lang tgt_lang vocab_type wordpieces_prefix"),
    "never_split": [str],
    "truncation": (bool, str),
    **each(bool, "is_local local_files_only use_fast from_slow legacy normalization unk_token_as_text lowercase"),
    **each(bool, "add_bos_token add_eos_token add_prefix_space add_dummy_prefix_space clean_up_tokenization_spaces"),
    **each(bool, "clean_text do_basic_tokenize do_lower_case do_lowercase handle_chinese_chars keep_accents"),
    **each(bool, "remove_space spaces_between_special_tokens split_by_punct split_special_tokens strip_accents"),
    **each(bool, "tokenize_chinese_chars trim_offsets use_default_system_prompt wordpieces_prefix_space"),
}

_RUNS_CODE, _FETCHES_CODE = "it makes loading run code from the folder", "it makes loading fetch code from the hub"
_OTHER_WEIGHTS = "it names other weights than model.safetensors"
_QUANTIZED = "quantised weights need code that is not checked here. Save the model dequantised"
_CONFIG_REFUSED = {
    **dict.fromkeys(("auto_map", "custom_pipelines"), _RUNS_CODE),
    **dict.fromkeys(("kernel_config", "use_kernels", "allow_all_kernels"), _FETCHES_CODE),
    **dict.fromkeys(("transformers_weights", "gguf_file"), _OTHER_WEIGHTS),
    **dict.fromkeys(("quantization_config", "compression_config"), _QUANTIZED),
    "configuration_files": "it names other files to read in place of this one",
    "fusion_config": "it changes the classes of transformers for the whole process",
    "distributed_config": "it changes how weights are read",
    "processor_class": "it belongs to a model for images or sound",
    "base_model_name_or_path": "it names another model to read",
}
"""Keys of a backbone's config.json, at any depth, that make a loader import, fetch or open something, and why not."""
_CONFIG_LIMITED: Rules = {
    "model_type": re.compile(r"[\w.-]+", re.ASCII),
    "tokenizer_class": _NAME,
    "architectures": [_NAME],
    **each(_DTYPE, "dtype torch_dtype"),
    **each(_ATTENTION, "attn_implementation _attn_implementation"),
    **each(_EXPERTS, "experts_implementation _experts_implementation"),
}
_LABELS = ("id2label", "label2id")  # their keys are any words
_REPEATED = re.compile(r"(layers?|experts?|groups?|blocks?)$|^num_.*(layer|expert|group|block)")
_NO_SIZE = re.compile(r"theta|seed|base")
_MAX_REPEATED = 512
_MAX_SIZE = 1 << 24

# --- modules ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    """A kind of module that a folder may have.

    Attributes:
        files: The rules of its json files.
        optional: The same for files that need not be there.
        weights: Whether it has weights of its own.
        sized: Whether the numbers of its files are sizes of its weights.
    """

    files: Mapping[str, Rules]
    optional: Mapping[str, Rules] = field(default_factory=dict)
    weights: bool = False
    sized: bool = False


ANY_TABLE: Rules = {"*": object}
BACKBONE_CONFIG: Rules = {}
"""Stands for the check of `check_backbone_config`, which is no list of keys."""

_DIMENSION: Rules = each(_COUNT, "embedding_dimension word_embedding_dimension")
_FEATURES: Rules = each(_NAME, "module_input_name module_output_name")
_ACTIVATION = re.compile(r"torch\.nn(\.modules(\.activation|\.linear)?)?\.[A-Z]\w*", re.ASCII)
_WORD_TOKENIZER = re.compile(r"sentence_transformers\.[a-zA-Z_.]+\.WhitespaceTokenizer")
_POOLING_MODES = "cls_token mean_tokens max_tokens mean_sqrt_len_tokens weightedmean_tokens lasttoken"
_POOLING: Rules = {
    **_DIMENSION,
    **{f"pooling_mode_{mode}": bool for mode in _POOLING_MODES.split()},
    "pooling_mode": (str, [str]),
    "include_prompt": bool,
}
_WORD_WEIGHTS: Rules = {"vocab": [str], "word_weights": {"*": float}, "unknown_word_weight": float}
_BERT_LIKE = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")


def _weighted(rules: Rules, file: str = "config.json") -> Module:
    return Module({file: rules}, weights=True, sized=True)


def _transformer(rules: Rules) -> Module:
    return Module(
        {"config.json": BACKBONE_CONFIG, "tokenizer_config.json": _TOKENIZER_CONFIG},
        {
            # The host takes the settings of the first of these files that is not empty.
            **{f"sentence_{name}_config.json": rules for name in _BERT_LIKE},
            "special_tokens_map.json": _SPECIAL_TOKENS_MAP,
            **each(ANY_TABLE, "added_tokens.json tokenizer.json vocab.json"),  # tokens and numbers only
        },
        weights=True,
    )


TRANSFORMER = _transformer(_TRANSFORMER)
ROUTER_MODULE = Module({})
"""Its settings name other modules, which are checked one by one."""
HOST_MODULES: Mapping[str, Module] = {
    "Transformer": TRANSFORMER,
    "Router": ROUTER_MODULE,
    "Pooling": Module({"config.json": _POOLING}),
    "Dense": _weighted(
        {
            **_FEATURES,
            **each(_COUNT, "in_features out_features"),
            **each(bool, "bias use_residual"),
            "activation_function": _ACTIVATION,
        }
    ),
    "Normalize": Module({}, {"config.json": _FEATURES}),  # the folder may not have been copied
    "Dropout": Module({"config.json": {"dropout": float}}),
    "LayerNorm": _weighted({"dimension": _COUNT}),
    "WeightedLayerPooling": _weighted({**_DIMENSION, **each(_FEW, "layer_start num_hidden_layers")}),
    "CNN": _weighted(
        {
            **each(_COUNT, "in_embedding_dimension in_word_embedding_dimension out_channels"),
            **each([_FEW], "kernel_sizes stride_sizes"),
        },
        "cnn_config.json",
    ),
    "LSTM": _weighted(
        {**_DIMENSION, "hidden_dim": _COUNT, "num_layers": _FEW, "dropout": float, "bidirectional": bool},
        "lstm_config.json",
    ),
    "BoW": Module({"config.json": {**_WORD_WEIGHTS, "cumulative_term_frequency": bool}}),
    "WordWeights": Module({"config.json": _WORD_WEIGHTS}),
    "WordEmbeddings": Module(
        {
            "wordembedding_config.json": {
                "tokenizer_class": _WORD_TOKENIZER,
                "update_embeddings": bool,
                "max_seq_length": _COUNT,
            },
            "whitespacetokenizer_config.json": {**each([str], "vocab stop_words"), "do_lower_case": bool},
        },
        weights=True,
    ),
    "StaticEmbedding": Module({"tokenizer.json": ANY_TABLE}, weights=True),
}
"""sentence-transformers' modules, by the last part of their name."""
OWN_MODULES: Mapping[str, Module] = {
    "s2sent.model.pooling.SelectivePooling": _weighted({"dim": _COUNT, "pooling": str, "selection": {"*": object}}),
    "s2sent.model.prompts.PromptTransformer": _transformer({**_TRANSFORMER, "template": str}),
}
"""The classes a modules.json may name besides sentence-transformers'. Their options check themselves."""


def module_of(kind: str) -> Module | None:
    """Return the module of a class that a folder names; None if the class must not be loaded."""
    found = re.fullmatch(
        r"sentence_transformers\.(?:models|base\.modules|sentence_transformer\.modules)(?:\.[A-Za-z_]+)?\.(\w+)",
        kind,
        re.ASCII,
    )
    return HOST_MODULES.get(found[1]) if found else OWN_MODULES.get(kind)


# --- files --------------------------------------------------------------------------------------------------------

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Endings of files whose reading can run code. A folder may have them; they are never opened."""
_OTHER_MEDIA = "belongs to a model for images or sound, and s2sent encodes text"
_REFUSED_FILES = {
    r"adapter_config\.json": "is an adapter's, whose base model is somewhere else. Merge the two: merge_and_unload()",
    r"(video_)?(pre)?processor_config\.json": _OTHER_MEDIA,
    r"tekken\.json": "is a tokenizer in a format that is not checked here. Save the tokenizer as tokenizer.json",
    r"shard-\d+-model-\d+-of-\d+\.safetensors": "is part of a distributed checkpoint, which would be read in place of "
    "model.safetensors. Save the model as one, or remove the file",
}


def why_refused(name: str) -> str | None:
    """Return why a file must not be in a module's folder, where it would change what a loader does."""
    return next((why for pattern, why in _REFUSED_FILES.items() if re.fullmatch(pattern, name)), None)


# --- checks -------------------------------------------------------------------------------------------------------


def check_sizes(table: Table, largest: int) -> None:
    """Refuse a size that the module's weights do not have: it would take memory before the two are compared."""
    for key, value in table.values.items():
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]:
            if is_int(item) and item > max(largest, 4096):
                raise table.fail(key, f"has {item}, and no side of the weights beside it is longer than {largest}")


def check_backbone_config(table: Table, tensors: int) -> None:
    """Check a backbone's config.json, with the tables inside it.

    Args:
        table: Its content.
        tensors: How many tensors the files beside it have.
    """
    for key, value in table.values.items():
        if key in _CONFIG_REFUSED and value is not None:
            raise refusal(table, key, _CONFIG_REFUSED[key])
        if key in _CONFIG_LIMITED:
            check_value(table, key, _CONFIG_LIMITED[key])
        if is_int(value) and not _NO_SIZE.search(key):
            # A loader makes so many objects, or so long a table of positions, before it looks at a weight.
            most = min(max(tensors, 64), _MAX_REPEATED) if _REPEATED.search(key) else _MAX_SIZE
            if value > most:
                raise refusal(table, key, f"must be at most {most} in this folder, got {value}")
        if isinstance(value, dict) and key not in _LABELS:
            check_backbone_config(table.table(key), tensors)
        for place, item in enumerate(value if isinstance(value, list) else []):
            if isinstance(item, dict):
                prefix = f"{table.prefix}{key}[{place}]."
                check_backbone_config(Table(item, table.source, ModelError, prefix), tensors)
