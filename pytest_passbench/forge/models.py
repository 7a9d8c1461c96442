"""The material to capture: a case is one architecture with the inputs that it is run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Variant:
    """A batch and a size: tokens for text, pixels a side for images, samples or frames for audio."""

    batch: int
    size: int

    @property
    def label(self) -> str:
        """The short name in subgraph ids: ``b4n128``."""
        return f"b{self.batch}n{self.size}"


@dataclass(frozen=True)
class ModelCase:
    """An architecture. ``build`` makes the model with random weights, ``inputs`` makes the arguments of its
    forward.
    """

    name: str
    modality: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[torch.nn.Module, Variant], dict[str, Any] | tuple[Any, ...]]
    variants: tuple[Variant, ...]
    note: str = ""
