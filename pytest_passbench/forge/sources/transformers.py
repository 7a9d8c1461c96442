"""Architectures of ``transformers``, built from configurations: real widths, two layers, random weights, no download."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from ..models import Case, Variant
from .transformers_rows import AUDIO, OTHER, STATE_SPACE, TEXT, TEXT2TEXT, VISION, VISION_TEXT

LIBRARY = "transformers"
LICENSE = "Apache-2.0"

VOCABULARY = 1000
DEPTH_KEYS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers",
    "decoder_layers", "num_encoder_layers", "num_hidden_groups", "num_attention_blocks", "num_conv_pos_layers",
)  # fmt: skip
TEXT_VARIANTS = (Variant(1, 128), Variant(4, 128), Variant(1, 512))
GROUPS: tuple[tuple[str, dict[str, dict[str, Any]], tuple[Variant, ...]], ...] = (
    ("text", TEXT, TEXT_VARIANTS),
    ("text", TEXT2TEXT, TEXT_VARIANTS),
    ("state-space", STATE_SPACE, (Variant(1, 64), Variant(2, 64), Variant(1, 128))),
    ("vision", VISION, (Variant(1, 224), Variant(4, 224))),
    ("audio", AUDIO, (Variant(1, 16000), Variant(4, 16000))),
    ("vision-text", VISION_TEXT, (Variant(1, 224), Variant(4, 224))),
    ("other", OTHER, (Variant(1, 128), Variant(4, 128))),
)


def cases() -> Iterator[Case]:
    """One case per row of the tables in ``transformers_rows``."""
    if importlib.util.find_spec(LIBRARY) is None:
        return
    for modality, rows, variants in GROUPS:
        for name, overrides in rows.items():
            own = tuple(Variant(*pair) for pair in overrides.get("variants", ())) or variants
            yield case(name, modality, {k: v for k, v in overrides.items() if k != "variants"}, own)


def case(name: str, modality: str, overrides: dict[str, Any], variants: tuple[Variant, ...]) -> Case:
    """The case of one ``model_type`` with its configuration's ``overrides``."""
    note = ", ".join(f"{key}={value}" for key, value in overrides.items() if not isinstance(value, dict))
    return Case(
        name=f"{LIBRARY}/{name}",
        modality=modality,
        build=functools.partial(build, name, overrides),
        inputs=make_inputs,
        variants=variants,
        note=f"2 layers{', ' + note if note else ''}",
    )


def build(model_type: str, overrides: dict[str, Any]) -> torch.nn.Module:
    """The base model of ``model_type``, cut to two layers and a small vocabulary (a lookup needs no more)."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(model_type, **overrides)
    for part in _parts(config):
        shrink(part, overrides)
    torch.manual_seed(0)
    return AutoModel.from_config(config, attn_implementation="eager").eval()


def shrink(config: Any, overrides: dict[str, Any]) -> None:
    """Cut repeated layers to two and the vocabulary to :data:`VOCABULARY`, in place, unless overridden."""
    if isinstance(getattr(config, "depths", None), (list, tuple)) and "depths" not in overrides:
        config.depths = [min(depth, 2) for depth in config.depths]
    for key in () if hasattr(config, "depths") else DEPTH_KEYS:
        value = getattr(config, key, None)
        if isinstance(value, int) and key not in overrides:
            setattr(config, key, min(value, 2))
    if isinstance(vars(config).get("layer_types"), list):
        config.layer_types = config.layer_types[:2]
    if isinstance(getattr(config, "vocab_size", None), int) and "vocab_size" not in overrides:
        config.vocab_size = min(config.vocab_size, VOCABULARY)
        for key in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            value = getattr(config, key, None)
            if isinstance(value, int) and value >= VOCABULARY:
                setattr(config, key, 1)


def _parts(config: Any) -> list[Any]:
    """The configuration and its nested ones."""
    nested = [v for v in vars(config).values() if hasattr(v, "to_dict") and hasattr(v, "model_type")]
    return [config, *(part for child in nested for part in _parts(child))]


def make_inputs(model: torch.nn.Module, variant: Variant) -> dict[str, Any]:
    """Random inputs for whatever ``model.forward`` takes, from a fixed seed."""
    generator = torch.Generator().manual_seed(variant.batch * 100003 + variant.size)
    names = inspect.signature(model.forward).parameters
    makers = {name: MAKERS[name] for name in names if name in MAKERS}
    if "input_ids" in makers and "inputs_embeds" in makers:
        del makers["inputs_embeds"]
    made = {name: make(model.config, variant, generator) for name, make in makers.items()}
    return {name: value for name, value in made.items() if value is not None}


def _ids(config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    text = getattr(config, "text_config", config)
    length = variant.size
    if hasattr(config, "vision_config") and hasattr(config, "text_config"):
        length = min(64, getattr(text, "max_position_embeddings", 64))
    return torch.randint(3, VOCABULARY, (variant.batch, length), generator=generator)


def _decoder_ids(_config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (variant.batch, min(variant.size, 128)), generator=generator)


def _pixels(config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    vision = getattr(config, "vision_config", config)
    channels = getattr(vision, "num_channels", 3)
    size = getattr(vision, "image_size", None) if hasattr(config, "vision_config") else None
    side = size if isinstance(size, int) else variant.size
    return torch.randn(variant.batch, channels, side, side, generator=generator)


def _samples(_config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(variant.batch, variant.size, generator=generator)


def _features(config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    audio = getattr(config, "audio_config", config)
    for key in ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim"):
        bins = getattr(audio, key, None)
        if isinstance(bins, int):
            break
    else:
        bins = 80
    if audio.model_type == "whisper":
        return torch.randn(variant.batch, bins, 3000, generator=generator)
    return torch.randn(variant.batch, variant.size // 160, bins, generator=generator)


def _boxes(_config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    low = torch.randint(0, 500, (variant.batch, variant.size, 2), generator=generator)
    return torch.cat([low, low + 100], dim=-1)


MAKERS = {
    "input_ids": _ids,
    "decoder_input_ids": _decoder_ids,
    "pixel_values": _pixels,
    "input_values": _samples,
    "input_features": _features,
    "bbox": _boxes,
}
