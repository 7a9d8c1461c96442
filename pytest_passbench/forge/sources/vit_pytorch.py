"""Vision transformers of ``vit-pytorch``: the arguments of its README at a base model's width, two layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources.rows import ModelSpec
from pytest_passbench.forge.sources.rows import cases as make_cases

LIBRARY = "vit-pytorch"
LICENSE = "MIT"

VIT: dict[str, Any] = {"image_size": 224, "patch_size": 16, "num_classes": 1000, "dim": 768, "depth": 2, "heads": 12,
                       "mlp_dim": 3072}  # fmt: skip
SIZES = ((Variant(1, 224), Variant(4, 224)), (Variant(2, 224), Variant(8, 224)))


def _row(place: int, module: str, name: str, arguments: dict[str, Any]) -> ModelSpec:
    inputs = {"0": "float b 3 n n"}
    return ModelSpec(f"{module}.{name}", f"vit_pytorch.{module}:{name}", inputs, arguments, SIZES[place % 2])


TABLE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("vit", "ViT", VIT),
    ("simple_vit", "SimpleViT", VIT),
    ("deepvit", "DeepViT", VIT),
    ("cait", "CaiT", {**VIT, "cls_depth": 1}),
    ("parallel_vit", "ViT", VIT),
    ("rvt", "RvT", VIT),
    ("vit_with_patch_merger", "ViT", VIT),
    ("vit_for_small_dataset", "ViT", VIT),
    ("simple_vit_with_qk_norm", "SimpleViT", VIT),
    ("simple_vit_with_register_tokens", "SimpleViT", VIT),
    ("simple_vit_with_patch_dropout", "SimpleViT", VIT),
    ("simple_vit_with_value_residual", "SimpleViT", VIT),
    ("simple_vit_with_hyper_connections", "SimpleViT", {**VIT, "num_residual_streams": 4}),
    ("normalized_vit", "nViT", {**VIT, "dim_head": 64}),
    ("t2t", "T2TViT", {"dim": 512, "image_size": 224, "depth": 2, "heads": 8, "mlp_dim": 1024, "num_classes": 1000,
                       "t2t_layers": ((7, 4), (3, 2), (3, 2))}),
    ("cct", "CCT", {"img_size": 224, "embedding_dim": 384, "n_conv_layers": 2, "kernel_size": 7, "stride": 2,
                    "padding": 3, "pooling_kernel_size": 3, "pooling_stride": 2, "pooling_padding": 1,
                    "num_layers": 2, "num_heads": 6, "mlp_ratio": 3.0, "num_classes": 1000,
                    "positional_embedding": "learnable"}),
    ("cross_vit", "CrossViT", {"image_size": 224, "num_classes": 1000, "depth": 1, "sm_dim": 192, "sm_patch_size": 16,
                               "sm_enc_depth": 1, "sm_enc_heads": 8, "sm_enc_mlp_dim": 768, "lg_dim": 384,
                               "lg_patch_size": 56, "lg_enc_depth": 1, "lg_enc_heads": 8, "lg_enc_mlp_dim": 1536,
                               "cross_attn_depth": 1, "cross_attn_heads": 8}),
    ("pit", "PiT", {"image_size": 224, "patch_size": 14, "dim": 256, "num_classes": 1000, "depth": (1, 1, 1),
                    "heads": 16, "mlp_dim": 1024}),
    ("levit", "LeViT", {"image_size": 224, "num_classes": 1000, "stages": 3, "dim": (256, 384, 512), "depth": 1,
                        "heads": (4, 6, 8), "mlp_mult": 2}),
    ("cvt", "CvT", {"num_classes": 1000, "s3_depth": 2}),
    ("twins_svt", "TwinsSVT", {"num_classes": 1000, "s3_depth": 2}),
    ("regionvit", "RegionViT", {"dim": (64, 128, 256, 512), "depth": (1, 1, 1, 1), "window_size": 7,
                                "num_classes": 1000}),
    ("crossformer", "CrossFormer", {"num_classes": 1000, "dim": (64, 128, 256, 512), "depth": (1, 1, 1, 1),
                                    "global_window_size": (8, 4, 2, 1), "local_window_size": 7}),
    ("scalable_vit", "ScalableViT", {"num_classes": 1000, "dim": 64, "heads": (2, 4, 8, 16), "depth": (1, 1, 1, 1),
                                     "ssa_dim_key": (40, 40, 40, 32), "reduction_factor": (8, 4, 2, 1),
                                     "window_size": (64, 32, None, None)}),
    ("sep_vit", "SepViT", {"num_classes": 1000, "dim": 32, "dim_head": 32, "heads": (1, 2, 4, 8),
                           "depth": (1, 1, 1, 1), "window_size": 7}),
    ("max_vit", "MaxViT", {"num_classes": 1000, "dim": 64, "dim_head": 32, "depth": (1, 1, 1, 1), "window_size": 7}),
    ("nest", "NesT", {"image_size": 224, "patch_size": 4, "dim": 96, "heads": 3, "num_hierarchies": 3,
                      "block_repeats": (1, 1, 2), "num_classes": 1000}),
    ("xcit", "XCiT", {**VIT, "dim": 384, "cls_depth": 1}),
    ("mobile_vit", "MobileViT", {"image_size": (256, 256), "dims": [96, 120, 144], "num_classes": 1000,
                                 "channels": [16, 32, 48, 48, 64, 64, 80, 80, 96, 96, 384]}),
    ("look_vit", "LookViT", {"dim": 512, "image_size": 512, "num_classes": 1000, "depth": 2, "highres_patch_size": 32,
                             "highres_window_size": 8}),
    ("jumbo_vit", "JumboViT", {"num_classes": 1000, "image_size": 64, "patch_size": 8, "dim": 16, "depth": 2,
                               "heads": 2, "mlp_dim": 64, "jumbo_cls_k": 3, "jumbo_ff_mult": 2}),
)  # fmt: skip


def cases() -> Iterator[ModelCase]:
    """Yield one case per row."""
    rows = (_row(place, *row) for place, row in enumerate(TABLE))
    return make_cases(LIBRARY, "vision", rows)
