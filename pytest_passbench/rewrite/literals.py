"""Comparison of a pattern's literals with a target's."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from pytest_passbench.rewrite import names
from pytest_passbench.rewrite.meta import value_of
from pytest_passbench.rewrite.normalise import CanonicalCall

_SIZED = frozenset({"view", "reshape", "expand"})


def align(pattern: CanonicalCall, target: CanonicalCall, node: Node, name: str) -> tuple[Any, Any]:
    """Return an argument of both calls in comparable form: -1 sizes are resolved, and a number is widened.

    A number is widened to as many axes as the other side has. ``node`` is the target's node. If () as an argument
    does not mean that the argument is absent, both sides are put into tuples.
    """
    expected, actual = pattern.get(name), target.get(name)
    if pattern.op in _SIZED and name == "size":
        return _sizes(pattern.op, expected, node, target)
    if name in names.WIDENED:
        expected, actual = _widen(expected, actual), _widen(actual, expected)
    if name == "dim" and pattern.op in names.NO_DIMENSIONS:
        return (expected,), (actual,)
    return expected, actual


def widened(expected: Any, actual: Any, name: str, rank: int | None) -> tuple[Any, Any]:
    """Return two literals of a parameter as wide as each other, with dimensions below 0 counted from ``rank``."""
    if name in names.WIDENED:
        expected, actual = _widen(expected, actual), _widen(actual, expected)
    return _wrap(expected, rank), _wrap(actual, rank)


def _widen(value: Any, like: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and isinstance(like, tuple):
        return (value,) * len(like)
    if isinstance(value, tuple) and isinstance(like, tuple) and len(value) == 1 < len(like):
        return value * len(like)
    return value


def rank_of(call: CanonicalCall, name: str) -> int | None:
    """Return the rank that a negative value of a parameter counts from, or None if it names no known dimension."""
    if name not in names.DIM_NAMES:
        return None
    subject = call.args.get("input", call.args.get("tensors"))
    if isinstance(subject, tuple) and subject:
        subject = subject[0]
    value = value_of(subject) if isinstance(subject, Node) else None
    if not isinstance(value, torch.Tensor):
        return None
    return int(value.dim()) + (1 if call.op in ("unsqueeze", "stack") else 0)


def _wrap(value: Any, rank: int | None) -> Any:
    if isinstance(value, tuple):
        return tuple(_wrap(item, rank) for item in value)
    if rank and isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return value + rank
    return value


def _sizes(op: str, expected: Any, node: Node, target: CanonicalCall) -> tuple[Any, Any]:
    """Return expected and found sizes, with -1 resolved from the shape of the target's node."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or not isinstance(target.get("size"), tuple):
        return expected, target.get("size")
    symbolic = any(isinstance(item, Node) for item in target.get("size"))
    sizes = target.get("size") if symbolic else tuple(value.shape)
    if not isinstance(expected, tuple) or len(expected) != len(sizes):
        return expected, sizes
    kept_sizes = _with_kept_sizes(op, target, sizes)
    return tuple(k if e == -1 and isinstance(e, int) else e for e, k in zip(expected, kept_sizes, strict=True)), sizes


def _with_kept_sizes(op: str, target: CanonicalCall, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the size that -1 stands for, per dimension: expand keeps the input's, view and reshape infer it."""
    subject = target.get("input")
    value = value_of(subject) if isinstance(subject, Node) else None
    if op != "expand" or not isinstance(value, torch.Tensor):
        return sizes
    return (*sizes[: len(sizes) - value.dim()], *value.shape)


def equal(
    expected: Any, actual: Any, *, floating: bool, home: torch.device | None = None, whole: bool = False
) -> bool:
    """Return True if two literals, which hold no node, mean the same.

    ``floating`` is True if the call computes in floating point. Then 2 and 2.0 mean the same. ``home`` is the device
    of the target's inputs. A CUDA device in the pattern stands for it. ``whole`` is True for an argument that is not
    an item of another. Then None, False and () mean the same: the argument is absent.
    """
    if whole and _empty(expected) and _empty(actual):
        return True
    if isinstance(expected, torch.device) or isinstance(actual, torch.device):
        return _same_device(expected, actual, home)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return _same_number(expected, actual) and (floating or type(expected) is type(actual))
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        pairs = zip(expected, actual, strict=False)
        return len(expected) == len(actual) and all(equal(e, f, floating=floating, home=home) for e, f in pairs)
    return type(expected) is type(actual) and bool(expected == actual)


def _same_number(number: float, other: float) -> bool:
    """Return True if two numbers are the same. 0.0 and -0.0 differ, and NaN is the same as NaN."""
    return (number == other and math.copysign(1, number) == math.copysign(1, other)) or (
        number != number and other != other
    )


def _empty(value: Any) -> bool:
    return value is None or value is False or value == ()


def _same_device(expected: Any, actual: Any, home: torch.device | None) -> bool:
    if home is not None and home.type == "cpu":  # then no device means the processor
        expected, actual = expected or home, actual or home
    try:
        device, other = torch.device(expected), torch.device(actual)
    except (RuntimeError, TypeError):
        return False
    if device.type == other.type:
        return (device.index or 0) == (other.index or 0)
    return home is not None and other.type == home.type and device.type == "cuda"


def computes_floating(node: Node) -> bool:
    """Return True if a call computes in floating point, whatever types its numbers have.

    The dtypes of its input tensors decide. If it has none, the dtypes among its arguments decide.
    """
    values = [value_of(n) for n in node.all_input_nodes]
    dtypes = [v.dtype for value in values for v in (value if isinstance(value, (tuple, list)) else (value,))
              if isinstance(v, torch.Tensor)]  # fmt: skip
    dtypes = dtypes or [d for d in (*node.args, *node.kwargs.values()) if isinstance(d, torch.dtype)]
    return any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)


def show(value: Any) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, Node):
        return str(value.name)
    if isinstance(value, tuple):
        return "(" + ", ".join(show(item) for item in value) + ")"
    return repr(value)
