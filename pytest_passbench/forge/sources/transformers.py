"""Architectures of ``transformers`` from configurations: real widths, two layers, random weights, no download."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources import transformers_rows as rows
from pytest_passbench.forge.sources.rows import Table, sized

LIBRARY = "transformers"
LICENSE = "Apache-2.0"

VOCABULARY = 1000
DEPTH_KEYS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers",
    "decoder_layers", "num_encoder_layers", "num_hidden_groups", "num_attention_blocks", "num_conv_pos_layers",
)  # fmt: skip
MAX_PARAMETERS = 500_000_000
"""An architecture with more parameters is refused; narrower overrides make it fit."""

TEXT_VARIANTS = (Variant(1, 128), Variant(4, 128), Variant(1, 512))
ROTATING = (
    (Variant(1, 256), Variant(8, 64)),
    (Variant(2, 128), Variant(32, 16)),
    (Variant(1, 64), Variant(16, 64)),
    (Variant(1, 1024), Variant(2, 256)),
    (Variant(1, 128), Variant(8, 128)),
)
"""Sizes for the broad rows, in turn, so that the suite has many shapes."""
IMAGE_SIZES = (
    (Variant(1, 224), Variant(4, 224)),
    (Variant(1, 224), Variant(2, 256)),
    (Variant(1, 384), Variant(8, 224)),
    (Variant(1, 256), Variant(2, 224)),
)
LONG_AND_WIDE = (
    (Variant(1, 1024), Variant(64, 32)),
    (Variant(1, 2048), Variant(8, 256)),
    (Variant(2, 512), Variant(128, 16)),
    (Variant(1, 512), Variant(1, 4096)),
    (Variant(1, 256), Variant(512, 4)),
)
"""Sizes for text models with fused attention: up to 4,096 tokens, and batches up to 512."""
IMAGE_BATCHES = ((Variant(1, 224), Variant(16, 224)), (Variant(2, 224), Variant(64, 224)))
CACHES = (
    (Variant(1, 128), Variant(1, 2047)),
    (Variant(1, 511), Variant(512, 15)),
    (Variant(4, 64), Variant(128, 31)),
    (Variant(1, 255), Variant(1, 4095)),
    (Variant(16, 127), Variant(64, 127)),
)
"""Sizes of a decode step: the batch, and the tokens that the cache holds before it."""
AUDIO_SIZES = ((Variant(1, 16000), Variant(4, 16000)),)
Sizes = tuple[tuple[Variant, ...], ...]
GROUPS: tuple[tuple[str, Table, Sizes], ...] = (
    ("text", rows.TEXT, (TEXT_VARIANTS,)),
    ("text", rows.TEXT2TEXT, (TEXT_VARIANTS,)),
    ("vision", rows.VISION, IMAGE_SIZES[:1]),
    ("audio", rows.AUDIO, AUDIO_SIZES),
    ("vision-text", rows.VISION_TEXT, IMAGE_SIZES[:1]),
    ("state-space", rows.STATE_SPACE, ((Variant(1, 64), Variant(2, 64), Variant(1, 128)),)),
    ("series", rows.SERIES, ((Variant(8, 512), Variant(32, 512)),)),
    ("text", rows.ENCODERS, ROTATING),
    ("text", rows.DECODERS, ROTATING),
    ("text", rows.SEQ2SEQ, ROTATING),
    ("vision", rows.IMAGES, IMAGE_SIZES),
    ("text", rows.SDPA_TEXT, LONG_AND_WIDE),
    ("vision", rows.SDPA_IMAGES, IMAGE_BATCHES),
    ("audio", rows.SDPA_AUDIO, AUDIO_SIZES),
    ("text", rows.DECODE, CACHES),
)


def cases() -> Iterator[ModelCase]:
    """Yield one case per row of the tables in ``transformers_rows``."""
    if importlib.util.find_spec(LIBRARY) is None:
        return
    for modality, table, sizes in GROUPS:
        for name, settings, variants in sized(table, sizes):
            yield case(name, modality, settings, variants)


def case(name: str, modality: str, overrides: dict[str, Any], variants: tuple[Variant, ...]) -> ModelCase:
    """Return the case of one architecture with its configuration's ``overrides``.

    ``name`` is the configuration's ``model_type``. An ending in :data:`rows.WAYS` says how the model runs.
    """
    model_type, _, way = name.partition("+")
    note = ", ".join(f"{key}={value}" for key, value in overrides.items() if not isinstance(value, dict))
    how = ", ".join(part for part in ("2 layers", rows.WAYS[way], note) if part)
    return ModelCase(
        name=f"{LIBRARY}/{name.replace('+', '-')}",
        modality=modality,
        build=functools.partial(build, model_type, overrides, "sdpa" if way else "eager"),
        inputs=decode_inputs if way == "decode" else make_inputs,
        variants=variants,
        note=how,
    )


def build(model_type: str, overrides: dict[str, Any], attention: str = "eager") -> torch.nn.Module:
    """Return the base model of ``model_type``, cut to two layers and a small vocabulary.

    ``attention`` is the library's name of the way it computes attention.
    """
    from transformers import AutoConfig

    return _cut(AutoConfig.for_model(model_type, **overrides), overrides, attention)


def case_of_config(config: Any, name: str) -> ModelCase:
    """Return the case of a configuration, cut to two layers. Its modality is guessed from its settings."""
    modality = "text" if hasattr(config, "vocab_size") else "vision"
    side = config.image_size if isinstance(getattr(config, "image_size", None), int) else 224
    sizes = TEXT_VARIANTS if modality == "text" else (Variant(1, side), Variant(4, side))
    return ModelCase(f"hub/{name}", modality, functools.partial(_cut, config, {}), make_inputs, sizes,
                f"{config.model_type}, 2 layers")  # fmt: skip


def _cut(config: Any, overrides: dict[str, Any], attention: str = "eager") -> torch.nn.Module:
    from transformers import AutoModel

    for part in parts_of(config):
        shrink(part, overrides)
    with torch.device("meta"):
        size = sum(p.numel() for p in AutoModel.from_config(config).parameters())
    if size > MAX_PARAMETERS:
        what = f"{config.model_type} has {size} parameters, more than {MAX_PARAMETERS}"
        raise UserError(what, remedy="narrow its configuration")
    torch.manual_seed(0)
    return AutoModel.from_config(config, attn_implementation=attention, dtype=torch.float32).eval()


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


def parts_of(config: Any) -> list[Any]:
    """Return the configuration and its nested ones."""
    nested = [v for v in vars(config).values() if hasattr(v, "to_dict") and hasattr(v, "model_type")]
    return [config, *(part for child in nested for part in parts_of(child))]


def make_inputs(model: torch.nn.Module, variant: Variant) -> dict[str, Any]:
    """Return random inputs for the arguments of ``model.forward``, from a fixed seed."""
    generator = torch.Generator().manual_seed(variant.batch * 100003 + variant.size)
    names = inspect.signature(model.forward).parameters
    makers = {name: MAKERS[name] for name in names if name in MAKERS}
    if "input_ids" in makers and "inputs_embeds" in makers:
        del makers["inputs_embeds"]
    values = {name: make(model.config, variant, generator) for name, make in makers.items()}
    return {name: value for name, value in values.items() if value is not None}


def decode_inputs(model: torch.nn.Module, variant: Variant) -> dict[str, Any]:
    """Return the inputs of a decode step: a new token for each sequence, and a cache of ``variant.size`` tokens.

    The cache is that of a real pass over one sequence, repeated for the batch.
    """
    generator = torch.Generator().manual_seed(variant.batch * 100003 + variant.size)
    before = torch.randint(3, VOCABULARY, (1, variant.size), generator=generator)
    with torch.no_grad():
        cache = model(input_ids=before, use_cache=True).past_key_values
    cache.batch_repeat_interleave(variant.batch)
    token = torch.randint(3, VOCABULARY, (variant.batch, 1), generator=generator)
    return {"input_ids": token, "past_key_values": cache, "use_cache": True}


def _ids(config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    text = getattr(config, "text_config", config)
    length = variant.size
    if hasattr(config, "vision_config") and hasattr(config, "text_config"):
        length = min(64, getattr(text, "max_position_embeddings", 64))
    return torch.randint(3, _vocabulary(text), (variant.batch, length), generator=generator)


def _decoder_ids(config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(3, _vocabulary(config), (variant.batch, min(variant.size, 128)), generator=generator)


def _vocabulary(config: Any) -> int:
    """Return the number of tokens that inputs are drawn from: the configuration's own if it is smaller."""
    size = getattr(config, "vocab_size", None)
    return min(VOCABULARY, size) if isinstance(size, int) else VOCABULARY


