"""Networks for volumes and slices of ``monai``, narrow as in its tutorials."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources.rows import ModelSpec
from pytest_passbench.forge.sources.rows import cases as make_cases

LIBRARY = "monai"
LICENSE = "Apache-2.0"

VOLUMES = (Variant(1, 32), Variant(2, 32))
SLICES = (Variant(1, 128), Variant(4, 128))
CUBE, SLICE = "float b 1 n n n", "float b 1 n n"


def _row(name: str, text: str, variants: tuple[Variant, ...], **arguments: object) -> ModelSpec:
    return ModelSpec(name, f"monai.networks.nets:{name}", {"0": text}, arguments, variants)


ROWS = (
    _row("UNet", CUBE, VOLUMES, spatial_dims=3, in_channels=1, out_channels=2, channels=(16, 32, 64),
         strides=(2, 2), num_res_units=2),
    _row("BasicUNet", CUBE, VOLUMES, spatial_dims=3, features=(32, 32, 64, 128, 256, 32)),
    _row("BasicUNetPlusPlus", SLICE, SLICES, spatial_dims=2, features=(32, 32, 64, 128, 256, 32)),
    _row("AttentionUnet", CUBE, VOLUMES, spatial_dims=3, in_channels=1, out_channels=2, channels=(16, 32, 64),
         strides=(2, 2)),
    _row("SegResNet", CUBE, VOLUMES, init_filters=16),
    _row("VNet", CUBE, VOLUMES),
    _row("DynUNet", CUBE, VOLUMES, spatial_dims=3, in_channels=1, out_channels=2, kernel_size=(3, 3, 3),
         strides=(1, 2, 2), upsample_kernel_size=(2, 2), filters=(32, 64, 128)),
    _row("UNETR", CUBE, VOLUMES, in_channels=1, out_channels=2, img_size=(32, 32, 32)),
    _row("SwinUNETR", CUBE, VOLUMES, in_channels=1, out_channels=2, feature_size=24, depths=(1, 1, 1, 1)),
    _row("HighResNet", CUBE, (Variant(1, 24), Variant(2, 24)), in_channels=1, out_channels=2),
    _row("DenseNet121", SLICE, SLICES, spatial_dims=2, in_channels=1, out_channels=2),
    _row("SENet154", SLICE, SLICES, spatial_dims=2, in_channels=1, num_classes=2),
    _row("EfficientNetBN", SLICE, SLICES, model_name="efficientnet-b0", in_channels=1, pretrained=False),
    _row("AutoEncoder", SLICE, SLICES, spatial_dims=2, in_channels=1, out_channels=1, channels=(32, 64, 128),
         strides=(2, 2, 2)),
    _row("MedNeXtS", CUBE, VOLUMES, spatial_dims=3, in_channels=1, out_channels=2),
    _row("AHNet", CUBE, VOLUMES, spatial_dims=3, in_channels=1, out_channels=2),
    _row("VQVAE", SLICE, SLICES, spatial_dims=2, in_channels=1, out_channels=1, channels=(64, 128)),
    _row("HoVerNet", "float b 3 n n", (Variant(1, 256),), out_classes=5, freeze_encoder=False),
    _row("RegUNet", SLICE, SLICES, spatial_dims=2, in_channels=1, num_channel_initial=16, depth=3),
    _row("GlobalNet", "float b 1 n n", SLICES, image_size=(128, 128), spatial_dims=2, in_channels=1,
         num_channel_initial=16, depth=3),
)  # fmt: skip


def cases() -> Iterator[ModelCase]:
    """Return one case per row."""
    return make_cases(LIBRARY, "medical", ROWS)
