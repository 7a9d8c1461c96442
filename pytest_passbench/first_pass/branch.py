"""A wrapper's way through one kernel: the conditions under which it is right, and the lines that launch it.

Sizes are expressions of the wrapper's arguments that have the right value in every match.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from pytest_passbench.first_pass.kernels import FusedKernel
from pytest_passbench.first_pass.naming import NOT_FINITE
from pytest_passbench.first_pass.values import TensorForm
from pytest_passbench.fusion import Unsupported
from pytest_passbench.fusion.columns import Size, SizedNumber, columns
from pytest_passbench.fusion.ir import Buffer, Value


@dataclass(frozen=True)
class Condition:
    """Two expressions of the arguments that have to be equal. If ``fixed``, the second one is a constant."""

    actual: str
    expected: str
    fixed: bool


class Branch:
    """The names and texts of a wrapper for some matches."""

    def __init__(self, loops: FusedKernel, buffers: Sequence[Buffer]) -> None:
        part, self.loops = loops.part, loops
        pairs = list(zip(loops.trace.inputs, part.tensors, strict=True))
        self.nodes = {value.buffer: node for value, node in pairs}
        self.inputs = {value.buffer: part.names[node] for value, node in pairs}
        self.names = dict(self.inputs)
        results = [value.buffer for value in loops.trace.results]
        self.fresh = [b for b in dict.fromkeys((*buffers, *results)) if b not in self.inputs]
        for buffer in self.fresh:
            name = buffer.name or "between"
            self.names[buffer] = name if name not in self.names.values() else f"{name}_{buffer.number}"
        strided = [buffer for buffer, node in self.nodes.items() if loops.orders[node] is None]
        holes = {part.names[node]: values for node, values in loops.holes.items()}
        self.lengths = Lengths(self.inputs, holes, loops.count, strided)

    # -- conditions

    def dtypes(self) -> list[Condition]:
        """Return the conditions on dtypes: the kernel reads its arguments as elements of these dtypes."""
        first, result = "", []
        for value, node in zip(self.loops.trace.inputs, self.loops.part.tensors, strict=True):
            name = self.loops.part.names[node]
            if node not in self.loops.varying:
                result.append(Condition(f"{name}.dtype", str(value.dtype), True))
            elif first:
                result.append(Condition(f"{name}.dtype", f"{first}.dtype", False))
            else:
                first = name
        for node, values in self.loops.holes.items():
            if all(isinstance(value, torch.dtype) for value in values) and len(set(values)) > 1:
                result.append(Condition(self.loops.part.names[node], f"{first}.dtype", False))
        return result

    def literals(self) -> list[Condition]:
        """Return the conditions on arguments that are literals in the kernel."""
        return [
            Condition(self.loops.part.names[node], NOT_FINITE.get(repr(values[0]), repr(values[0])), True)
            for node, values in self.loops.holes.items()
            if len(set(map(repr, values))) == 1
        ]

    def shapes(self, sizes: Sequence[int]) -> list[Condition]:
        """Return the conditions on shapes and strides: on ranks, and on sizes that are 1 or equal in the kernel."""
        if not self.inputs:
            return []
        (first, name), *others = self.inputs.items()
        flat = all(self.lengths.length(size) == f"{name}.numel()" for size in sizes)
        if flat and all(buffer.sizes == first.sizes for buffer, _other in others) and not self.lengths.strided:
            return [Condition(f"{other}.shape", f"{name}.shape", False) for _buffer, other in others]
        places: dict[Size, str] = {}
        result = [self._tuple(buffer.sizes, f"{n}.shape", f"{n}.dim()", places) for buffer, n in self.inputs.items()]
        strides = [(buffer.strides, f"{self.inputs[buffer]}.stride()") for buffer in self.lengths.strided]
        return list(self._with_ranks([*result, *(self._tuple(items, text, "", places) for items, text in strides)]))

    def _with_ranks(self, conditions: Sequence[Condition]) -> Iterator[Condition]:
        """Yield conditions. Before one that indexes a shape or strides comes one on the number of dimensions."""
        ranks, ranked = {name: len(buffer.sizes) for buffer, name in self.inputs.items()}, set[str]()
        for condition in conditions:
            for name in dict.fromkeys(re.findall(r"(\w+)\.(?:shape|stride\(\))\[", condition.expected)):
                if name not in ranked:
                    yield Condition(f"{name}.dim()", str(ranks[name]), False)
                    ranked.add(name)
            if condition.expected.startswith("(") or condition.actual.endswith(".dim()"):
                ranked.add(condition.actual.partition(".")[0])
            yield condition

    def _tuple(self, items: Sequence[int], text: str, rank: str, places: dict[Size, str]) -> Condition:
        texts = [f"{text}[{d}]" for d in range(len(items))]
        expected = [
            places.setdefault(item, here) if isinstance(item, Size) else str(item)
            for item, here in zip(items, texts, strict=True)
        ]
        if rank and texts == expected:
            return Condition(rank, str(len(items)), True)
        fixed = not any(isinstance(item, Size) for item in items)
        like = next((name for buffer, name in self.inputs.items() if buffer.sizes == tuple(items) and rank), "")
        same = like and not fixed and f"{like}.shape" != text
        return Condition(text, f"{like}.shape" if same else tuple_text(expected), fixed)

    def layouts(self) -> list[Condition]:
        """Return the conditions on how arguments lie in memory."""
        dense = (node for node in self.loops.part.tensors if self.loops.orders[node] is not None)
        return [Condition(f"{self._in_order(node)}.is_contiguous()", "True", True) for node in dense]

    # -- lines

    def _in_order(self, node: Node) -> str:
        order, name = self.loops.orders[node], self.loops.part.names[node]
        assert order is not None
        return name if list(order) == sorted(order) else f"{name}.permute({order})"

    def laid_out(self) -> Iterator[str]:
        """Yield lines that lay arguments out as the kernel reads them."""
        for node in self.loops.part.tensors:
            order, name = self.loops.orders[node], self.loops.part.names[node]
            if order is not None:
                back = "" if list(order) == sorted(order) else f".permute({_inverse(order)})"
                yield f"{name} = {self._in_order(node)}.contiguous(){back}"

    def allocated(self, device: str = "") -> list[str]:
        """Return lines that allocate the results, and the buffers between arguments and results."""
        return [f"{self.names[buffer]} = {self._empty(buffer, device)}" for buffer in self.fresh]

    def _empty(self, buffer: Buffer, device: str) -> str:
        order = _order(buffer)
        shape = self.lengths.shape([buffer.sizes[d] for d in order])
        text = f"torch.empty({shape}, dtype={self.dtype(buffer.dtype)}{device})"
        return text if list(order) == sorted(order) else f"{text}.permute({_inverse(order)})"

    def dtype(self, dtype: torch.dtype) -> str:
        """Return a dtype as the wrapper's text: that of an argument if it is the generic dtype."""
        if dtype != self.loops.trace.generic:
            return str(dtype)
        return next(f"{name}.dtype" for buffer, name in self.inputs.items() if buffer.dtype == dtype)

    def operands(self, buffers: Sequence[Buffer], sizes: Sequence[int], numbers: Sequence[SizedNumber]) -> list[str]:
        """Return a kernel's operands."""
        pointers = [self.names[buffer] for buffer in buffers]
        return [*pointers, *map(self.lengths.length, sizes), *map(self.lengths.number, numbers)]

    def dense(self, buffer: Buffer) -> bool:
        """Return True if a buffer's dimensions lie in memory in their own order, without gaps."""
        try:
            order = _order(buffer)
        except Unsupported:
            return False
        return list(order) == sorted(order)

    def returned(self) -> str:
        """Return the line that returns the results."""
        return f"return {', '.join(map(self._result, self.loops.trace.results))}"

    def _result(self, value: Value) -> str:
        name = self.names[value.buffer]
        if value.whole:
            return name
        offset = [self.lengths.length(value.offset)] if value.offset else []
        offset = [f"{name}.storage_offset()", *offset] if value.buffer in self.inputs and offset else offset
        place = f", {' + '.join(offset)}" if offset else ""
        return f"{name}.as_strided({self.lengths.shape(value.sizes)}, {self.lengths.shape(value.strides)}{place})"


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))


