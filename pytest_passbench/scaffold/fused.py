"""A pass with the generator's kernel, printed to be read and changed."""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from pytest_passbench.fusion import Unsupported
from pytest_passbench.fusion.columns import Size, SizedNumber, columns, joined
from pytest_passbench.fusion.function import Source, source
from pytest_passbench.fusion.ir import C_TYPES, Buffer, Nest, Trace, Value
from pytest_passbench.fusion.kernel import FLAGS
from pytest_passbench.fusion.regions import called
from pytest_passbench.fusion.schedule import schedule
from pytest_passbench.fusion.trace import Recorder, trace
from pytest_passbench.scaffold.assemble import check, pattern
from pytest_passbench.scaffold.emitter import wrapped_call
from pytest_passbench.scaffold.parts import Part

GENERIC = torch.bfloat16
"""The dtype that stands for any, where a task has its graph in several."""


@dataclass(frozen=True)
class FusedKernel:
    """A kernel for all subgraphs of a part: its text, and its trace with sizes by column.

    ``holes`` has the values of the part's holes by column.
    """

    printed: Source
    trace: Trace
    count: int
    holes: dict[Node, tuple[Any, ...]]


def fused_pass(part: Part, stem: str, doc: str) -> str:
    """Return the file of a pass with one fused kernel in C++.

    Raises Unsupported if there is none that is right for all subgraphs.
    """
    kernel = _kernel(part, f"{stem}_kernel")
    lines = _FusedWrapper(part, kernel, stem).lines()
    body = "".join(f"    {line}\n" for line in lines)
    heads = ["import math"] if "math." in body else []
    head = wrapped_call(f"def {stem}", [part.names[value] for value in part.arguments], 0) + ":"
    flags = ", ".join(f'"{flag}"' for flag in FLAGS)
    matched = pattern(part)
    heads += ["import operator"] if "operator." in matched else []
    imports = "".join(f"{line}\n" for line in heads) + ("\n" if heads else "")
    return "\n\n".join([
        f'"""{doc}"""\n\n{imports}import torch\n\nfrom pytest_passbench.kernels import cpp\n\n'
        f'lib = cpp.load("""\n{kernel.printed.text}""", flags=({flags},))\n',
        matched,
        f"{head}\n{body}",
        f"def replacement_func():\n    return {stem}\n",
    ])  # fmt: skip


def _kernel(part: Part, name: str) -> FusedKernel:
    form = part.form
    varying = {arg for arg in _tensors(part) if len(set(form.dtypes(arg))) > 1}
    dtype = GENERIC if varying else None
    real = [{arg: form.shapes(arg)[column] for arg in _tensors(part)} for column in range(form.real)]
    traces = [_trace(part, column, shapes, dtype, varying) for column, shapes in enumerate(real)]
    if varying:
        _refuse_fixed(traces[0], _trace(part, 0, real[0], torch.float16, varying))
    whole, nests = _scheduled(traces, dtype)
    for shapes in _other_sizes(real):
        with contextlib.suppress(Unsupported):  # the graph states this size
            more = [*traces, _trace(part, 0, shapes, dtype, varying)]
            whole, nests = _scheduled(more, dtype)
            traces = more
    if any(value.buffer.argument is not None for value in whole.results):
        raise Unsupported("a result that is an argument")
    holes = {
        hole: (*form.literal_values(hole)[: form.real], *form.literal_values(hole)[:1] * (len(traces) - form.real))
        for hole in form.literals
        if hole in part.arguments
    }
    return FusedKernel(source(name, nests, whole.generic), whole, len(traces), holes)


def _scheduled(traces: Sequence[Trace], generic: torch.dtype | None) -> tuple[Trace, list[Nest]]:
    whole = replace(joined(traces), generic=generic)
    return whole, schedule(whole)


_Shapes = dict[Node, tuple[int, ...]]


