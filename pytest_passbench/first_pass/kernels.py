"""Nests of loops for the arguments of a pass: one kernel for all matches if that is right, else several."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch.fx import Node

from pytest_passbench.core.grouping import grouped, reached
from pytest_passbench.first_pass.columns import Column
from pytest_passbench.first_pass.parts import Part
from pytest_passbench.first_pass.values import TensorForm
from pytest_passbench.fusion import Unsupported
from pytest_passbench.fusion.columns import joined
from pytest_passbench.fusion.ir import Buffer, Nest, Trace
from pytest_passbench.fusion.schedule import nests

GENERIC = torch.bfloat16
"""The dtype that stands for any floating dtype if matches differ in dtype alone."""
Sizes = dict[Node, tuple[int, ...]]
T = TypeVar("T")


@dataclass(frozen=True)
class FusedKernel:
    """The nests for some matches of a part. ``trace`` has sizes for each column: a match, or a match at other sizes.

    ``orders`` has the order of dimensions in memory of each tensor argument, or None if it does not lie densely.
    ``holes`` has the values of each further argument by column, ``varying`` the tensors of the generic dtype.
    """

    part: Part
    nests: list[Nest]
    trace: Trace
    count: int
    orders: dict[Node, tuple[int, ...] | None]
    holes: dict[Node, tuple[Any, ...]]
    varying: frozenset[Node]


def _kind(column: Column) -> Any:
    """Return the tensors' ranks, which sizes are 1, their order in memory, and the other arguments' types."""
    return tuple(
        (tuple(size == 1 for size in x.sizes), _order([x])) if isinstance(x, TensorForm) else type(x) for x in column
    )


def _dtypes(column: Column) -> Any:
    return tuple(x.dtype if isinstance(x, TensorForm) else repr(x) for x in column)


def several(
    columns: Sequence[Column],
    build: Callable[[Sequence[Column]], T],
    keys: Sequence[Callable[[Column], Any]] = (_kind, _dtypes, repr),
) -> list[T]:
    """Return what ``build`` makes of all columns; if that is Unsupported, of smaller and smaller groups of them."""
    try:
        return [build(columns)]
    except Unsupported:
        if len(columns) == 1:
            raise
    while True:
        groups, keys = grouped(columns, keys[0]), keys[1:]
        if len(groups) > 1:
            return [item for group in groups.values() for item in several(group, build, keys)]


def _order(forms: Sequence[TensorForm]) -> tuple[int, ...] | None:
    """Return the order of dimensions in memory that all forms have, or None if there is none."""
    rank = len(forms[0].sizes)
    if any(len(form.sizes) != rank for form in forms):
        raise Unsupported("a rank that differs")
    orders = [tuple(range(rank))]
    orders += [tuple(sorted(range(rank), key=lambda d: -form.strides[d])) for form in forms]
    return next((order for order in orders if all(form.dense(order) for form in forms)), None)


class Traces:
    """Traces of a part, each made once."""

    def __init__(self, part: Part) -> None:
        self.part, self.traces = part, dict[Any, Trace]()

    def loops(self, columns: Sequence[Column], other_sizes: bool) -> FusedKernel:
        """Return the nests for these matches, if possible for ``other_sizes`` too. Raises Unsupported."""
        by_node = dict(zip(self.part.arguments, zip(*columns, strict=True), strict=True))
        tensors = {node: by_node[node] for node in self.part.tensors}
        if any(not isinstance(x, TensorForm) for forms in tensors.values() for x in forms):
            raise Unsupported("an argument that is not a tensor")
        orders = {node: _order(forms) for node, forms in tensors.items()}
        varying = frozenset(node for node, forms in tensors.items() if len({form.dtype for form in forms}) > 1)
        holes = {node: by_node[node] for node in self.part.arguments if node not in tensors}
        stated = self._stated(holes, tensors, varying)
        traces = [self._trace(column, orders, varying, stated) for column in columns]
        generic = GENERIC if varying else None
        if varying:
            _refuse_fixed(traces[0], self._trace(columns[0], orders, varying, stated, torch.float16))
        whole, nests = _scheduled(traces, generic)
        if other_sizes and None not in orders.values():
            sizes = {node: forms[0].sizes for node, forms in tensors.items()}
            for other in _other_sizes(sizes):
                with contextlib.suppress(Unsupported):  # the graph states this size
                    column = tuple(
                        TensorForm(x.dtype, other[node], x.strides if orders[node] is None else ())
                        if node in other
                        else x
                        for node, x in zip(self.part.arguments, columns[0], strict=True)
                    )
                    more = [*traces, self._trace(column, orders, varying, stated)]
                    whole, nests = _scheduled(more, generic)
                    traces = more
        further = len(traces) - len(columns)
        values = {node: (*items, *items[:1] * further) for node, items in holes.items()}
        return FusedKernel(self.part, nests, whole, len(traces), orders, values, varying)

    def _stated(
        self, holes: dict[Node, tuple[Any, ...]], tensors: dict[Node, tuple[Any, ...]], varying: frozenset[Node]
    ) -> frozenset[Node]:
        """Return the holes that hold the generic dtype. Raises Unsupported for arguments that no kernel can have."""
        kinds = {tuple(form.dtype for form in tensors[node]) for node in varying}
        if len(kinds) > 1:
            raise Unsupported("dtypes that differ")
        stated = frozenset(node for node, values in holes.items() if values in kinds)
        differing = (
            values for node, values in holes.items() if node not in stated and len(set(map(repr, values))) > 1
        )
        if any({type(x) for x in values} not in ({int}, {float}) for values in differing):
            raise Unsupported("a literal that differs")
        if any(dtype not in (torch.float32, torch.bfloat16, torch.float16) for kind in kinds for dtype in kind):
            raise Unsupported("dtypes that differ")
        return stated

    def _trace(
        self, column: Column, orders: dict[Node, tuple[int, ...] | None], varying: frozenset[Node],
        stated: frozenset[Node], generic: torch.dtype = GENERIC,
    ) -> Trace:  # fmt: skip
        values: list[Any] = []
        for node, x in zip(self.part.arguments, column, strict=True):
            if isinstance(x, TensorForm):
                values.append(_meta(x, orders[node], generic if node in varying else x.dtype))
            else:
                values.append(generic if node in stated else x)
        key = repr([(x.dtype, x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in values])
        if key not in self.traces:
            self.traces[key] = self.part.trace(values)
        return self.traces[key]


def _meta(form: TensorForm, order: tuple[int, ...] | None, dtype: torch.dtype) -> torch.Tensor:
    """Return an argument without data: dense in an order, or with the strides that it has."""
    if order is None:
        return torch.empty_strided(form.sizes, form.strides, dtype=dtype, device="meta")
    dense = torch.empty([form.sizes[d] for d in order], dtype=dtype, device="meta")
    return dense.permute([order.index(d) for d in range(len(order))])


def _scheduled(traces: Sequence[Trace], generic: torch.dtype | None) -> tuple[Trace, list[Nest]]:
    whole = replace(joined(traces), generic=generic)
    return whole, nests(whole)


def _other_sizes(real: Sizes) -> Iterator[Sizes]:
    """Yield shapes with a size doubled: in all dimensions that have it, and in those that are broadcast together.

    A pattern may match at sizes that no subgraph has. So only sizes that the graph states are literals in its kernel.
    """
    places = {(node, d): size for node, shape in real.items() for d, size in enumerate(shape) if size > 1}
    groups: dict[Any, set[tuple[Node, int]]] = {}
    for (node, d), size in places.items():
        groups.setdefault(size, set()).add((node, d))
        groups.setdefault((size, len(real[node]) - d), set()).add((node, d))  # broadcast together
    for group in groups.values():
        yield {
            node: tuple(2 * x if (node, d) in group else x for d, x in enumerate(shape))
            for node, shape in real.items()
        }


def _refuse_fixed(recorded: Trace, other: Trace) -> None:
    """Raise Unsupported if not every tensor of the generic dtype follows the arguments' dtype."""
    for buffer, counterpart in zip(_buffers(recorded), _buffers(other), strict=False):
        if (buffer.dtype == GENERIC) != (counterpart.dtype == torch.float16) or (
            buffer.dtype != GENERIC and buffer.dtype != counterpart.dtype
        ):
            raise Unsupported("a dtype that the graph states")


def _buffers(recorded: Trace) -> list[Buffer]:
    def operands(buffer: Buffer) -> list[Buffer]:
        return [value.buffer for value in buffer.maker.values()] if buffer.maker else []

    ends = (value.buffer for value in (*recorded.inputs, *recorded.results))
    return sorted(reached(ends, operands), key=lambda buffer: buffer.number)
