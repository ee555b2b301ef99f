"""What the json files of a model's folder may say: every key that is not on a list here is refused.

A loader passes much of a folder's json on to functions that open files, import classes or unpickle. The lists are made
from what sentence-transformers and transformers do with each key: a key is here if it only sets a plain value. The
exception is a backbone's config.json, where every family of models has keys of its own, most of them numbers. There the
keys that do more than set a value are listed, and all others are harmless.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from s2sent.errors import ModelError, S2SentError
from s2sent.untrusted import Table, shown


@dataclass(frozen=True)
class Rule:
    """What a value may be.

    Attributes:
        what: In words, for the message.
        fits: Whether a value is that.
        has_default: Whether null fits, too, and stands for the default.
    """

    what: str
    fits: Callable[[Any], bool]
    has_default: bool = True


Rules = Mapping[str, "Rule | Rules"]
"""A rule for each key that a table may have; for a table inside it, that table's rules."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def one_of(*values: Any) -> Rule:
    """One of a few values."""
    return Rule("one of " + ", ".join(map(repr, values)), lambda value: any(value is v or value == v for v in values))


def list_of(rule: Rule) -> Rule:
    """A list whose items all follow a rule."""
    return Rule(f"a list, each {rule.what}", lambda value: isinstance(value, list) and all(map(rule.fits, value)))


def table_of(rule: Rule) -> Rule:
    """A table with any keys, whose values all follow a rule."""
    return Rule(
        f"a table, each value {rule.what}",
        lambda value: isinstance(value, dict) and all(map(rule.fits, value.values())),
    )


def either(*rules: Rule) -> Rule:
    """What follows one of the rules."""
    return Rule(" or ".join(rule.what for rule in rules), lambda value: any(rule.fits(value) for rule in rules))


TEXT = Rule("a text", lambda value: isinstance(value, str))
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
NUMBER = Rule("a number", _is_number)
COUNT = Rule("a whole number from 0 to 2^31", lambda value: _is_whole(value) and 0 <= value <= 1 << 31)
FEW = Rule("a whole number from 0 to 1000", lambda value: _is_whole(value) and 0 <= value <= 1000)
ANY = Rule("plain data", lambda value: True)
NAME = Rule("a plain name", lambda value: isinstance(value, str) and re.fullmatch(r"\w+", value, re.ASCII) is not None)
EMPTY = Rule("empty", lambda value: value in ({}, [], ""))
NOTHING = Rule("null", lambda value: value is None)
SIDE = one_of("left", "right")

DTYPE = one_of("auto", "float32", "float16", "bfloat16", "float64", "half", "float", "double")
ATTENTION = one_of(
    "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "paged|eager", "paged|sdpa"
)
"""transformers' own. Any other name can be a kernel on the hub, which is code."""

# --- sentence-transformers ----------------------------------------------------------------------------------------

MODULES_ENTRY: Rules = {"idx": COUNT, "name": TEXT, "path": TEXT, "type": TEXT, "kwargs": list_of(NAME)}

CONFIG_SENTENCE_TRANSFORMERS: Rules = {
    "__version__": table_of(TEXT),
    "requirements": table_of(TEXT),
    "prompts": table_of(TEXT),
    "default_prompt_name": TEXT,
    "similarity_fn_name": TEXT,
    "truncate_dim": COUNT,
    "model_type": one_of("SentenceTransformer"),  # for another one the host builds other modules than are listed
}

