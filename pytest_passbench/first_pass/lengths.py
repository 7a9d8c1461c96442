"""Sizes in a wrapper: expressions of its arguments that have the right value in every match."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_passbench.fusion import Unsupported
from pytest_passbench.fusion.columns import SizedNumber, columns
from pytest_passbench.fusion.ir import Buffer


class Lengths:
    """The sizes that a wrapper can read off its arguments. ``strided`` are the inputs whose strides count too."""

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
        """Return a shape: an argument's, if it is one."""
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
