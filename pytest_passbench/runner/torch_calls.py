"""The operators of torch's that the engine calls: products and convolutions, which candidates leave to eager."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Node

from pytest_passbench.rewrite.operators import PRODUCTS
from pytest_passbench.runner.native_code import NotNative
from pytest_passbench.suite.opnames import op_name

_WORD, _TENSOR, _LIST = range(3)  # ``Argument`` in engine.cpp
_OTHER_NAMES = {"input": "self"}  # of torch.matmul, in place of the schema's

TensorWords = Callable[[Any], list[int]]


def argument_words(node: Node, tensor: TensorWords) -> tuple[str, int, list[int]]:
    """Return the operator that a node calls, the number of its arguments, and these as words.

    ``tensor`` gives the words of a tensor: its place and its form. Raises NotNative for any other operator, and for
    arguments that its schema does not have.
    """
    name = op_name(node)
    if name not in PRODUCTS or node.op not in ("call_function", "call_method"):
        raise NotNative(f"calls {name}")
    schema = getattr(torch.ops.aten, name).default._schema
    words: list[int] = []
    for parameter, value in zip(schema.arguments, _bound(node, schema.arguments), strict=True):
        words += _words(str(parameter.type), parameter.N, value, tensor)
    return f"aten::{name}", len(schema.arguments), words


def _bound(node: Node, parameters: Any) -> Iterator[Any]:
    """Return the value of each parameter. A dropout would draw other numbers than Python's call."""
    names = {parameter.name for parameter in parameters}
    keywords = {name if name in names else _OTHER_NAMES.get(name, name): value for name, value in node.kwargs.items()}
    if len(node.args) > len(parameters) or not names.issuperset(keywords):
        raise NotNative("calls an operator with other arguments than those of its schema")
    for index, parameter in enumerate(parameters):
        value = node.args[index] if index < len(node.args) else keywords.get(parameter.name, parameter.default_value)
        if parameter.name == "dropout_p" and value:
            raise NotNative("draws random numbers")
        yield value


def _words(kind: str, size: int | None, value: Any, tensor: TensorWords) -> list[int]:
    inner = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional") else kind
    optional = inner != kind
    if optional and value is None:
        return [_WORD, 0]
    if inner == "Tensor":
        code, words = _TENSOR, tensor(value)
    elif inner == "List[int]":
        items = [value] if isinstance(value, int) else value
        if not isinstance(items, (list, tuple)) or not all(type(item) is int for item in items):
            raise NotNative("calls an operator with a list of something else than numbers")
        if len(items) == 1:  # it stands for all
            items = [*items] * (size or 1)
        code, words = _LIST, [len(items), *items]
    elif inner == "float" and isinstance(value, (int, float)):
        code, words = _WORD, [int(struct.unpack("<q", struct.pack("<d", value))[0])]
    elif inner in ("int", "bool") and isinstance(value, int):
        code, words = _WORD, [int(value)]
    else:
        raise NotNative("calls an operator with an argument that the engine does not pass")
    return [-1 - code if optional else code, *words]