_MODEL_KWARGS: Rules = {
    "dtype": DTYPE,
    "torch_dtype": DTYPE,
    "attn_implementation": ATTENTION,
    "add_pooling_layer": FLAG,
}
_PROCESSOR_KWARGS: Rules = {
    "model_max_length": COUNT,
    "padding_side": SIDE,
    "truncation_side": SIDE,
    "use_fast": FLAG,
    "do_lower_case": FLAG,
    "add_prefix_space": FLAG,
}
_CONFIG_KWARGS: Rules = {"use_cache": FLAG, "is_causal": FLAG, "use_bidirectional_attention": FLAG}
_TOKENIZER_CALL: Rules = {
    "padding": either(FLAG, one_of("longest", "max_length", "do_not_pad")),
    "truncation": either(FLAG, one_of("longest_first", "only_first", "only_second", "do_not_truncate")),
    "max_length": COUNT,
    "padding_side": SIDE,
    "add_special_tokens": FLAG,
    "pad_to_multiple_of": COUNT,
    "return_token_type_ids": FLAG,
}
# The host calls the method of the model that is named here.
_MODALITY: Rules = {
    "method": replace(one_of("forward"), has_default=False),
    # With another, encode fails or pools what is no token.
    "method_output_name": replace(one_of("last_hidden_state"), has_default=False),
    "format": one_of("structured", "flat", "auto"),
}
TRANSFORMER: Rules = {
    "transformer_task": one_of("feature-extraction"),
    "modality_config": {"text": _MODALITY, "message": _MODALITY},
    "module_output_name": NAME,
    "processing_kwargs": {
        "common": _TOKENIZER_CALL,
        "text": _TOKENIZER_CALL,
        "chat_template": {"add_generation_prompt": FLAG},
    },
    "unpad_inputs": FLAG,
    "query_length": COUNT,
    "document_length": COUNT,
    "query_expansion": NOTHING,
    "max_seq_length": COUNT,
    "do_lower_case": FLAG,
    "tokenizer_name_or_path": NOTHING,
    "model_kwargs": _MODEL_KWARGS,
    "model_args": _MODEL_KWARGS,
    "processor_kwargs": _PROCESSOR_KWARGS,
    "tokenizer_args": _PROCESSOR_KWARGS,
    "config_kwargs": _CONFIG_KWARGS,
    "config_args": _CONFIG_KWARGS,
}
TRANSFORMER_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where the host looks for a Transformer's settings: the first that is not empty counts."""

ROUTER: Rules = {
    "types": table_of(TEXT),
    "structure": table_of(list_of(TEXT)),
    "parameters": {"default_route": TEXT, "allow_empty_key": FLAG, "route_mappings": table_of(TEXT)},
}
ROUTER_FILES = ("router_config.json", "config.json")
"""Where the host looks for a Router's settings: the second if the first is empty."""


@dataclass(frozen=True)
class Module:
    """A kind of module that a folder may have.

    Attributes:
        file: Its settings.
        rules: What they may say.
        weights: Whether it has weights of its own.
        required: Whether the settings must be there.
    """

    file: str = "config.json"
    rules: Rules | None = None
    weights: bool = False
    required: bool = True


_DIMENSION: Rules = {"embedding_dimension": COUNT, "word_embedding_dimension": COUNT}
_FEATURES: Rules = {"module_input_name": NAME, "module_output_name": NAME}
_ACTIVATION = Rule(
    "a class of torch.nn, such as torch.nn.modules.activation.Tanh",
    lambda value: (
        isinstance(value, str)
        and re.fullmatch(r"torch\.nn(\.modules(\.activation|\.linear)?)?\.[A-Z]\w*", value, re.ASCII) is not None
    ),
)
_WORD_TOKENIZER = Rule(
    "sentence-transformers' WhitespaceTokenizer",
    lambda value: (
        isinstance(value, str)
        and re.fullmatch(r"sentence_transformers\.[a-zA-Z_.]+\.WhitespaceTokenizer", value) is not None
    ),
)
_POOLING_MODES = (
    "cls_token",
    "mean_tokens",
    "max_tokens",
    "mean_sqrt_len_tokens",
    "weightedmean_tokens",
    "lasttoken",
)

