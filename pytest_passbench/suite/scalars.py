"""Arithmetic on plain numbers and lists in a graph: a few characters of it can fill any memory, so it has limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_passbench.suite.limits import MAX_BITS, MAX_LENGTH, too_long

_ADDITIONS = frozenset({"add", "iadd", "radd", "concat", "iconcat"})
_MULTIPLICATIONS = frozenset({"mul", "imul", "rmul"})
_GROWING = frozenset({"pow", "ipow", "rpow", "lshift", "ilshift", "rlshift"})
_TOO_LONG = f"a list of more than {MAX_LENGTH:,} items"


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