def _other_sizes(real: Sequence[_Shapes]) -> Iterator[_Shapes]:
    """Yield the first subgraph's shapes with a size doubled: in all places where it is, and in aligned ones alone.

    A pattern may match at sizes that no subgraph has. So what the graph does not state is no literal in its kernel.
    """
    places = {(arg, d): size for arg, shape in real[0].items() for d, size in enumerate(shape) if size > 1}
    groups: dict[Any, set[tuple[Node, int]]] = {}
    for (arg, d), size in places.items():
        groups.setdefault(size, set()).add((arg, d))
        groups.setdefault((size, len(real[0][arg]) - d), set()).add((arg, d))  # operands that are broadcast together
    for group in groups.values():
        yield {
            arg: tuple(2 * x if (arg, d) in group else x for d, x in enumerate(shape))
            for arg, shape in real[0].items()
        }


def _tensors(part: Part) -> list[Node]:
    return [arg for arg in part.arguments if arg not in part.form.literals]


def _trace(part: Part, column: int, shapes: _Shapes, dtype: torch.dtype | None, varying: set[Node]) -> Trace:
    """Return the calls of a part at these shapes, with a subgraph's literals, and ``dtype`` where dtypes differ."""
    recorder, values = Recorder(overwrite=True), list[Any]()
    for arg in part.arguments:
        if arg in part.form.literals:
            values.append(part.form.literal_values(arg)[column])
        else:
            stated = dtype if arg in varying else part.form.dtypes(arg)[column]
            values.append(_meta(shapes[arg], part.form.order(arg), stated))
    if any(isinstance(value, torch.dtype) for value in values):
        raise Unsupported("a dtype that differs")

    def run(*items: Any) -> tuple[Any, ...]:
        known: dict[Node, Any] = dict(zip(part.arguments, items, strict=True))
        for node in part.nodes:
            recorder.name = part.names[node]
            known[node] = called(node, known)
        return tuple(known[node] for node in part.returned)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sizes that do not fit: those are tried too
        recorded = trace(run, values, recorder=recorder)
    for value, arg in zip(recorded.inputs, _tensors(part), strict=True):
        value.buffer.name = part.names[arg]
    return recorded


def _meta(shape: tuple[int, ...], order: tuple[int, ...] | None, dtype: torch.dtype | None) -> torch.Tensor:
    """Return an argument without data, which lies densely in the order that all subgraphs have."""
    if order is None or dtype not in C_TYPES:
        raise Unsupported("an argument that does not lie densely in memory" if order is None else str(dtype))
    dense = torch.empty([shape[d] for d in order], dtype=dtype, device="meta")
    return dense.permute([order.index(d) for d in range(len(order))])


def _refuse_fixed(recorded: Trace, other: Trace) -> None:
    """Raise Unsupported if not every tensor of the generic dtype follows the arguments' dtype."""
    for buffer, counterpart in zip(_buffers(recorded), _buffers(other), strict=False):
        if (buffer.dtype == GENERIC) != (counterpart.dtype == torch.float16) or (
            buffer.dtype != GENERIC and buffer.dtype != counterpart.dtype
        ):
            raise Unsupported("a dtype that the graph states")


def _buffers(recorded: Trace) -> list[Buffer]:
    result: dict[Buffer, None] = {}
    front = [value.buffer for value in (*recorded.inputs, *recorded.results)]
    while front:
        buffer = front.pop()
        if buffer not in result:
            result[buffer] = None
            front += [value.buffer for value in buffer.maker.values()] if buffer.maker else []
    return sorted(result, key=lambda buffer: buffer.number)