HOST_MODULES: Mapping[str, Module] = {
    "Pooling": Module(
        rules={
            **_DIMENSION,
            **{f"pooling_mode_{mode}": FLAG for mode in _POOLING_MODES},
            "pooling_mode": either(TEXT, list_of(TEXT)),
            "include_prompt": FLAG,
        }
    ),
    "Dense": Module(
        rules={
            **_FEATURES,
            "in_features": COUNT,
            "out_features": COUNT,
            "bias": FLAG,
            "activation_function": _ACTIVATION,
            "use_residual": FLAG,
        },
        weights=True,
    ),
    "Normalize": Module(rules=_FEATURES, required=False),
    "Dropout": Module(rules={"dropout": NUMBER}),
    "LayerNorm": Module(rules={"dimension": COUNT}, weights=True),
    "WeightedLayerPooling": Module(rules={**_DIMENSION, "layer_start": FEW, "num_hidden_layers": FEW}, weights=True),
    "CNN": Module(
        "cnn_config.json",
        {
            "in_embedding_dimension": COUNT,
            "in_word_embedding_dimension": COUNT,
            "out_channels": COUNT,
            "kernel_sizes": list_of(FEW),
            "stride_sizes": list_of(FEW),
        },
        weights=True,
    ),
    "LSTM": Module(
        "lstm_config.json",
        {**_DIMENSION, "hidden_dim": COUNT, "num_layers": FEW, "dropout": NUMBER, "bidirectional": FLAG},
        weights=True,
    ),
    "BoW": Module(
        rules={
            "vocab": list_of(TEXT),
            "word_weights": table_of(NUMBER),
            "unknown_word_weight": NUMBER,
            "cumulative_term_frequency": FLAG,
        }
    ),
    "WordWeights": Module(
        rules={"vocab": list_of(TEXT), "word_weights": table_of(NUMBER), "unknown_word_weight": NUMBER}
    ),
    "WordEmbeddings": Module(
        "wordembedding_config.json",
        {"tokenizer_class": _WORD_TOKENIZER, "update_embeddings": FLAG, "max_seq_length": COUNT},
        weights=True,
    ),
    "StaticEmbedding": Module("tokenizer.json", weights=True),
    "Transformer": Module("config.json", weights=True),
    "Router": Module("router_config.json", required=False),
}
"""The host's modules, by the last part of their name."""
WORD_TOKENIZER: Rules = {"vocab": list_of(TEXT), "stop_words": list_of(TEXT), "do_lower_case": FLAG}

OWN_MODULES: Mapping[str, Module] = {
    "s2sent.model.pooling.SelectivePooling": Module(
        rules={"dim": COUNT, "pooling": TEXT, "selection": table_of(ANY)}, weights=True
    ),
    "s2sent.model.prompts.PromptTransformer": Module("config.json", weights=True),
}
"""The classes a modules.json may name besides the host's own. Their options check themselves."""
PROMPT_TRANSFORMER: Rules = {**TRANSFORMER, "template": TEXT}


def module_of(kind: str) -> Module | None:
    """Return what is known of a class that a folder names; None for one that may not be loaded."""
    if kind in OWN_MODULES:
        return OWN_MODULES[kind]
    found = re.fullmatch(
        r"sentence_transformers\.(?:models|base\.modules|sentence_transformer\.modules)(?:\.[A-Za-z_]+)?\.(\w+)",
        kind,
        re.ASCII,
    )
    return HOST_MODULES.get(found[1]) if found else None


# --- transformers -------------------------------------------------------------------------------------------------

