"""Values that a subgraph's source may contain: named constants, literals that are written as calls, and arithmetic
on plain numbers and lists. A few characters of it can fill any memory, so it has limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.suite.limits import MAX_BITS, MAX_LENGTH, too_long

_ADDITIONS = frozenset({"add", "iadd", "radd", "concat", "iconcat"})
_MULTIPLICATIONS = frozenset({"mul", "imul", "rmul"})
_GROWING = frozenset({"pow", "ipow", "rpow", "lshift", "ilshift", "rlshift"})
_TOO_LONG = f"a list of more than {MAX_LENGTH:,} items"

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
            if problem := fault("", (value,)):
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


def fault(name: str, args: Sequence[Any]) -> str | None:
    """Return what is wrong with an operation on plain values before it is done, None if nothing is.

    ``name`` is that of a function or method, such as ``pow`` or ``__mul__``.
    """
    name = name.strip("_")
    if name in _MULTIPLICATIONS and (problem := _repetition_fault(args)):
        return problem
    lists = [value for value in args if isinstance(value, list | tuple)]
    if name in _ADDITIONS and len(lists) == len(args) and sum(map(len, lists)) > MAX_LENGTH:
        return _TOO_LONG
    integers = [value for value in args if isinstance(value, int)]
    if any(too_long(value) for value in integers):
        return f"an integer of more than {MAX_BITS} bits"
    if name in _GROWING and len(integers) == len(args) and any(abs(value) > MAX_BITS for value in integers[1:]):
        return f"a power or shift of integers by more than {MAX_BITS}"
    return None


def _repetition_fault(args: Sequence[Any]) -> str | None:
    """Return what is wrong with a multiplication if a factor is a list, tuple or text: ``[None] * 12`` is right."""
    factors = [value for value in args if isinstance(value, str | bytes | list | tuple)]
    counts = [value for value in args if isinstance(value, int)]
    if not factors:
        return None
    if isinstance(factors[0], str | bytes) or len(counts) != 1 or len(args) != 2:
        return "a text is multiplied, or a list by something else than an integer"
    if any(isinstance(item, list | tuple | dict | str) for item in factors[0]):
        return "a list of lists or texts is multiplied"
    return _TOO_LONG if len(factors[0]) * counts[0] > MAX_LENGTH else None
