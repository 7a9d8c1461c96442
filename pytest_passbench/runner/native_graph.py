"""A rewritten graph as one native block: the engine makes all its calls. Such a graph has only plans and views."""

from __future__ import annotations

import ctypes
import itertools
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph, Node

from pytest_passbench.plans.launch import ALIGNMENT_BYTES, Form, contiguous
from pytest_passbench.protocol import MAX_OUTPUTS, Layout
from pytest_passbench.rewrite.meta import RecordedForm
from pytest_passbench.runner.engine import BlockFields, Engine
from pytest_passbench.runner.native_code import (
    Address,
    Assembler,
    Executable,
    NotNative,
    Places,
    place_of,
    returned_buffers,
)
from pytest_passbench.runner.output_tables import OutputTables
from pytest_passbench.runner.replay import Replayed


@dataclass(frozen=True)
class View:
    """A tensor of the graph: its place in memory and its form."""

    place: Address
    form: Form


class NativeBlock(Executable):
    """The calls of a block, as words, on inputs in a layout. ``forms`` are the distinct forms of a call's outputs."""

    def __init__(self, code: Assembler, engine: Engine, layout: Layout, forms: Sequence[Form]) -> None:
        self._fields_of_block = fields = BlockFields()
        super().__init__(code, engine, fields.plan, layout.slots)
        self.forms, self._engine, self._address = tuple(forms), engine, ctypes.addressof(fields)
        empty = [0 in shape for shape in layout.shapes]
        offsets = [-1 if none else offset for offset, none in zip(layout.offsets, empty, strict=True)]
        self._offsets = (ctypes.c_int64 * max(1, len(offsets)))(*offsets)
        fields.stride, fields.input_count = layout.stride, len(offsets)
        fields.offsets = ctypes.addressof(self._offsets)

    def place(self, inputs: int, tables: OutputTables) -> None:
        """Use the inputs at the address ``inputs``, and describe outputs in ``tables``, which have no forms yet."""
        self._fields_of_block.inputs, self._fields_of_block.entries = inputs, tables.addresses()["entries"]
        for form in self.forms:
            tables.tensor_form(getattr(torch, form.dtype), form.shape, form.strides)

    def run(self, calls: int) -> None:
        """Make ``calls`` calls and describe their outputs. They use the memory of the last block's outputs again.

        Raises MemoryError.
        """
        if not self._engine.block(self._address, calls):
            raise MemoryError("there is no memory for a call")


def native_graph(graph: Graph, plans: Sequence[Replayed], engine: Engine, layout: Layout) -> NativeBlock:
    """Return the calls of a graph as a native block. Raises NotNative unless the engine can make all of them.

    The graph's nodes have the forms of their values (:func:`~pytest_passbench.rewrite.meta.forget_values`).
    """
    first = _GraphAssembler(graph, plans, layout)
    lasting = {view.place.register for view in first.outputs} & first.buffers
    ends: dict[Node, list[int]] = {}
    for register in sorted(first.buffers - lasting):
        ends.setdefault(first.uses[register], []).append(register)
    writer = _GraphAssembler(graph, plans, layout, lasting, ends)
    forms = list(dict.fromkeys(view.form for view in writer.outputs))
    for view in writer.outputs:
        writer.code.describe(Address(0) if 0 in view.form.shape else view.place, forms.index(view.form))
    return NativeBlock(writer.code, engine, layout, forms)


def empty_block(engine: Engine, layout: Layout, outputs: int) -> NativeBlock:
    """Return a native block of calls that do nothing but describe ``outputs`` outputs each."""
    code = Assembler()
    for _ in layout.shapes:
        code.register()
    for _ in range(outputs):
        code.describe(Address(0), 0)
    return NativeBlock(code, engine, layout, [])