_TOKEN = either(TEXT, table_of(either(TEXT, FLAG)))
SPECIAL_TOKENS_MAP: Rules = {
    "additional_special_tokens": list_of(_TOKEN),
    "extra_special_tokens": either(list_of(_TOKEN), table_of(_TOKEN)),
}
"""transformers passes every key of this file on as if a user had given it, a path of a vocabulary included."""
TOKENIZER_CONFIG: Rules = {
    **SPECIAL_TOKENS_MAP,
    "added_tokens_decoder": table_of(_TOKEN),
    "model_specific_special_tokens": table_of(_TOKEN),
    "tokenizer_class": NAME,
    "backend": NAME,
    # Where the author had it. transformers puts its own value in its place, or never reads it.
    "name_or_path": TEXT,
    "special_tokens_map_file": TEXT,
    "_commit_hash": TEXT,
    "is_local": FLAG,
    "local_files_only": FLAG,
    "use_fast": FLAG,
    "from_slow": FLAG,
    "chat_template": either(TEXT, list_of(table_of(TEXT))),  # runs in transformers' sandbox, and only for chats
    "model_max_length": NUMBER,  # 1e30 stands for no limit
    "max_model_input_sizes": table_of(NUMBER),
    "model_input_names": list_of(NAME),
    "sp_model_kwargs": EMPTY,  # could name the file of a vocabulary
    "init_inputs": EMPTY,
    **dict.fromkeys(
        ("max_len", "max_length", "stride", "pad_to_multiple_of", "pad_token_type_id", "vocab_size"), NUMBER
    ),
    **dict.fromkeys(("padding_side", "truncation_side"), SIDE),
    **dict.fromkeys(
        (
            "add_bos_token",
            "add_eos_token",
            "add_prefix_space",
            "add_dummy_prefix_space",
            "clean_up_tokenization_spaces",
            "clean_text",
            "do_basic_tokenize",
            "do_lower_case",
            "do_lowercase",
            "handle_chinese_chars",
            "keep_accents",
            "legacy",
            "lowercase",
            "normalization",
            "remove_space",
            "spaces_between_special_tokens",
            "split_by_punct",
            "split_special_tokens",
            "strip_accents",
            "tokenize_chinese_chars",
            "trim_offsets",
            "unk_token_as_text",
            "use_default_system_prompt",
            "wordpieces_prefix_space",
        ),
        FLAG,
    ),
    **dict.fromkeys(
        ("errors", "truncation_strategy", "padding", "src_lang", "tgt_lang", "vocab_type", "wordpieces_prefix"), TEXT
    ),
    "never_split": list_of(TEXT),
    "truncation": either(FLAG, TEXT),
    "device_map": NOTHING,
    "tokenizer_file": NOTHING,
    "vocab_file": NOTHING,
    "merges_file": NOTHING,
}

CONFIG_REFUSED = {
    "auto_map": "it makes loading run code from the folder",
    "custom_pipelines": "it makes loading run code from the folder",
    "transformers_weights": "it names other weights than model.safetensors",
    "configuration_files": "it names other files to read in place of this one",
    "quantization_config": "quantised weights need code that is not checked here. Save the model dequantised",
    "compression_config": "quantised weights need code that is not checked here. Save the model dequantised",
    "fusion_config": "it changes the classes of transformers for the whole process",
    "kernel_config": "it makes loading fetch code from the hub",
    "use_kernels": "it makes loading fetch code from the hub",
    "allow_all_kernels": "it makes loading fetch code from the hub",
    "distributed_config": "it changes how weights are read",
    "gguf_file": "it names other weights than model.safetensors",
    "processor_class": "it belongs to a model for images or sound",
    "base_model_name_or_path": "it names another model to read",
}
"""Keys of a backbone's config.json, at any depth, that make a loader import, fetch or open something, and why not."""
CONFIG_LIMITED: Mapping[str, Rule] = {
    "model_type": Rule(
        "a plain name", lambda v: isinstance(v, str) and re.fullmatch(r"[\w.-]+", v, re.ASCII) is not None
    ),
    "tokenizer_class": NAME,
    "architectures": list_of(NAME),
    "dtype": DTYPE,
    "torch_dtype": DTYPE,
    "attn_implementation": ATTENTION,
    "_attn_implementation": ATTENTION,
    "experts_implementation": one_of("eager", "batched_mm", "grouped_mm"),
    "_experts_implementation": one_of("eager", "batched_mm", "grouped_mm"),
}
_LABELS = ("id2label", "label2id")  # their keys are anybody's words
_REPEATED = re.compile(r"(layers?|experts?|groups?|blocks?)$|^num_.*(layer|expert|group|block)")
_NO_SIZE = re.compile(r"theta|seed|base")
_MAX_REPEATED = 512
_MAX_SIZE = 1 << 24

