"""Products of matrices and convolutions in half precision, for machines on which eager's are slow.

Eager's products of halves need instructions that many CPUs lack. Without them they take 15 to 40 times as long as in
float32 (figures: benchmarks/LOG.md). A kernel widens the halves once and multiplies floats in registers. It adds the
terms in eager's order, so that the result has eager's bits: the product of two halves is exact in float.

Sources: ``sum`` and ``gemm_core_`` in aten/src/ATen/native/cpu/BlasKernel.cpp of PyTorch, and
ReducedPrecisionFloatGemvFastPathKernel.cpp beside it.
"""

from __future__ import annotations

import functools
import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from pytest_passbench.fusion.ir import HALVES, Buffer, Call, Unsupported, Value, size_text
from pytest_passbench.fusion.lower import rule
from pytest_passbench.fusion.pieces import to_be_stored
from pytest_passbench.fusion.windows import numbers

FEWEST_COLUMNS = 4
"""With fewer columns, most lanes of a register would be empty."""
FEWEST_TERMS = 400
"""Eager adds the terms of a batch of smaller products one by one."""
LEAST_REUSE = 4
"""Eager's sums along two rows of memory use registers. A kernel widens m + n rows for m n sums, and is faster only if
m n / (m + n) is greater than this."""


@functools.cache
def eager_is_slow(dtype: torch.dtype) -> bool:
    """Return True if eager's products of this dtype use no instructions for half precision on this machine.

    Other processors than those of x86-64 were not measured.
    """
    names = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    if dtype not in names or platform.machine() not in ("x86_64", "AMD64"):
        return False
    has_kernels = getattr(torch.ops.mkldnn, names[dtype], None)  # None in a build without oneDNN
    return has_kernels is None or not has_kernels()


@dataclass(frozen=True)
class Product:
    """A call of a C++ function that stores a buffer: a product of ``operands``, of which None is an absent bias.

    ``name`` is the operator's. ``sizes`` has the function's further arguments as text.
    """

    name: str
    function: str
    result: Buffer
    operands: tuple[Value | None, ...]
    sizes: str

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers that it reads."""
        return [value.buffer for value in self.operands if value is not None]

    def line(self, names: Mapping[Buffer, str]) -> str:
        """Return the call, with these names for the pointers to buffers."""
        places = [names[self.result]]
        for value in self.operands:
            place = "nullptr" if value is None else names[value.buffer]
            places.append(f"{place} + {size_text(value.offset)}" if value is not None and value.offset else place)
        return f"{self.function}({', '.join(places)}, {self.sizes});"


PRODUCT_RULES: dict[str, Callable[[Call], Product]] = {}
"""The functions that return an operator's product, by the operator's name. They raise Unsupported."""


def _product(*names: str) -> Callable[[Callable[[Call], Product]], Callable[[Call], Product]]:
    def enter(function: Callable[[Call], Product]) -> Callable[[Call], Product]:
        PRODUCT_RULES.update(dict.fromkeys(names, function))
        rule(*names)(to_be_stored)
        return function

    return enter


def _check(call: Call, columns: int) -> None:
    """Raise Unsupported for a product that is not in half precision throughout, or that has few columns."""
    dtype = call.results[0].dtype
    if dtype not in HALVES or any(value.dtype != dtype for value in call.values()):
        raise Unsupported(f"{call.name} of {dtype}".replace("torch.", ""))
    if columns < FEWEST_COLUMNS:
        raise Unsupported(f"{call.name} with a result of {columns} columns")


def _text(*sizes: int) -> str:
    return ", ".join(map(size_text, sizes))


@_product("mm", "bmm", "addmm", "baddbmm")
def _matrices(call: Call) -> Product:
    """Return the product of two matrices, or of a batch of them, plus a third operand if there is one."""
    a, result = call.arguments, call.results[0]
    left, right = a.get("mat1") or a.get("batch1") or a["self"], a.get("mat2") or a["batch2"]
    added = a["self"] if a["self"] is not left else None
    rows, columns, depth = result.sizes[-2], result.sizes[-1], left.sizes[-1]
    _check(call, columns)
    if a.get("alpha", 1) != 1 or a.get("beta", 1) != 1:
        raise Unsupported(f"{call.name} with factors")
    small = len(left.sizes) == 3 and rows * columns * depth < FEWEST_TERMS
    function = "products<IN_TURN>" if small else _function(left, right, rows, depth)
    if function == "dots" and rows * columns <= LEAST_REUSE * (rows + columns):
        raise Unsupported(f"{call.name} of {rows} rows and {columns} columns is fast in eager")
    count = result.sizes[0] if len(result.sizes) == 3 else 1
    layouts = [_steps(item.sizes, item.strides) for item in (result, left, right, added or result)]
    sizes = f"{_text(count, rows, columns, depth)}, {', '.join(layouts)}"
    return Product(call.name, function, result, (left, right, added), sizes)


def _steps(sizes: tuple[int, ...], strides: tuple[int, ...]) -> str:
    """Return the steps from matrix to matrix, row to row and column to column of what is broadcast to a batch."""
    steps = [0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)]
    return f"{{{_text(*[0] * (3 - len(steps)), *steps)}}}"


def _function(left: Value, right: Value, rows: int, depth: int) -> str:
    """Return the C++ function that adds the terms of a product in eager's order.

    The order follows from the dimension that eager reads each matrix along. It copies one that lies along neither.
    """
    left_along_depth = _in_rows(left) or not (left.strides[-2] == 1 and left.strides[-1] >= rows)
    right_along_depth = not _in_rows(right) and right.strides[-2] == 1 and right.strides[-1] >= depth
    if left_along_depth and right_along_depth:
        return "dots"
    return f"products<{'BY_FOUR' if left_along_depth or right_along_depth else 'FROM_ADDED'}>"


def _in_rows(value: Value) -> bool:
    return value.strides[-1] == 1 and value.strides[-2] >= value.sizes[-1]


@_product("convolution")
def _convolution(call: Call) -> Product:
    a, result = call.arguments, call.results[0]
    image, weight, rank = a["input"], a["weight"], len(a["weight"].sizes) - 2
    if a["transposed"] or not 1 <= rank <= 3:
        raise Unsupported("a transposed convolution" if a["transposed"] else f"a convolution of {rank} dimensions")
    if not all(_contiguous(item) for item in (image, weight, result)):
        raise Unsupported("a convolution of tensors that are not contiguous")
    _check(call, math.prod(result.sizes[2:]))
    window = [(1, item.sizes[2:]) for item in (image, weight, result)]
    window += [(n, numbers(a[name], rank)) for name, n in (("stride", 1), ("padding", 0), ("dilation", 1))]
    triples = (f"{{{_text(*[default] * (3 - rank), *sizes)}}}" for default, sizes in window)
    counts = _text(image.sizes[0], a["groups"], weight.sizes[1], weight.sizes[0] // a["groups"])
    return Product(
        call.name, "convolution", result, (image, weight, a["bias"]), f"{counts}, {{{', '.join(triples)}}}"
    )


def _contiguous(item: Value | Buffer) -> bool:
    return bool(torch.empty_strided(item.sizes, item.strides, device="meta").is_contiguous())
