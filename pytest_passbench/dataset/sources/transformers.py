"""Every configuration type of ``transformers`` with its heads, activations and ways of computing attention.

A configuration is the library's default, cut to two layers and narrowed. The relations between its settings are
kept: a head's size stays, and widths that are multiples of each other are divided by the same number.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources import transformers as tables

LIBRARY, LICENSE = tables.LIBRARY, tables.LICENSE
MAX_WIDTH = 256
WIDTHS = ("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "model_dim")
"""The settings that can hold a model's width. The first that a configuration has decides how it is narrowed."""
DIVIDED = (
    *WIDTHS, "intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner",
    "ffn_hidden_size",
    "moe_intermediate_size", "shared_expert_intermediate_size", "num_attention_heads", "num_key_value_heads",
    "encoder_attention_heads", "decoder_attention_heads", "num_heads", "n_head", "n_heads", "num_kv_heads",
    "embedding_size", "lru_width", "linear_num_value_heads", "linear_num_key_heads", "attention_hidden_size",
    "mamba_n_heads", "mamba_num_heads",
)  # fmt: skip
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN_EXPERTS = ("num_experts_per_tok", "top_k", "moe_topk", "moe_k", "num_selected_experts")
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation", "hidden_activation_function")
OTHER_ACTIVATIONS = ("relu", "silu", "gelu_pytorch_tanh")
OTHER_TOKENS = ("image_token_id", "image_token_index", "video_token_id", "audio_token_id", "audio_token_index")
"""The settings of a language model that name the tokens which images or sound replace."""
OTHER_INPUTS = frozenset({"pixel_values", "pixel_values_videos", "input_features", "input_values"})
DEFAULT = "default"
"""The way of computing attention that the library chooses: torch's fused operator if the model can use it."""
HEADS = (
    "CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION",
    "QUESTION_ANSWERING", "MULTIPLE_CHOICE", "PRETRAINING", "IMAGE_CLASSIFICATION", "SEMANTIC_SEGMENTATION",
    "OBJECT_DETECTION", "DEPTH_ESTIMATION", "MASKED_IMAGE_MODELING", "AUDIO_CLASSIFICATION", "CTC",
    "AUDIO_FRAME_CLASSIFICATION", "AUDIO_XVECTOR", "SPEECH_SEQ_2_SEQ", "VIDEO_CLASSIFICATION", "BACKBONE",
    "TIME_SERIES_PREDICTION",
)  # fmt: skip
"""The task heads, as the library's tables MODEL_FOR_..._MAPPING_NAMES name them."""

MODALITIES = {
    "audio": ("AUDIO_CLASSIFICATION", "CTC", "SPEECH_SEQ_2_SEQ"),
    "text": ("MASKED_LM",),
    "vision": ("IMAGE_CLASSIFICATION", "VIDEO_CLASSIFICATION", "BACKBONE", "SEMANTIC_SEGMENTATION",
               "OBJECT_DETECTION", "DEPTH_ESTIMATION"),
    "series": ("TIME_SERIES_PREDICTION",),
}  # fmt: skip
"""The heads that tell what kind of data a model type works on; the first kind counts."""


def cases() -> Iterator[tuple[str, ModelCase]]:
    """Yield a case for each type, then for each of its heads and of the other activations."""
    if importlib.util.find_spec(LIBRARY) is None:
        return
    from transformers.models.auto import configuration_auto, modeling_auto

    heads: dict[str, list[str]] = {}
    for table in HEADS:
        names = getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES", None)
        for model_type, class_name in (names or {}).items():
            if isinstance(class_name, str) and class_name not in heads.setdefault(model_type, []):
                heads[model_type].append(class_name)
    base: dict[str, Any] = modeling_auto.MODEL_MAPPING_NAMES
    for model_type in configuration_auto.CONFIG_MAPPING_NAMES:
        plain = base.get(model_type)
        variations = [(plain, "eager", "")] if isinstance(plain, str) else []
        variations += [(head, DEFAULT, "") for head in heads.get(model_type, [])]
        variations += [(plain, DEFAULT, act) for act in OTHER_ACTIVATIONS] if isinstance(plain, str) else []
        for class_name, attention, activation in variations:
            yield f"{LIBRARY}/{model_type}", case(model_type, class_name, attention, activation)


def case(model_type: str, class_name: str, attention: str, activation: str) -> ModelCase:
    """Return the case of a class of the library with its narrowed configuration."""
    settings = [f"attention={attention}", *([f"activation={activation}"] if activation else [])]
    ending = f"-{activation}" if activation else ""
    return ModelCase(
        name=f"{LIBRARY}/{model_type}-{class_name}{ending}",
        modality=modality_of(model_type, class_name),
        build=functools.partial(build, model_type, class_name, attention, activation),
        inputs=inputs,
        variants=(Variant(1, 64), Variant(2, 48)),
        note=", ".join(["2 layers, narrowed", *settings]),
    )


