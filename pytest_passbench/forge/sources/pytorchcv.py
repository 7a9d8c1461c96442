"""Convolutional networks of ``pytorchcv``, as published (all layers: stages differ in width)."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources.rows import ModelSpec
from pytest_passbench.forge.sources.rows import cases as make_cases

LIBRARY = "pytorchcv"
LICENSE = "MIT"

CLASSIFIERS = (
    "vgg.bn_vgg11", "resnet.resnet18", "preresnet.preresnet18", "resnext.resnext14_16x4d",
    "seresnet.seresnet18", "senet.senet16", "densenet.densenet121", "dpn.dpn68",
    "shufflenet.shufflenet_g2_w1", "shufflenetv2.shufflenetv2_w1", "squeezenet.squeezenet_v1_1",
    "squeezenext.sqnxt23_w1", "mobilenet.mobilenet_w1", "mobilenetv3.mobilenetv3_small_w1",
    "mnasnet.mnasnet_b1", "darknet53.darknet53", "inceptionv4.inceptionv4", "xception.xception",
    "ghostnet.ghostnet", "hardnet.hardnet39ds", "hrnet.hrnet_w18_small_v1", "igcv3.igcv3_w1",
    "dla.dla34", "cbamresnet.cbam_resnet18", "bamresnet.bam_resnet18", "diaresnet.diaresnet18",
    "sknet.sknet50", "resnesta.resnesta18", "regnet.regnetx002", "peleenet.peleenet",
    "menet.menet108_8x1_g3", "airnet.airnet50_1x64d_r2", "ibnresnet.ibn_resnet50",
    "proxylessnas.proxylessnas_cpu", "vovnet.vovnet27s", "mixnet.mixnet_s",
    "efficientnet.efficientnet_b0", "nasnet.nasnet_4a1056", "tresnet.tresnet_m", "fishnet.fishnet99",
    "octresnet.octresnet10_ad2", "selecsls.selecsls42b", "dicenet.dicenet_w1", "spnasnet.spnasnet",
    "scnet.scnet50", "revnet.revnet38", "condensenet.condensenet74_c4_g4", "channelnet.channelnet",
    "fbnet.fbnet_cb", "bninception.bninception", "efficientnetedge.efficientnet_edge_small_b",
)  # fmt: skip
SEGMENTERS = (
    "bisenet.bisenet_resnet18_celebamaskhq", "fastscnn.fastscnn_cityscapes", "cgnet.cgnet_cityscapes",
    "dabnet.dabnet_cityscapes", "sinet.sinet_cityscapes", "lednet.lednet_cityscapes",
    "fpenet.fpenet_cityscapes", "edanet.edanet_cityscapes", "linknet.linknet_cityscapes",
    "contextnet.ctxnet_cityscapes", "esnet.esnet_cityscapes", "erfnet.erfnet_cityscapes",
)  # fmt: skip
SIZES = ((Variant(1, 224), Variant(4, 224)), (Variant(1, 224), Variant(8, 224)), (Variant(2, 224), Variant(16, 224)))


def _row(name: str, variants: tuple[Variant, ...], arguments: dict[str, object]) -> ModelSpec:
    module, _, function = name.partition(".")
    return ModelSpec(function, f"pytorchcv.models.{module}:{function}", {"0": "float b 3 n n"}, arguments, variants)


def cases() -> Iterator[ModelCase]:
    """Yield classifiers at 224 pixels, and segmentation networks at 512."""
    rows = [_row(name, SIZES[i % len(SIZES)], {}) for i, name in enumerate(CLASSIFIERS)]
    sizes = (Variant(1, 512), Variant(2, 512))
    rows += [_row(name, sizes, {"in_size": (512, 512)}) for name in SEGMENTERS]
    yield from make_cases(LIBRARY, "vision", rows)
