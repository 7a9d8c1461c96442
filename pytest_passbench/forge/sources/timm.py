"""Image models of ``timm`` with random weights; repeated blocks are cut if a family's arguments allow it."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources.rows import ModelSpec, Table, plain, sized
from pytest_passbench.forge.sources.rows import build as build_row
from pytest_passbench.forge.sources.rows import cases as make_cases

LIBRARY = "timm"
LICENSE = "Apache-2.0"

UNIT, TWOS = (1, 1, 1, 1), (2, 2, 2, 2)
CONVOLUTIONAL: Table = {
    **plain("resnet18 resnet50d resnext50_32x4d seresnet50 ecaresnet26t res2net50_26w_4s", layers=TWOS),
    **plain("skresnet18 tresnet_m legacy_seresnext26_32x4d", layers=list(UNIT)),
    **plain("resnest14d gcresnet33ts mobilenetv2_100 mobilenetv3_small_100 mobilenetv4_conv_small lcnet_050 tinynet_e"
            " efficientnet_b0 efficientnetv2_rw_t fbnetv3_b hardcorenas_a regnetx_004 regnety_004 xception41"
            " inception_v3 inception_v4 ghostnet_100 ghostnetv2_100 hrnet_w18_small vgg11_bn darknet53 cspresnet50"
            " cs3darknet_s eca_nfnet_l0 nf_regnet_b0 nf_resnet26 repvgg_a0 rexnet_100 selecsls42b dla34"
            " ese_vovnet19b_dw dpn48b"),
    "resnetv2_50": {"layers": list(UNIT)},
    "densenet121": {"block_config": (3, 3, 3, 3)},
    "convmixer_768_32": {"variants": [(1, 224), (4, 112)]},
    **plain("convnext_atto convnextv2_atto inception_next_tiny", depths=TWOS),
    **plain("starnet_s1 mambaout_femto", depths=list(UNIT)),
    "repvit_m0_9": {"depth": TWOS},
}  # fmt: skip
"""Networks of convolutions, which take images of any size."""

TRANSFORMERS: Table = {
    **plain("vit_tiny_patch16_224 vit_base_patch16_clip_224 vit_relpos_small_patch16_224 eva02_tiny_patch14_224"
            " deit3_small_patch16_224 beit_base_patch16_224 cait_xxs24_224 xcit_nano_12_p16_224"
            " tnt_s_legacy_patch16_224 convit_tiny", depth=2),
    **plain("mixer_s32_224 gmlp_s16_224 resmlp_12_224 levit_128s mobilevit_xxs mobilevitv2_050 coatnet_nano_rw_224"
            " crossvit_tiny_240 efficientvit_b0 visformer_tiny pit_ti_224 mobilenetv4_hybrid_medium coat_lite_tiny"
            " efficientformer_l1 gcvit_xxtiny tiny_vit_5m_224 hiera_tiny_224 volo_d1_224 focalnet_tiny_srf"
            " naflexvit_base_patch16_map poolformer_s12 caformer_s18 convformer_s18"),
    **plain("swin_tiny_patch4_window7_224 swinv2_cr_tiny_ns_224 pvt_v2_b0 twins_svt_small edgenext_xx_small",
            depths=TWOS),
    "davit_tiny": {"depths": UNIT},
    "fastvit_t8": {"layers": TWOS},
    "swiftformer_xs": {"layers": list(TWOS)},
    "sequencer2d_s": {"layers": list(UNIT)},
    **plain("swinv2_tiny_window8_256", depths=TWOS, variants=[(1, 256), (4, 256)]),
    **plain("maxvit_pico_rw_256 botnet26t_256 halonet26t lambda_resnet26t", variants=[(1, 256), (4, 256)]),
}  # fmt: skip
"""Networks with attention or token mixing; most take one size of image only."""

ROTATING = (
    (Variant(1, 224), Variant(8, 224)),
    (Variant(1, 224), Variant(512, 32)),
    (Variant(1, 256), Variant(64, 64)),
    (Variant(2, 160), Variant(256, 32)),
)
"""Sizes for the networks of convolutions, in turn. A size that an architecture cannot take is left out."""
FIXED = ((Variant(1, 224), Variant(8, 224)), (Variant(2, 224), Variant(64, 224)))


def cases() -> Iterator[ModelCase]:
    """Yield one case per row, if timm is installed."""
    table = [*sized(CONVOLUTIONAL, ROTATING), *sized(TRANSFORMERS, FIXED)]
    rows = [ModelSpec(name, "timm:create_model", {"0": "float b 3 n n"}, arguments, variants)
            for name, arguments, variants in table]  # fmt: skip
    for row, case in zip(rows, make_cases(LIBRARY, "vision", rows), strict=False):
        yield dataclasses.replace(case, build=functools.partial(build, row))


def build(row: ModelSpec) -> torch.nn.Module:
    """Return the row's model with random weights from a fixed seed."""
    with stand_in():
        importlib.import_module(LIBRARY)
    return build_row(dataclasses.replace(row, arguments={"model_name": row.name, **row.arguments}))


InterpolationMode = enum.Enum("InterpolationMode", "NEAREST BILINEAR BICUBIC BOX HAMMING LANCZOS")
"""The names of torchvision's interpolation modes, which are keys of timm's tables."""
CLASSES = {
    "torchvision": (),
    "torchvision.transforms": ("ToTensor", "PILToTensor", "CenterCrop", "Compose"),
    "torchvision.transforms.functional": (),
    "torchvision.ops": (),
    "torchvision.ops.misc": ("FrozenBatchNorm2d",),
    "torchvision.datasets": ("CIFAR100", "CIFAR10", "MNIST", "KMNIST", "FashionMNIST", "ImageFolder"),
}
"""The modules of the stand-in, parents first, and the empty classes in each."""


@contextmanager
def stand_in() -> Iterator[None]:
    """Make the modules of :data:`CLASSES` importable inside the block if torchvision is not installed.

    They leave ``sys.modules`` at its end, so that no other library takes them for torchvision.
    """
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        yield
        return
    modules = _modules()
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]


def _modules() -> dict[str, types.ModuleType]:
    modules: dict[str, types.ModuleType] = {}
    for name, classes in CLASSES.items():
        modules[name] = module = types.ModuleType(name)
        module.__path__ = []  # a package: its submodules can be imported
        for word in classes:
            setattr(module, word, type(word, (), {"__module__": name}))
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    modules["torchvision.transforms.functional"].InterpolationMode = InterpolationMode  # type: ignore[attr-defined]
    return modules