def _order(buffer: Buffer) -> tuple[int, ...]:
    """Return the order of a buffer's dimensions in memory. Raises Unsupported if it is not dense."""
    order = tuple(sorted(range(len(buffer.sizes)), key=lambda d: (-int(buffer.strides[d]), d)))
    if not TensorForm(buffer.dtype, buffer.sizes, buffer.strides).dense(order):
        raise Unsupported("a result that does not lie densely in memory")
    return order


class Lengths:
    """The sizes that a wrapper can compute from its arguments. ``strided`` are inputs whose strides it may use."""

    def __init__(
        self, inputs: Mapping[Buffer, str], holes: Mapping[str, tuple[Any, ...]], count: int,
        strided: Sequence[Buffer],
    ) -> None:  # fmt: skip
        self.inputs, self.holes, self.count, self.strided = inputs, holes, count, strided
        self.items = list(self._items())

    def length(self, size: int) -> str:
        """Return a size as an expression of the arguments. Raises Unsupported if there is none for all matches."""
        goal = columns(size, self.count)
        text = next((text for text, items in self.items if items == goal), None)
        if text is None and len(set(goal)) == 1:
            return str(goal[0])
        text = text or next(self._combined(goal), None)
        if text is None:
            raise Unsupported(f"a size that is not one of the arguments': {goal}")
        return text

    def number(self, number: SizedNumber) -> str:
        """Return a number as an argument. Raises Unsupported if no argument is equal to it in all matches."""
        for name, values in self.holes.items():
            if values == number.columns:
                return name
        raise Unsupported("a number that is not an argument")

    def shape(self, sizes: Sequence[int]) -> str:
        """Return a shape as text: that of an argument if an argument has it."""
        for buffer, name in self.inputs.items():
            if tuple(sizes) == buffer.sizes and sizes:
                return f"{name}.shape"
        return tuple_text([self.length(size) for size in sizes])

    def _items(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for buffer, name in self.inputs.items():
            rank = len(buffer.sizes)
            places = [rank - 1, *range(rank - 1)] if rank else []
            for d in places:
                yield f"{name}.shape[{-1 if d == rank - 1 else d}]", columns(buffer.sizes[d], self.count)
            yield f"{name}.numel()", columns(math.prod(buffer.sizes), self.count)
            for first, last in itertools.combinations(range(rank + 1), 2):
                if 1 < last - first < rank:
                    ends = f"{first or ''}:{last if last < rank else ''}"
                    size = math.prod(buffer.sizes[first:last])
                    yield f"math.prod({name}.shape[{ends}])", columns(size, self.count)
            if buffer in self.strided:
                for d, stride in enumerate(buffer.strides):
                    yield f"{name}.stride({d})", columns(stride, self.count)
        for name, values in self.holes.items():
            if all(type(value) is int for value in values):
                yield name, values

    def _combined(self, goal: Sequence[int]) -> Iterator[str]:
        """Yield expressions of one or two lengths that have these values."""
        yield from self._shifted(goal)
        for b, y in self.items:
            if all(j and i % j == 0 for i, j in zip(goal, y, strict=True)):
                part = tuple(i // j for i, j in zip(goal, y, strict=True))
                yield from (f"{a} * {b}" for a, x in self.items if x == part)
                yield from (f"({text}) * {b}" for text in self._shifted(part))
        for (a, x), (b, y) in itertools.permutations(self.items, 2):
            pairs = list(zip(x, y, strict=True))
            if all(j and i % j == 0 for i, j in pairs) and tuple(i // j for i, j in pairs) == goal:
                yield f"{a} // {b}"
            if tuple(i + j for i, j in pairs) == goal:
                yield f"{a} + {b}"

    def _shifted(self, goal: Sequence[int]) -> Iterator[str]:
        """Yield expressions of a length and a constant that have these values."""
        for a, x in self.items:
            pairs = list(zip(goal, x, strict=True))
            ratios = {i / j for i, j in pairs} if all(x) else set[float]()
            inverse = {j / i for i, j in pairs} if all(goal) else set[float]()
            for symbol, values in (("*", ratios), ("//", inverse)):
                if len(values) == 1 and (factor := values.pop()).is_integer() and factor > 1:
                    yield f"{a} {symbol} {int(factor)}"
            if len(differences := {i - j for i, j in pairs}) == 1:
                difference = differences.pop()
                yield f"{a} {'+' if difference > 0 else '-'} {abs(difference)}"


def tuple_text(items: Sequence[str]) -> str:
    """Return a tuple as Python text."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
