"""The model, the loss and the optimizer of a recipe."""

from __future__ import annotations

from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer

from s2sent.errors import ConfigError, S2SentError
from s2sent.model.build import build
from s2sent.model.folder import check_model, locate
from s2sent.model.load import open_encoder
from s2sent.model.pooling import SelectivePooling
from s2sent.model.prompts import PromptTransformer
from s2sent.training.losses import (
    ContrastiveLoss,
    MaskedLanguageLoss,
    PromptCSELoss,
    SimCSELoss,
    SupervisedLoss,
    WhitenedLoss,
)
from s2sent.training.recipes import DEFAULT_SELECTION, Family, PromptCSE, Recipe, SimCSE, Supervised, Whitened
from s2sent.untrusted import Table


def make_model(recipe: Recipe, device: torch.device) -> SentenceTransformer:
    """Build the encoder. It keeps the backbone's own longest text, whatever training cuts to.

    A model that has a selector, from `adapt` or an earlier training, keeps it with its weights and with what follows
    it, unless the recipe asks for another selection.
    """
    template = recipe.template if isinstance(recipe, PromptCSE) else None
    # In half precision, small updates would be lost.
    model = open_encoder(recipe.backbone, device=str(device), model_kwargs={"dtype": torch.float32})
    selector = next((module for module in model if isinstance(module, SelectivePooling)), None)
    keeps = (
        selector is not None
        and template is None
        and recipe.selection in (DEFAULT_SELECTION, selector.selection)
        and recipe.pooling in ("mean", selector.pooling)  # mean is the recipe's default
    )
    if not keeps:
        model = build(model, selection=recipe.selection, pooling=recipe.pooling, template=template, device=str(device))
    encoder = encoder_of(model)
    if recipe.pooling == "mask" and not (isinstance(encoder, PromptTransformer) and encoder.parsed.has_mask):
        raise ConfigError(
            "pooling='mask' takes the vector of a template's {mask}, and there is none. Use objective='promptcse' and "
            "a template with {mask}, or pooling='mean'."
        )
    if recipe.gradient_checkpointing:
        encoder.auto_model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    longest = model.max_seq_length
    if longest is not None and recipe.max_length > longest:
        raise ConfigError(f"max_length={recipe.max_length} is more than this backbone's {longest} tokens.")
    return model


@torch.no_grad()
def has_dropout(model: SentenceTransformer) -> bool:
    """Whether a sentence has another vector every time it is trained on; where dropout is set differs by model."""
    model.train()
    features = model.preprocess(["One sentence, twice."] * 2)
    features = {key: v.to(model.device) if isinstance(v, torch.Tensor) else v for key, v in features.items()}
    with torch.random.fork_rng():  # new weights must not depend on this
        one, other = model(features)["sentence_embedding"]
    return not torch.allclose(one, other, rtol=1e-4)


def encoder_of(model: SentenceTransformer) -> Transformer:
    """Return the model's first module, its Transformer."""
    return cast(Transformer, model[0])


def make_loss(recipe: Recipe, model: SentenceTransformer) -> ContrastiveLoss:
    """Return the loss of the recipe's objective."""
    common: dict[str, Any] = {
        "temperature": recipe.temperature,
        "head": recipe.head,
        "mini_batch_size": recipe.mini_batch_size,
    }
    match recipe:
        case SimCSE():
            language = MaskedLanguageLoss(encoder_of(model), locate(recipe.backbone)) if recipe.mlm_weight else None
            return SimCSELoss(model, auxiliary=language, auxiliary_weight=recipe.mlm_weight, **common)
        case Supervised():
            return SupervisedLoss(model, **common)
        case PromptCSE():
            other = None if recipe.other_template == "auto" else recipe.other_template
            return PromptCSELoss(model, other_template=other, denoise=recipe.denoise, **common)
        case Whitened():
            return WhitenedLoss(model, groups=recipe.groups, views=recipe.views, **common)
    raise ConfigError(f"There is no loss for the recipe {type(recipe).__name__}.")


def make_optimizer(recipe: Recipe, loss: ContrastiveLoss) -> torch.optim.AdamW:
    """Return AdamW with the selector's own learning rate and no decay of biases and norms; `base_lr` is what decays."""
    selector = {id(p) for module in loss.model if isinstance(module, SelectivePooling) for p in module.parameters()}
    selector_lr = recipe.selector_learning_rate or recipe.learning_rate
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for parameter in loss.parameters():
        if parameter.requires_grad:
            lr = selector_lr if id(parameter) in selector else recipe.learning_rate
            decay = recipe.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((lr, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "lr": lr, "base_lr": lr, "weight_decay": decay}
            for (lr, decay), parameters in groups.items()
        ],
        fused=True,
    )


def family_of(backbone: str) -> Family:
    """Return which preset fits a backbone, by its config: RoBERTa's, or BERT's for all others."""
    try:
        encoder = check_model(locate(backbone)).modules[0]
        kind = Table.read_json(encoder / "config.json").get("model_type", str, "")
    except S2SentError:  # loading it will say what is wrong, if anything is
        return "bert"
    return "roberta" if "roberta" in kind else "bert"
