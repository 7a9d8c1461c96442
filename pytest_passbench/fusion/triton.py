"""The printer for Triton: each nest of loops as a kernel, a program per block of elements or of rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from pytest_passbench.core.grouping import reached
from pytest_passbench.fusion.columns import SizedNumber
from pytest_passbench.fusion.cpp import registers
from pytest_passbench.fusion.ir import (
    Access,
    Buffer,
    Expression,
    Kind,
    Nest,
    Store,
    Unsupported,
    accesses,
    below,
    place_text,
    size_text,
)
from pytest_passbench.fusion.kernel import pointers, with_parameters, wrapped
from pytest_passbench.fusion.triton_text import in_triton

WIDEST = 1 << 14
"""The elements of a row that a program holds as one block. A longer row is read in blocks, once for each sweep."""
FIRST = {Kind.REAL: ("0.0", 'float("-inf")'), Kind.DOUBLE: ("0.0", 'float("-inf")'), Kind.WHOLE: ("0", "-(2**63)")}
"""The values that a sum, and the search for the greatest element, begin with."""
HEAD = "import triton\nimport triton.language as tl\n"


@dataclass(frozen=True)
class TritonNest:
    """A kernel for a nest. Its parameters are ``buffers``, ``sizes`` and ``numbers``, then its blocks' lengths.

    A program computes BLOCK of ``columns`` elements, or, if ``rows`` is a number, HEIGHT rows of ``columns``. With
    ``long`` it reads a row block by block; else BLOCK is at least ``columns``.
    """

    name: str
    text: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[int, ...]
    numbers: tuple[SizedNumber, ...]
    rows: int | None
    columns: int
    long: bool


def triton_kernels(name: str, nests: Sequence[Nest], generic: torch.dtype | None = None) -> list[TritonNest]:
    """Return a kernel for each nest, in the order in which they run. Raises Unsupported for what Triton lacks."""
    several = len(nests) > 1
    return [_kernel(f"{name}_{place}" if several else name, nest, generic) for place, nest in enumerate(nests, 1)]


def _kernel(name: str, nest: Nest, generic: torch.dtype | None) -> TritonNest:
    touched = {access.buffer for access in accesses(nest.stores) if access.buffer}
    buffers = sorted(touched, key=lambda buffer: buffer.number)
    printer = _TritonPrinter(nest, pointers(buffers), generic)
    body, sizes, numbers = with_parameters("\n".join(f"    {line}" for line in printer.lines()))
    parameters = [*printer.names.values(), *sizes.values(), *numbers.values(), "BLOCK: tl.constexpr"]
    parameters += ["HEIGHT: tl.constexpr"] if printer.reduced else []
    text = f"@triton.jit\n{wrapped(f'def {name}(', parameters, '):')}\n{body}\n"
    rows = math.prod(nest.sizes[d] for d in printer.outer) if printer.reduced else None
    columns = math.prod(nest.sizes[d] for d in printer.inner)
    return TritonNest(name, text, tuple(buffers), tuple(sizes), tuple(numbers), rows, columns, printer.long)


class _TritonPrinter:
    """The lines of a kernel. ``outer`` are the loops over rows, ``inner`` those within a block."""

    def __init__(self, nest: Nest, names: Mapping[Buffer, str], generic: torch.dtype | None) -> None:
        self.nest, self.names, self.generic = nest, names, generic
        self.nodes = below(nest.stores)
        self.registers = registers(self.nodes, names)
        self.reduced = any(x.reduces or x.text == "running" for x in self.nodes)
        lane = [] if nest.lane in (*nest.rows, *nest.sweep) else [nest.lane]
        self.outer = tuple(nest.rows) if self.reduced else ()
        self.inner = tuple(nest.sweep) if self.reduced else (*nest.rows, *nest.sweep, *lane)
        self.counters = {d: f"i{d}" for d in (*self.outer, *self.inner)}
        self.within = nest.swept if self.reduced else frozenset(range(len(nest.sizes)))
        self.long = self.reduced and _greatest(math.prod(nest.sizes[d] for d in self.inner)) > WIDEST
        if self.long and any(x.text == "running" for x in self.nodes):
            raise Unsupported("a sum so far along a long row in Triton")
        self.kind = next((name for buffer, name in names.items() if buffer.dtype == generic), "")
        self.defined: set[Expression] = set()

    def lines(self) -> list[str]:
        """Return the kernel's body."""
        last = max(x.depth for x in self.nodes)
        lines = [*self._places(), *(line for depth in range(last + 1) for line in self._stage(depth))]
        if any(re.search(r"\bT\b", line) for line in lines):
            if not self.kind:
                raise Unsupported("a dtype that no operand of the kernel has")
            lines.insert(0, f"T = {self.kind}.dtype.element_ty")
        return lines

    def _places(self) -> list[str]:
        """Return the lines that compute where the program's elements lie: the counters of its loops."""
        if not self.reduced:
            return ["at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", *self._columns()]
        rows = _product(self.nest.sizes[d] for d in self.outer)
        row = "tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)[:, None]"
        lines = ["# The last row is done several times.", f"row = tl.minimum({row}, {rows} - 1)"]
        lines += self._split("row", self.outer)
        return lines if self.long else [*lines, "at = tl.arange(0, BLOCK)[None, :]", *self._columns()]

    def _columns(self) -> list[str]:
        return [f"inside = at < {_product(self.nest.sizes[d] for d in self.inner)}", *self._split("at", self.inner)]

    def _split(self, name: str, dims: Sequence[int]) -> list[str]:
        """Return the lines that compute loops' counters from one number for all their iterations."""
        used = {d for d in dims if any(access.at.steps[d] for access in accesses(self.nest.stores))}
        lines, below_ = [], "1"
        for d in reversed(dims):
            text = name if below_ == "1" else f"{name} // ({below_})" if "*" in below_ else f"{name} // {below_}"
            first = d == dims[0]
            if d in used:
                lines.append(f"i{d} = {text}" + ("" if first else f" % {size_text(self.nest.sizes[d])}"))
            size = size_text(self.nest.sizes[d])
            below_ = size if below_ == "1" else f"{size} * {below_}"
        return lines[::-1]

    # -- stages

    def _stage(self, depth: int) -> list[str]:
        """Return the lines for a depth of reduction: those that run once for a row, then a sweep over it."""
        at_depth = [store for store in self.nest.stores if store.value.depth == depth]
        reductions = [x for x in self.nodes if x.reduces and x.operands[0].depth == depth]
        lines = self._defined(x for x in self.nodes if x.depth == depth and not self._full(x) and not x.reduces)
        rows = [store for store in at_depth if not self._swept(store.access)]
        lines += [self._put(store) for store in rows if not self._full(store.value)]
        full = [store for store in at_depth if store not in rows or self._full(store.value)]
        if not (reductions or full):
            return lines
        before = set(self.defined)
        values = self._closure([*(x.operands[0] for x in reductions), *(store.value for store in full)])
        operators = [x.operator for x in (*values, *reductions) if x.operator and x not in before]
        body = self._defined(values)
        comment = [f"# {', '.join(dict.fromkeys(operators))}"] if operators else []
        if not self.long:
            body += [f"{self._name(x)} = {self._joined(x, self._part(x))}" for x in reductions]
            body += [self._put(store) for store in full]
            self.defined |= set(reductions)
            return [*lines, *comment, *body]
        self.defined = before | set(reductions)
        return [*lines, *comment, *self._looped(reductions, body, full)]

    def _looped(self, reductions: Sequence[Expression], body: list[str], full: Sequence[Store]) -> list[str]:
        """Return a sweep over a long row in blocks."""
        size = _product(self.nest.sizes[d] for d in self.inner)
        lines = [f"{self._name(x)} = tl.full((HEIGHT, BLOCK), {_first(x)}, {_DTYPES[x.kind]})" for x in reductions]
        body = ["at = first + tl.arange(0, BLOCK)[None, :]", *self._columns(), *body]
        for x in reductions:
            name, part = self._name(x), self._part(x)
            body.append(f"{name} = greater({part}, {name})" if x.text.startswith("greatest") else f"{name} += {part}")
        body += [self._put(store) for store in full]
        lines += [f"for first in range(0, {size}, BLOCK):", *(f"    {line}" for line in body)]
        return lines + [f"{self._name(x)} = {self._joined(x, self._name(x))}" for x in reductions]

    def _part(self, x: Expression) -> str:
        return f"tl.where(inside, {self._operand(x.operands[0])}, {_first(x)})"

    def _joined(self, x: Expression, terms: str) -> str:
        """Return what a block of terms is reduced to along its rows."""
        if x.text.startswith("greatest"):
            return f"tl.max({terms}, 1, keep_dims=True)" if x.kind == Kind.WHOLE else f"greatest({terms})"
        size = f" / {_product(self.nest.sizes[d] for d in self.inner)}" if x.text.startswith("mean ") else ""
        return f"tl.sum({terms}, 1, keep_dims=True){size}"

    def _closure(self, goals: Iterable[Expression]) -> list[Expression]:
        """Return the values of a sweep that expressions need, and that are not defined yet."""

        def undefined(nodes: Iterable[Expression]) -> list[Expression]:
            return [x for x in nodes if x not in self.defined and not x.constant and self._full(x)]

        return sorted(reached(undefined(goals), lambda x: undefined(x.operands)), key=lambda x: x.number)

    def _defined(self, nodes: Iterable[Expression]) -> list[str]:
        lines = []
        for x in nodes:
            if not x.constant and x not in self.defined:
                self.defined.add(x)
                lines.append(f"{self._name(x)} = {self._load(x) if x.access else self._text(x)}")
        return lines

    # -- statements

    def _name(self, x: Expression) -> str:
        return self.registers[x]

    def _operand(self, x: Expression) -> str:
        return in_triton(x.text, [], x.kind) if x.constant else self._name(x)

    def _text(self, x: Expression) -> str:
        operands = [self._operand(y) for y in x.operands]
        if all(y.constant for y in x.operands):
            pairs = zip(x.operands, operands, strict=True)
            operands = [f"tl.full((), {text}, {_DTYPES[y.kind]})" for y, text in pairs]
        if x.text == "running":
            wide = x.operands[0].kind == Kind.REAL
            text = f"tl.cumsum({operands[0]}{'.to(tl.float64)' if wide else ''}, 1)"
            return f"{text}.to(tl.float32)" if wide else text
        return in_triton(x.text, operands, x.kind)

    def _load(self, x: Expression) -> str:
        access = x.access
        assert access is not None
        if access.buffer is None:
            return f"({place_text(access, self.counters)}).to({'tl.int64' if x.kind == Kind.WHOLE else 'tl.float32'})"
        lookups = zip(x.operands, access.strides, strict=True)
        more = "".join(f" + {self._operand(y)} * {size_text(step)}" for y, step in lookups)
        terms = place_text(access, self.counters) + more
        mask = ", mask=inside, other=0" if self._full(x) else ""
        text = f"tl.load({self.names[access.buffer]}{'' if terms == '0' else f' + {terms}'}{mask})"
        as_read = x.kind == Kind.MASK or access.buffer.dtype in (torch.float32, torch.float64, torch.int64)
        return text + ("" if as_read else f".to({_DTYPES[x.kind]})")

    def _put(self, store: Store) -> str:
        buffer, value = store.access.buffer, self._operand(store.value)
        assert buffer is not None
        terms = place_text(store.access, self.counters)
        dims = [d for d, step in enumerate(store.access.at.steps) if step]
        if not self.reduced and not dims:
            terms = f"{terms} + 0 * at"
        elif self.reduced and not any(d in self.outer for d in dims):
            terms = f"{terms} + 0 * row"
        mask = ", mask=inside" if not self.reduced or self._swept(store.access) else ""
        return f"tl.store({self.names[buffer]} + {terms}, {value}{mask})"

    def _full(self, x: Expression) -> bool:
        return bool(x.varies & self.within)

    def _swept(self, access: Access) -> bool:
        return any(access.at.steps[d] for d in self.inner)


_DTYPES = {Kind.REAL: "tl.float32", Kind.DOUBLE: "tl.float64", Kind.WHOLE: "tl.int64", Kind.MASK: "tl.int1"}


def _first(x: Expression) -> str:
    """Return what a reduction begins with."""
    return FIRST[x.kind][x.text.startswith("greatest")]


def _product(sizes: Iterable[int]) -> str:
    texts = [size_text(size) for size in sizes if size != 1]
    return " * ".join(texts) or "1"


def _greatest(size: int) -> int:
    return max(getattr(size, "columns", (size,)))