class _GraphAssembler:
    """The writer of a graph's steps. It raises NotNative.

    ``lasting`` are the registers of the buffers that the graph returns. ``ends`` has the registers of other buffers
    by the last node that uses them. A first writer without the two gives both: ``outputs`` are the returned tensors,
    ``buffers`` the registers of all plans' results, ``uses`` the last node that uses each register.
    """

    def __init__(
        self,
        graph: Graph,
        plans: Sequence[Replayed],
        layout: Layout,
        lasting: Collection[int] = (),
        ends: Mapping[Node, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        self.code = Assembler(lasting)
        self.outputs, self.buffers, self.uses = list[View](), set[int](), dict[int, Node]()
        self._plans = {id(plan.call): plan for plan in plans}
        self._values: dict[Node, View | tuple[View, ...]] = {}
        forms = [contiguous(dtype, shape) for dtype, shape in zip(layout.dtypes, layout.shapes, strict=True)]
        inputs = iter([View(Address(self.code.register()), form) for form in forms])
        for node in graph.nodes:
            self._add(node, inputs)
            for register in ends.get(node, ()):
                self.code.release(register)

    def _add(self, node: Node, inputs: Iterator[View]) -> None:
        if node.op == "placeholder":
            self._values[node] = next(inputs)
        elif node.op == "output":
            if not isinstance(node.args[0], tuple) or len(node.args[0]) > MAX_OUTPUTS:
                raise NotNative("returns no tuple, or more than the tables have room for")
            self.outputs = [self._view(value, node) for value in node.args[0]]
        elif node.target is operator.getitem and isinstance(values := self._values.get(node.args[0]), tuple):
            if not isinstance(node.args[1], int):
                raise NotNative("takes several of a plan's results")
            self._values[node] = values[node.args[1]]
        elif node.op == "call_function" and id(node.target) in self._plans and not node.kwargs:
            self._values[node] = self._call(node, self._plans[id(node.target)])
        else:
            self._values[node] = self._view_of_argument(node)

    def _view(self, value: Any, user: Node) -> View:
        view = self._values.get(value) if isinstance(value, Node) else None
        if not isinstance(view, View):
            raise NotNative("uses something else than a tensor")
        self.uses[view.place.register] = user
        return view

    def _view_of_argument(self, node: Node) -> View:
        """Return the result of a node that gives a view of one of its arguments."""
        recorded = node.meta.get("passbench_form")
        if not isinstance(recorded, RecordedForm) or recorded.base is None or node.meta.get("passbench_writes"):
            raise NotNative("calls an operator of torch's")
        base, base_form = self._view(recorded.base, node), recorded.base.meta.get("passbench_form")
        if not isinstance(base_form, RecordedForm) or base_form.form != base.form:
            raise NotNative("gives a tensor of other strides than eager's")
        return View(Address(base.place.register, base.place.offset + recorded.offset), recorded.form)

    def _call(self, node: Node, replayed: Replayed) -> View | tuple[View, ...]:
        plan, returned = replayed.plan, returned_buffers(replayed.plan)
        views = [self._view(value, node) for value in node.args]
        _check(replayed, views)
        places: Places = {("argument", index): view.place for index, view in enumerate(views)}
        for index, table in enumerate(replayed.tables):
            places["table", index] = Address(self.code.register(table.data_ptr()))
        self.code.plan(plan, replayed.kernels, places, returned)
        for index in returned:
            register = places["buffer", index].register
            self.buffers.add(register)
            self.uses[register] = node
        results = tuple(View(place_of(operand, places), operand.form) for operand in plan.returns)
        return results if replayed.sequence else results[0]


def _check(replayed: Replayed, views: Sequence[View]) -> None:
    """Raise NotNative if a tensor does not fit the plan. In Python, a call would raise WrongArgument."""
    for view, tensor in zip(views, replayed.plan.tensors, strict=True):
        if view.form != tensor.form or view.place.offset % ALIGNMENT_BYTES != tensor.misaligned:
            raise NotNative("has a tensor of another layout than a plan was recorded for")
    for (index, view), (other_index, other) in itertools.combinations(enumerate(views), 2):
        shared = view.place.register == other.place.register
        if shared and (index in replayed.written or other_index in replayed.written):
            raise NotNative("has a plan that writes to a tensor which may share memory with another")