class _FusedWrapper:
    """The lines of the function that launches a kernel."""

    def __init__(self, part: Part, kernel: FusedKernel, stem: str) -> None:
        self.part, self.kernel, self.stem = part, kernel, stem
        self.inputs = {
            value.buffer: part.names[arg] for value, arg in zip(kernel.trace.inputs, _tensors(part), strict=True)
        }
        self.names = dict(self.inputs)
        for buffer in (*kernel.printed.buffers, *(value.buffer for value in kernel.trace.results)):
            if buffer not in self.names:
                name = buffer.name or "between"
                self.names[buffer] = name if name not in self.names.values() else f"{name}_{buffer.number}"
        self.lengths = list(self._lengths())

    def lines(self) -> list[str]:
        """Return the lines: a check, operands laid out, results allocated, the launch."""
        kernel = self.kernel
        guard = self._guard() if self.inputs else []
        lines = [*check(self.part, self.stem), *guard, *self._laid_out()]
        fresh = dict.fromkeys(b for b in (*kernel.printed.buffers, *(v.buffer for v in kernel.trace.results)))
        lines += [f"{self.names[b]} = {self._empty(b)}" for b in fresh if b not in self.inputs]
        operands = [self._operand(buffer) for buffer in kernel.printed.buffers]
        operands += [self._length(size) for size in kernel.printed.sizes]
        operands += [self._number(number) for number in kernel.printed.numbers]
        operands += [self._dtype(GENERIC)] if kernel.trace.generic is not None else []
        lines += wrapped_call(f"lib.{self.stem}_kernel", operands, 0).split("\n")
        results = [self._result(value) for value in kernel.trace.results]
        return [*lines, f"return {', '.join(results)}"]

    def _guard(self) -> list[str]:
        """Return a check of shapes: the kernel has loops for these ranks, ones and equal sizes."""
        (first, name), *others = self.inputs.items()
        flat = all(self._length(size) == f"{name}.numel()" for size in self.kernel.printed.sizes)
        if flat and all(buffer.sizes == first.sizes for buffer, _other in others):
            return self._refusal([(f"{other}.shape", f"{name}.shape") for _buffer, other in others])
        places: dict[Size, str] = {}
        pairs = []
        for buffer, name in self.inputs.items():
            texts = [f"{name}.shape[{d}]" for d in range(len(buffer.sizes))]
            sizes = [
                places.setdefault(size, text) if isinstance(size, Size) else str(size)
                for size, text in zip(buffer.sizes, texts, strict=True)
            ]
            free = sizes == texts
            tuple_text = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
            pairs.append((f"{name}.dim()", str(len(sizes))) if free else (f"{name}.shape", tuple_text))
        return self._refusal(pairs)

    def _refusal(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        conditions = " or ".join(f"{actual} != {expected}" for actual, expected in pairs)
        shapes = ", ".join(f"{{tuple({name}.shape)}}" for name in self.inputs.values())
        return [f"if {conditions}:", f'    raise ValueError(f"{self.stem}: no kernel for {shapes}")'] if pairs else []

    def _laid_out(self) -> Iterator[str]:
        for arg in _tensors(self.part):
            order, name = self.part.form.order(arg), self.part.names[arg]
            assert order is not None
            if list(order) == sorted(order):
                yield f"{name} = {name}.contiguous()"
            else:
                yield f"{name} = {name}.permute({order}).contiguous().permute({_inverse(order)})"

    def _operand(self, buffer: Buffer) -> str:
        order = _order(buffer.sizes, buffer.strides)
        return self.names[buffer] + ("" if list(order) == sorted(order) else ".data_ptr()")

    def _empty(self, buffer: Buffer) -> str:
        order = _order(buffer.sizes, buffer.strides)
        text = f"torch.empty({self._shape([buffer.sizes[d] for d in order])}, dtype={self._dtype(buffer.dtype)})"
        return text if list(order) == sorted(order) else f"{text}.permute({_inverse(order)})"

    def _dtype(self, dtype: torch.dtype) -> str:
        if dtype != self.kernel.trace.generic:
            return str(dtype)
        return next(f"{name}.dtype" for buffer, name in self.inputs.items() if buffer.dtype == dtype)

    def _result(self, value: Value) -> str:
        name = self.names[value.buffer]
        if value.whole:
            return name
        sizes, strides = self._shape(value.sizes), self._shape(value.strides)
        offset = f", {self._length(value.offset)}" if value.offset else ""
        return f"{name}.as_strided({sizes}, {strides}{offset})"

    def _shape(self, sizes: Sequence[int]) -> str:
        for buffer, name in self.inputs.items():
            if tuple(sizes) == buffer.sizes and sizes:
                return f"{name}.shape"
        return f"({', '.join(map(self._length, sizes))}{',' if len(sizes) == 1 else ''})"

    def _length(self, size: int) -> str:
        """Return a size as an expression of the arguments. Raises Unsupported if there is none for all subgraphs."""
        goal = columns(size, self.kernel.count)
        text = next((text for text, items in self.lengths if items == goal), None)
        if text is None and len(set(goal)) == 1:
            return str(goal[0])
        text = text or next(self._combined(goal), None)
        if text is None:
            raise Unsupported(f"a size that is not one of the arguments': {goal}")
        return text

    def _number(self, number: SizedNumber) -> str:
        """Return a number as an argument. Raises Unsupported if no argument is equal to it in all subgraphs."""
        for hole, values in self.kernel.holes.items():
            if values == number.columns:
                return self.part.names[hole]
        raise Unsupported("a number that is no argument")

    def _lengths(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield what the wrapper can read off its arguments, each with its value for each subgraph."""
        count = self.kernel.count
        for buffer, name in self.inputs.items():
            rank = len(buffer.sizes)
            places = [rank - 1, *range(rank - 1)] if rank else []
            yield from (
                (f"{name}.shape[{-1 if d == rank - 1 else d}]", columns(buffer.sizes[d], count)) for d in places
            )
            yield f"{name}.numel()", columns(math.prod(buffer.sizes), count)
            for first, last in itertools.combinations(range(rank + 1), 2):
                if 1 < last - first < rank:
                    ends = f"{first or ''}:{last if last < rank else ''}"
                    yield f"math.prod({name}.shape[{ends}])", columns(math.prod(buffer.sizes[first:last]), count)
        for hole, values in self.kernel.holes.items():
            if all(type(value) is int for value in values):
                yield self.part.names[hole], values

    def _combined(self, goal: Sequence[int]) -> Iterator[str]:
        """Yield expressions of one or two lengths that have these values."""
        yield from self._shifted(goal)
        for b, y in self.lengths:
            if all(j and i % j == 0 for i, j in zip(goal, y, strict=True)):
                part = tuple(i // j for i, j in zip(goal, y, strict=True))
                yield from (f"{a} * {b}" for a, x in self.lengths if x == part)
                yield from (f"({text}) * {b}" for text in self._shifted(part))
        for (a, x), (b, y) in itertools.permutations(self.lengths, 2):
            pairs = list(zip(x, y, strict=True))
            if all(j and i % j == 0 for i, j in pairs) and tuple(i // j for i, j in pairs) == goal:
                yield f"{a} // {b}"
            if tuple(i + j for i, j in pairs) == goal:
                yield f"{a} + {b}"

    def _shifted(self, goal: Sequence[int]) -> Iterator[str]:
        """Yield expressions of a length and a constant that have these values."""
        for a, x in self.lengths:
            pairs = list(zip(goal, x, strict=True))
            ratios, inverse = {i / j for i, j in pairs if j}, {j / i for i, j in pairs if i}
            for symbol, values in (("*", ratios), ("//", inverse)):
                if len(values) == 1 and (factor := values.pop()).is_integer() and factor > 1:
                    yield f"{a} {symbol} {int(factor)}"
            if len(differences := {i - j for i, j in pairs}) == 1:
                difference = differences.pop()
                yield f"{a} {'+' if difference > 0 else '-'} {abs(difference)}"


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))


def _order(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order of a dense tensor's dimensions in memory. Raises Unsupported if it is not dense."""
    order = tuple(sorted(range(len(sizes)), key=lambda d: (-int(strides[d]), d)))
    dense = 1
    for d in reversed(order):
        if sizes[d] != 1 and strides[d] != dense:
            raise Unsupported("a result that does not lie densely in memory")
        dense = sizes[d] * dense
    return order