def modality_of(model_type: str, class_name: str) -> str:
    """Return the kind of data that a class works on: by a word in its name, else by the heads that its type has."""
    for word, modality in (("Image", "vision"), ("Vision", "vision"), ("Segment", "vision"), ("Detection", "vision"),
                           ("Depth", "vision"), ("Video", "vision"), ("Audio", "audio"), ("Speech", "audio"),
                           ("CTC", "audio"), ("TimeSeries", "series"), ("Prediction", "series"),
                           ("CausalLM", "text"), ("MaskedLM", "text"), ("TextToText", "text")):  # fmt: skip
        if word in class_name:
            return modality
    from transformers.models.auto import modeling_auto

    for modality, heads in MODALITIES.items():
        if any(model_type in getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", ()) for head in heads):
            return modality
    return "text"


def build(model_type: str, class_name: str, attention: str, activation: str) -> torch.nn.Module:
    """Return the model with random weights from a fixed seed. Raises ValueError if it has no such activation."""
    import transformers

    config = transformers.AutoConfig.for_model(model_type)
    parts = tables.parts_of(config)
    for part in parts:
        tables.shrink(part, {})
        narrow(part)
    changed = [set_activation(part, activation) for part in parts if activation]
    if activation and not any(changed):
        raise ValueError("the configuration names no activation, or has this one")
    if any(is_recurrent(part) for part in parts):
        for part in parts:
            part.use_cache = False  # the cache needs an attention layer, and perhaps neither of the two is one
    torch.manual_seed(0)
    implementation = None if attention == DEFAULT else attention
    model = getattr(transformers, class_name)._from_config(config, attn_implementation=implementation)
    assert isinstance(model, torch.nn.Module)
    return model.eval()


def is_recurrent(config: Any) -> bool:
    """Return True if a configuration has settings of a recurrent layer, such as Mamba's or linear attention's."""
    return any(name.startswith(("mamba_", "linear_num", "linear_attn")) for name in vars(config))


def narrow(config: Any) -> None:
    """Divide the widths and heads of a configuration by one power of two, in place, and keep few experts."""
    width = next((value for name in WIDTHS if isinstance(value := setting(config, name), int)), 0)
    divisor = 1
    while width // divisor > MAX_WIDTH:
        divisor *= 2
    size = head_size(config, width)
    aliases = set(getattr(config, "attribute_map", {}))  # other names of the same settings
    for name in DIVIDED if divisor > 1 else ():
        value = None if name in aliases else setting(config, name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            setattr(config, name, max(1, value // divisor))
    if divisor > 1 and isinstance(setting(config, "head_dim"), int) and size:
        config.head_dim = size
    for names, most in ((EXPERTS, 4), (CHOSEN_EXPERTS, 2)):
        for name in names:
            value = setting(config, name)
            if isinstance(value, int) and value > most:
                setattr(config, name, most)


def setting(config: Any, name: str) -> Any:
    """Return a setting; None if there is none, or if each layer has its own."""
    try:
        return getattr(config, name, None)
    except RuntimeError:  # the library's error for a setting of layers
        return None


def head_size(config: Any, width: int) -> int:
    """Return the size of an attention head before narrowing: the configuration's own, or the width's share."""
    size = setting(config, "head_dim")
    if isinstance(size, int):
        return size
    heads = setting(config, "num_attention_heads")
    return width // heads if isinstance(heads, int) and heads else 0


def set_activation(config: Any, activation: str) -> bool:
    """Set a configuration's activation. Return False if it has none, or has this one."""
    for name in ACTIVATIONS:
        if isinstance(value := getattr(config, name, None), str) and value != activation:
            setattr(config, name, activation)
            return True
    return False


def inputs(model: torch.nn.Module, variant: Variant) -> dict[str, Any]:
    """Return random inputs for ``model.forward``. A size in pixels or samples takes the place of a text's length.

    A language model that takes images or sound too gets text alone: the text would need tokens for them.
    """
    values = _all_inputs(model, variant)
    if "input_ids" in values and any(hasattr(model.config, name) for name in OTHER_TOKENS):
        return {name: value for name, value in values.items() if name not in OTHER_INPUTS}
    return values


def _all_inputs(model: torch.nn.Module, variant: Variant) -> dict[str, Any]:
    config, names = model.config, inspect.signature(model.forward).parameters
    side = getattr(getattr(config, "vision_config", config), "image_size", None)
    size = variant.size
    if isinstance(side, int | list | tuple) and "input_ids" not in names:
        size = int(side if isinstance(side, int) else side[-1])
    elif "input_values" in names or "input_features" in names:
        size = 16000
    elif "pixel_values" in names and "input_ids" not in names:
        size = 224
    return tables.make_inputs(model, Variant(variant.batch, size))
