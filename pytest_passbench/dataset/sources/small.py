"""Libraries of one or two model classes each: speech, tables of features, and latent attention."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources import rows
from pytest_passbench.forge.sources.rows import ModelSpec


def _cases(
    library: str, modality: str, rows_of: Callable[[], Iterator[ModelSpec]]
) -> Iterator[tuple[str, ModelCase]]:
    """Yield a family, the class, and a case for each row; nothing if the library is not installed."""
    for row, case in zip(rows_of(), rows.cases(library, modality, rows_of()), strict=False):
        yield f"{library}/{row.where.partition(':')[2]}", case


def _conformers() -> Iterator[ModelSpec]:
    frames = (Variant(1, 200), Variant(4, 100))
    for dim, heads, kernel, causal in itertools.product((144, 256, 512), (4, 8), (15, 31), (False, True)):
        arguments = {"dim": dim, "depth": 2, "heads": heads, "dim_head": dim // heads,
                     "conv_kernel_size": kernel, "conv_causal": causal}  # fmt: skip
        name = f"Conformer-{dim}-{heads}-{kernel}{'-causal' if causal else ''}"
        yield ModelSpec(name, "conformer:Conformer", {"0": f"float b n {dim}"}, arguments, frames)


def _perceivers() -> Iterator[ModelSpec]:
    images = (Variant(1, 64), Variant(2, 32))
    flags = ("weight_tie_layers", "fourier_encode_data", "attn_residual", "inverted_cross_attn")
    for latents, values in itertools.product((64, 256), itertools.product((False, True), repeat=len(flags))):
        arguments = {"num_freq_bands": 6, "max_freq": 10.0, "depth": 2, "num_latents": latents, "latent_dim": 256,
                     **dict(zip(flags, values, strict=True))}  # fmt: skip
        name = "-".join(
            ["Perceiver", str(latents), *(flag for flag, is_on in zip(flags, values, strict=True) if is_on)]
        )
        yield ModelSpec(name, "perceiver_pytorch:Perceiver", {"0": "float b n n 3"}, arguments, images)


def _tables() -> Iterator[ModelSpec]:
    batches = (Variant(64, 32), Variant(16, 32))
    features = {"0": "float b n"}
    module = "rtdl_revisiting_models"
    for blocks, width in itertools.product((2, 3, 4), (128, 256, 512)):
        size = {"d_in": 32, "d_out": 10, "n_blocks": blocks, "d_block": width}
        yield ModelSpec(f"MLP-{blocks}-{width}", f"{module}:MLP", features, {**size, "dropout": 0.1}, batches)
        residual = {**size, "d_hidden_multiplier": 2.0, "dropout1": 0.1, "dropout2": 0.0}
        yield ModelSpec(f"ResNet-{blocks}-{width}", f"{module}:ResNet", features, residual, batches)
        tokens = {"n_cont_features": 32, "cat_cardinalities": [5, 9, 20], "d_out": 10, "n_blocks": blocks,
                  "d_block": width, "attention_n_heads": 8, "attention_dropout": 0.2, "ffn_d_hidden": None,
                  "ffn_d_hidden_multiplier": 4 / 3, "ffn_dropout": 0.1, "residual_dropout": 0.0}  # fmt: skip
        inputs = {"0": "float b n", "1": "int5 b 3"}
        yield ModelSpec(f"FTTransformer-{blocks}-{width}", f"{module}:FTTransformer", inputs, tokens, batches)


LIBRARIES = tuple(
    (name, license_name, functools.partial(_cases, name, modality, rows_of))
    for name, license_name, modality, rows_of in (
        ("conformer", "MIT", "audio", _conformers),
        ("perceiver-pytorch", "MIT", "vision", _perceivers),
        ("rtdl-revisiting-models", "Apache-2.0", "table", _tables),
    )
)
"""The name of each library, its licence, and a function that yields its families and cases."""
