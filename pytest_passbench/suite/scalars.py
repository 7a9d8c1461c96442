"""Arithmetic on plain numbers and lists in a graph: a few characters of it can fill any memory, so it has limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_passbench.suite.limits import MAX_BITS, too_long

_MULTIPLICATIONS = frozenset({"mul", "imul", "rmul"})
_GROWING = frozenset({"pow", "ipow", "rpow", "lshift", "ilshift", "rlshift"})


def fault(name: str, args: Sequence[Any]) -> str | None:
    """Return what is wrong with an operation on plain values before it is done, None if nothing is.

    ``name`` is that of a function or method, such as ``pow`` or ``__mul__``.
    """
    name = name.strip("_")
    if name in _MULTIPLICATIONS and any(isinstance(value, str | bytes | list | tuple) for value in args):
        return "a list, tuple or text is multiplied"
    integers = [value for value in args if isinstance(value, int)]
    if any(too_long(value) for value in integers):
        return f"an integer of more than {MAX_BITS} bits"
    if name in _GROWING and len(integers) == len(args) and any(abs(value) > MAX_BITS for value in integers[1:]):
        return f"a power or shift of integers by more than {MAX_BITS}"
    return None
