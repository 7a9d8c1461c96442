"""Values that a subgraph's source may contain: named constants, and literals that are written as calls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.suite import scalars

CONTAINERS = frozenset({"slice", "tuple", "list", "torch.Size"})
"""Calls that make containers, of literals or other values: ``slice(None, n)``, ``torch.Size([2, 3])``."""

CONSTRUCTORS = CONTAINERS | {"float", "int", "bool", "complex", "torch.finfo", "torch.iinfo"}
"""Calls that make a literal from literals: ``float('inf')``."""

_NAMED = {
    **dict.fromkeys(("inf", "math.inf", "torch.inf"), math.inf),
    **dict.fromkeys(("nan", "math.nan", "torch.nan"), math.nan),
    **dict.fromkeys(("math.pi", "torch.pi"), math.pi),
    **dict.fromkeys(("math.e", "torch.e"), math.e),
    "math.tau": math.tau,
    "Ellipsis": ...,
}
_LIMITS = frozenset({"min", "max", "eps", "tiny", "smallest_normal", "resolution", "bits"})
_CALLS = {"slice": slice, "float": float, "int": int, "bool": bool, "complex": complex}


@dataclass(frozen=True)
class DtypeLimits:
    """The limits of a dtype: ``torch.finfo(dtype)`` or ``torch.iinfo(dtype)``. Only its numbers are values."""

    info: Any

    def number(self, name: str) -> float | int:
        """Return a number such as ``torch.finfo(torch.float32).min``. Raises UserError for an unknown name."""
        if name not in _LIMITS or not hasattr(self.info, name):
            raise UserError(f"torch.finfo has no number {name!r}", remedy="min, max, eps, tiny")
        value: float | int = getattr(self.info, name)
        return value


class Repeated:
    """A list as long as a value of the graph says: ``[None] * n``. Published graphs make such lists and use none."""


def constant(dotted: str) -> Any:
    """Return the value of ``inf``, ``math.pi``, ``torch.float32``, and the like. Raises UserError for other names."""
    if dotted in _NAMED:
        return _NAMED[dotted]
    prefix, _, name = dotted.rpartition(".")
    value = getattr(torch, name, None) if prefix == "torch" else None
    if not isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        raise UserError(f"{dotted!r} is not a value", remedy="constants such as torch.float32 and inf are")
    return value


def construct(dotted: str, args: list[Any]) -> Any:
    """Return the literal that a call of one of :data:`CONSTRUCTORS` makes. Raises UserError on bad arguments."""
    try:
        if dotted in _CALLS:
            value = _CALLS[dotted](*args)
            if problem := scalars.fault("", (value,)):
                raise ValueError(problem)
            return value
        if dotted in ("torch.finfo", "torch.iinfo"):
            return DtypeLimits(torch.finfo(*args) if dotted == "torch.finfo" else torch.iinfo(*args))
        (items,) = args or ((),)
        if not isinstance(items, tuple | list):
            raise TypeError("takes a tuple or list")
        return list(items) if dotted == "list" else tuple(items)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{dotted}(...): {error}", remedy="give it literals") from None
