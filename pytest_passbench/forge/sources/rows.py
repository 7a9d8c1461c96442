"""Architectures as rows of data: the place of the class, its arguments, and its inputs in a small notation."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_passbench.forge.models import ModelCase, Variant, parse, tensors

Table = dict[str, dict[str, Any]]
"""Arguments by the architecture's name. Those named ``variants`` are its batches and sizes."""


@dataclass(frozen=True)
class Library:
    """A library of models, with its licence. There are no cases if it is not installed."""

    name: str
    license: str
    cases: Callable[[], Iterable[ModelCase]]


@dataclass(frozen=True)
class ModelSpec:
    """An architecture as data.

    ``where`` is ``module:name``. ``inputs`` maps forward's arguments (or ``"0"``, ``"1"``, ... by position) to the
    notation of :mod:`pytest_passbench.forge.models`, such as ``"float b 3 n n"`` or ``"int1000 b n"``.
    """

    name: str
    where: str
    inputs: dict[str, str]
    arguments: dict[str, Any] = field(default_factory=dict)
    variants: tuple[Variant, ...] = (Variant(1, 224), Variant(4, 224))


def plain(names: str, **arguments: Any) -> Table:
    """Return a row per name, all with the same arguments."""
    return {name: dict(arguments) for name in names.split()}


def sized(
    table: Table, sizes: Sequence[tuple[Variant, ...]]
) -> Iterator[tuple[str, dict[str, Any], tuple[Variant, ...]]]:
    """Yield each name with its arguments and its variants: those of the row, or ``sizes`` in turn."""
    for place, (name, row) in enumerate(table.items()):
        variants = tuple(Variant(*pair) for pair in row.get("variants", ()))
        arguments = {key: value for key, value in row.items() if key != "variants"}
        yield name, arguments, variants or sizes[place % len(sizes)]


def library(name: str, license_name: str, modality: str, rows: Sequence[ModelSpec]) -> Library:
    """Return the library whose cases are these rows."""
    return Library(name, license_name, functools.partial(cases, name, modality, rows))


def cases(library: str, modality: str, rows: Iterable[ModelSpec]) -> Iterator[ModelCase]:
    """Yield the rows as cases, up to the first whose package is not installed."""
    for row in rows:
        if importlib.util.find_spec(row.where.partition(".")[0].partition(":")[0]) is None:
            return
        texts = (text if name.isdigit() else f"{name}={text}" for name, text in row.inputs.items())
        yield ModelCase(
            name=f"{library}/{row.name}",
            modality=modality,
            build=functools.partial(build, row),
            inputs=functools.partial(tensors, [parse(text) for text in texts]),
            variants=row.variants,
            note=", ".join(f"{k}={v}" for k, v in row.arguments.items()) or "defaults",
        )


def build(row: ModelSpec) -> torch.nn.Module:
    """Return the row's model with random weights from a fixed seed."""
    module, _, name = row.where.partition(":")
    torch.manual_seed(0)
    model = getattr(load(module), name)(**row.arguments)
    assert isinstance(model, torch.nn.Module)
    return model.eval()


def load(module: str) -> types.ModuleType:
    """Import one module of a package. If the package itself cannot be imported, an empty one takes its place."""
    package = module.partition(".")[0]
    if package not in sys.modules:
        try:
            importlib.import_module(package)
        except ImportError:
            spec = importlib.util.find_spec(package)
            shell = types.ModuleType(package)
            shell.__path__ = list(spec.submodule_search_locations or ()) if spec else []
            sys.modules[package] = shell
    return importlib.import_module(module)
