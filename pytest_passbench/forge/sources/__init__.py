"""The libraries that cases come from: each has ``LIBRARY``, ``LICENSE`` and ``cases()``; not installed: none."""

from __future__ import annotations

from pytest_passbench.forge.sources import diffusers, monai, pytorchcv, torch_geometric, transformers, vit_pytorch

SOURCES = (transformers, diffusers, vit_pytorch, pytorchcv, monai, torch_geometric)