VIDEO = {"timesformer": 8, "videomae": 16, "vivit": 32}


def _pixels(config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    vision = getattr(config, "vision_config", config)
    channels = getattr(vision, "num_channels", 3)
    size = getattr(vision, "image_size", None) if hasattr(config, "vision_config") else None
    side = size if isinstance(size, int) else variant.size
    frames = VIDEO.get(config.model_type)
    shape = (variant.batch, channels) if frames is None else (variant.batch, frames, channels)
    return torch.randn(*shape, side, side, generator=generator)


def _video(_config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(variant.batch, 8, 3, variant.size, variant.size, generator=generator)


def _series(config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(variant.batch, config.context_length, config.num_input_channels, generator=generator)


CODECS = {"encodec", "dac", "mimi", "xcodec"}
SPECTROGRAMS = {"audio-spectrogram-transformer": (1024, 128)}


def _samples(config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    if config.model_type in CODECS:
        return torch.randn(variant.batch, 1, variant.size, generator=generator)
    shape = SPECTROGRAMS.get(config.model_type, (variant.size,))
    return torch.randn(variant.batch, *shape, generator=generator)


def _features(config: Any, variant: Variant, generator: torch.Generator) -> torch.Tensor:
    audio = getattr(config, "audio_config", config)
    keys = ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim")
    bins = next((value for key in keys if isinstance(value := getattr(audio, key, None), int)), 80)
    if audio.model_type == "clap_audio_model":
        return torch.randn(variant.batch, 1, 1001, 64, generator=generator)
    if audio.model_type in ("whisper", "qwen2_audio_encoder", "voxtral_encoder"):
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
    "pixel_values_videos": _video,
    "past_values": _series,
}