REFUSED_FILES = {
    "adapter_config.json": "is an adapter's, whose base model is somewhere else. Merge the two: merge_and_unload()",
    "processor_config.json": "belongs to a model for images or sound, and s2sent encodes text",
    "preprocessor_config.json": "belongs to a model for images or sound, and s2sent encodes text",
    "video_preprocessor_config.json": "belongs to a model for images or sound, and s2sent encodes text",
    "tekken.json": "is a tokenizer in a format that is not checked here. Save the tokenizer as tokenizer.json",
}
"""Files whose presence changes what a loader does."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""How files end whose reading can run code. They may lie in a folder; nobody opens them."""
DISTRIBUTED_WEIGHTS = re.compile(r"shard-\d+-model-\d+-of-\d+\.safetensors")
"""Files that transformers reads in place of model.safetensors."""


def check_keys(table: Table, rules: Rules) -> None:
    """Raise a `ModelError` with file and key unless every key is known and its value fits."""
    for key, value in table.values.items():
        rule = rules.get(key)
        if rule is None:
            raise _refusal(table, key, "s2sent does not know this key; a loader might open a file or run code for it")
        if isinstance(rule, Rule):
            check_value(table, key, value, rule)
        elif value is not None:
            check_keys(table.table(key), rule)


def check_value(table: Table, key: str, value: Any, rule: Rule) -> None:
    """Raise a `ModelError` with file and key unless the value fits the rule."""
    if not (rule.has_default if value is None else rule.fits(value)):
        raise _refusal(table, key, f"must be {rule.what}, got {shown(value)}")


def _refusal(table: Table, key: str, why: str) -> S2SentError:
    advice = "Remove it, or load the folder with sentence-transformers itself if you trust it."
    return replace(table, hint=advice).fail(key, f"is refused: {why}")


def check_sizes(table: Table, largest: int) -> None:
    """Refuse a size that the module's weights do not have: it would take memory before the two are compared."""
    for key, value in table.values.items():
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
        for item in inner:
            if _is_whole(item) and item > max(largest, 4096) and key != "max_seq_length":
                raise table.fail(key, f"has {item}, and no side of the weights beside it is longer than {largest}")


def check_tokens(table: Table, rules: Rules) -> None:
    """Check a file about tokens, which besides known keys may have one for each special token, such as mask_token."""
    named = {key: _TOKEN for key in table.values if key.endswith("_token") and key not in rules}
    check_keys(table, {**rules, **named})


def check_backbone_config(table: Table, tensors: int) -> None:
    """Check a backbone's config.json, its tables inside included.

    Args:
        table: What it says.
        tensors: How many tensors the files beside it have.
    """
    for key, value in table.values.items():
        if key in CONFIG_REFUSED and value is not None:
            raise _refusal(table, key, CONFIG_REFUSED[key])
        if key in CONFIG_LIMITED:
            check_value(table, key, value, CONFIG_LIMITED[key])
        if _is_whole(value):
            # A loader makes so many objects, or so long a table of positions, before it looks at a weight.
            most = min(max(tensors, 64), _MAX_REPEATED) if _REPEATED.search(key) else _MAX_SIZE
            if value > most and not _NO_SIZE.search(key):
                raise _refusal(table, key, f"must be at most {most} in this folder, got {value}")
        if isinstance(value, dict) and key not in _LABELS:
            check_backbone_config(table.table(key), tensors)
        if isinstance(value, list):
            for place, item in enumerate(value):
                if isinstance(item, dict):
                    inner = Table(item, table.source, ModelError, f"{table.prefix}{key}[{place}].")
                    check_backbone_config(inner, tensors)
