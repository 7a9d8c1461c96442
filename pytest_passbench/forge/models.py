"""What there is to capture: a case is one architecture with the inputs it is run on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from pytest_passbench.core.errors import UserError


@dataclass(frozen=True)
class Variant:
    """One batch and size: tokens for text, pixels a side for images, samples or frames for audio."""

    batch: int
    size: int

    @property
    def label(self) -> str:
        """Short name in subgraph ids: ``b4n128``."""
        return f"b{self.batch}n{self.size}"


@dataclass(frozen=True)
class Case:
    """An architecture: ``build`` makes the model with random weights, ``inputs`` what its forward takes."""

    name: str
    modality: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[torch.nn.Module, Variant], dict[str, Any] | tuple[Any, ...]]
    variants: tuple[Variant, ...]
    note: str = ""

    @property
    def short(self) -> str:
        """The name without its library."""
        return self.name.rpartition("/")[2]


def all_cases() -> list[Case]:
    """Every case of every source library that is installed."""
    from pytest_passbench.forge.sources import SOURCES

    return [case for source in SOURCES for case in source.cases()]


def pick(names: Iterable[str]) -> list[Case]:
    """The cases of these names (``library/architecture``); raises :class:`UserError` for an unknown one."""
    known = {case.name: case for case in all_cases()}
    missing = [name for name in names if name not in known]
    if missing:
        raise UserError(f"no such architecture: {', '.join(missing)}", remedy="see `passbench forge --list`")
    return [known[name] for name in names]
