"""Every model of ``timm`` with random weights, as published, on images of its own size."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch

from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources import timm as tables

LIBRARY, LICENSE = tables.LIBRARY, tables.LICENSE
MAX_PARAMETERS = 60_000_000


def cases() -> Iterator[tuple[str, ModelCase]]:
    """Yield a case for each model. Its family is the module that defines it."""
    if importlib.util.find_spec(LIBRARY) is None:
        return
    with tables.stand_in():
        importlib.import_module(LIBRARY)
        registry = importlib.import_module(f"{LIBRARY}.models._registry")
    for name in registry.list_models():
        yield (
            f"{LIBRARY}/{registry._model_to_module[name]}",
            ModelCase(
                name=f"{LIBRARY}/{name}",
                modality="vision",
                build=functools.partial(build, name),
                inputs=inputs,
                variants=(Variant(1, 0),),
                note="defaults, on images of its own size",
            ),
        )


def build(name: str) -> torch.nn.Module:
    """Return the model with random weights from a fixed seed. Raises ValueError if it has too many parameters."""
    with tables.stand_in():
        timm: Any = importlib.import_module(LIBRARY)
        with torch.device("meta"):
            size = sum(p.numel() for p in timm.create_model(name).parameters())
        if size > MAX_PARAMETERS:
            raise ValueError(f"{size:,} parameters; at most {MAX_PARAMETERS:,} are captured")
        torch.manual_seed(0)
        model = timm.create_model(name)
    assert isinstance(model, torch.nn.Module)
    return model.eval()


def inputs(model: torch.nn.Module, variant: Variant) -> tuple[torch.Tensor, ...]:
    """Return images of the size that the model was published for."""
    size = getattr(model, "default_cfg", {}).get("input_size", (3, 224, 224))
    generator = torch.Generator().manual_seed(variant.batch)
    return (torch.randn(variant.batch, *size, generator=generator),)
