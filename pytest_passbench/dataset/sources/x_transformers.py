"""Transformers of ``x-transformers``: two layers, with one or two of the variations that the library implements."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from pytest_passbench.forge.models import ModelCase, Variant, parse, tensors

LIBRARY, LICENSE = "x-transformers", "MIT"
PACKAGE = "x_transformers"
WIDTH, HEADS, TOKENS = 128, 4, 1000
VARIATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    **{
        name: {name: True}
        for name in (
            "use_scalenorm", "use_rmsnorm", "use_simple_rmsnorm", "use_dynamic_tanh", "use_derf", "alibi_pos_bias",
            "rel_pos_bias", "dynamic_pos_bias", "rotary_pos_emb", "rotary_xpos", "polar_pos_emb", "macaron",
            "pre_and_post_norm", "residual_attn", "gate_residual", "orthog_residual", "scale_residual",
            "sandwich_norm", "softclamp_output", "use_layerscale", "unet_skips", "reinject_input",
            "add_value_residual",
            "attn_qk_norm", "attn_gate_values", "attn_softclamp_logits",
            "attn_one_kv_head", "attn_on_attn", "attn_laser", "attn_hard", "attn_value_rmsnorm",
            "ff_glu", "ff_swish", "ff_relu_squared", "ff_post_act_ln", "ff_no_bias", "ff_glu_mult_bias",
        )
    },
    "post_norm": {"pre_norm": False},
    "shift_tokens": {"shift_tokens": 1},
    "residual_streams": {"num_residual_streams": 2},
    "sparse_topk": {"attn_sparse_topk": 8},
    "kv_heads": {"attn_kv_heads": 2},
    "memory_tokens": {"attn_num_mem_kv": 4},
}  # fmt: skip
"""Arguments of the attention layers, by the variation's name."""
DECODER_ONLY = ("rotary_xpos",)
"""Variations that an encoder refuses."""


def cases() -> Iterator[tuple[str, ModelCase]]:
    """Yield an encoder and a decoder for each variation, then encoders and decoders with two of them."""
    if importlib.util.find_spec(PACKAGE) is None:
        return
    for name, layers in itertools.product(VARIATIONS, ("Encoder", "Decoder")):
        if layers == "Decoder" or name not in DECODER_ONLY:
            yield f"{LIBRARY}/{name}", case(layers, (name,))
    names = [name for name in VARIATIONS if name not in ("plain", *DECODER_ONLY)]
    for layers, pair in itertools.product(("Encoder", "Decoder"), itertools.combinations(names, 2)):
        yield f"{LIBRARY}/{pair[0]}", case(layers, pair)


def case(layers: str, variations: tuple[str, ...]) -> ModelCase:
    """Return the case of a model with these variations."""
    return ModelCase(
        name=f"{LIBRARY}/{layers}-{'-'.join(variations)}",
        modality="text",
        build=functools.partial(build, layers, variations),
        inputs=functools.partial(tensors, [parse(f"int{TOKENS} b n")]),
        variants=(Variant(1, 64), Variant(2, 48)),
        note=f"{layers}, 2 layers, width {WIDTH}, {', '.join(variations)}",
    )


def build(layers: str, variations: tuple[str, ...]) -> torch.nn.Module:
    """Return the model with random weights from a fixed seed."""
    library: Any = importlib.import_module(PACKAGE)
    arguments = {key: value for name in variations for key, value in VARIATIONS[name].items()}
    torch.manual_seed(0)
    stack = getattr(library, layers)(dim=WIDTH, depth=2, heads=HEADS, verbose=False, **arguments)
    model = library.TransformerWrapper(num_tokens=TOKENS, max_seq_len=512, attn_layers=stack)
    assert isinstance(model, torch.nn.Module)
    return model.eval()
