"""The libraries that cases come from. Each has ``LIBRARY``, ``LICENSE`` and ``cases()``, which is empty if not
installed.
"""

from __future__ import annotations

from pytest_passbench.forge.sources import (
    diffusers,
    monai,
    pytorchcv,
    timm,
    torch_geometric,
    transformers,
    vit_pytorch,
)

SOURCES = (transformers, diffusers, vit_pytorch, pytorchcv, monai, torch_geometric, timm)
