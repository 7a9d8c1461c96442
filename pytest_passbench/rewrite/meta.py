"""Values recorded in a target graph (shape, dtype, device, strides, storage), and the nodes that are literals."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg

from pytest_passbench.plans.launch import ITEM_BYTES, MAX_DIMENSIONS, Form, form_of
from pytest_passbench.plans.values import MAX_ITEMS, storage_of
from pytest_passbench.rewrite import names
from pytest_passbench.suite import batching
from pytest_passbench.suite.opnames import op_name

_MAX_BITS = 64  # of an integer of metadata
_GROWING = frozenset({operator.pow, operator.mul, operator.imul})
# Methods of numbers, texts, shapes and dtypes that may be called. ``format`` is left out: it reads attributes.
_PLAIN_METHODS = frozenset({
    "numel", "index", "count", "bit_length", "is_integer", "is_signed", "to_real", "to_complex",
})  # fmt: skip

_ATEN_SIZES = frozenset(f"aten::{name}" for name in ("sym_size", "size", "sym_numel", "numel", "sym_stride", "dim"))
# Operators whose result's shape, or a number that may be a size, depends on elements.
_BY_VALUES = frozenset({
    "nonzero", "argwhere", "masked_select", "unique", "unique2", "unique_consecutive", "unique_dim",
    "unique_dim_consecutive", "bincount", "repeat_interleave", "item", "local_scalar_dense", "tolist",
})  # fmt: skip

ARITHMETIC = frozenset({
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod, operator.pow,
    operator.neg, operator.getitem, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
    operator.and_, operator.or_, operator.iadd, operator.isub, operator.imul, operator.ifloordiv,
    builtins.int, builtins.float, builtins.max, builtins.min, builtins.len, builtins.tuple, builtins.list,
    math.sqrt, math.pow, math.floor, math.ceil, math.prod, math.log, math.exp,
    torch.sym_int, torch.sym_float, torch.sym_max, torch.sym_min, torch.sym_not,
    torch.sym_sum, torch.sym_sqrt,
})  # fmt: skip


def is_metadata(node: Node, metadata: set[Node]) -> bool:
    """Return True if a node only describes tensors. ``metadata`` are the earlier nodes that do."""
    derived = bool(node.all_input_nodes) and metadata.issuperset(node.all_input_nodes)
    if node.op == "call_method":
        return node.target in names.METADATA_METHODS or (derived and node.target in _PLAIN_METHODS)
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return len(node.args) == 2 and str(node.args[1]) in names.METADATA_ATTRIBUTES
    return _aten_size(node.target) or (derived and node.target in ARITHMETIC)


def _aten_size(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name in _ATEN_SIZES
    return isinstance(target, torch._ops.OpOverloadPacket) and target._qualified_op_name in _ATEN_SIZES


def metadata_nodes(graph: torch.fx.Graph) -> set[Node]:
    """Return the nodes of a graph that only describe tensors (``x.size(0)``, and arithmetic on it)."""
    metadata: set[Node] = set()
    for node in graph.nodes:
        if is_metadata(node, metadata):
            metadata.add(node)
    return metadata


class _MetaRecorder(Interpreter):
    """An interpreter that keeps each value in ``node.meta['passbench']`` and notes the nodes that write in place."""

    def record(self, inputs: list[Any]) -> None:
        """Run all nodes. ``Interpreter.run`` has a progress bar, which starts a thread, and then forks hang."""
        self.args_iter = iter(inputs)
        for node in self.module.graph.nodes:
            self.env[node] = self.run_node(node)

    def run_node(self, n: Node) -> Any:
        before = [(i, _version(i.meta.get("passbench"))) for i in n.all_input_nodes]
        result = super().run_node(n)
        n.meta["passbench"] = result
        n.meta["passbench_writes"] = [i for i, version in before if _version(i.meta.get("passbench")) != version]
        return result


def _version(value: Any) -> int:
    return int(value._version) if isinstance(value, torch.Tensor) and not value.is_inference() else 0


def record_values(gm: GraphModule, example_inputs: list[Any]) -> None:
    """Record the value of each node for copies of the example inputs, in ``node.meta['passbench']``.

    FakeTensor would do without data. But it imports Dynamo and SymPy, whose memory would be in each fork.
    """
    with torch.no_grad(), batching.closing():
        _MetaRecorder(gm, garbage_collect_values=False).record([copied(value) for value in example_inputs])


@dataclass(frozen=True)
class RecordedForm:
    """The form of a recorded tensor. ``base`` is an argument of its node whose memory it shares, if there is one.

    ``offset`` is the place of its first element behind the base's, in bytes.
    """

    form: Form
    base: Node | None
    offset: int


def forget_values(gm: GraphModule) -> None:
    """Replace the values that :func:`record_values` recorded by their forms, in ``node.meta['passbench_form']``.

    A node has none if its value is no tensor of a form that plans know.
    """
    for node in gm.graph.nodes:
        if (form := _recorded_form(node)) is not None:
            node.meta["passbench_form"] = form
    for node in gm.graph.nodes:
        node.meta.pop("passbench", None)


def planned_form(value: Any) -> Form | None:
    """Return the form of a value, or None if it is no tensor of a form that plans know."""
    if not isinstance(value, torch.Tensor) or batching.is_batched(value) or value.dim() > MAX_DIMENSIONS:
        return None
    form = form_of(value)
    return form if form.dtype in ITEM_BYTES else None


def _recorded_form(node: Node) -> RecordedForm | None:
    value = value_of(node)
    form, offset = planned_form(value), 0
    if form is None or value.is_neg() or value.is_conj():
        return None
    base = next((item for item in node.all_input_nodes if storages(value) & storages(value_of(item))), None)
    if isinstance(of_base := value_of(base), torch.Tensor):
        starts = (tensor.storage_offset() * tensor.element_size() for tensor in (value, of_base))
        offset = next(starts) - next(starts)
    return RecordedForm(form, base, offset)


def copied(value: Any) -> Any:
    """Return a copy of a tensor with the same strides and alignment. Return any other value unchanged.

    The copy is negated or conjugated lazily if the tensor is. It is never the tensor itself, because writing in place
    would change the tensor's version counter.
    """
    if not isinstance(value, torch.Tensor):
        return value
    memory = value.untyped_storage().clone()
    copy = value.detach().new_empty(0).set_(memory, value.storage_offset(), value.size(), value.stride())
    copy = copy.conj() if value.is_conj() else copy
    return torch._neg_view(copy) if value.is_neg() else copy


def value_of(node: Any) -> Any:
    """Return a node's recorded value: a tensor, a number, or a tuple of them. Return None for anything but a node."""
    return node.meta.get("passbench") if isinstance(node, Node) else None


def shaped_by_values(node: Node) -> bool:
    """Return True if elements of a node's tensors may decide the shape of its value, or a size that it gives."""
    name = op_name(node)
    if name == "where":
        return len(node.all_input_nodes) == 1
    if name in ("getitem", "index"):  # by a mask
        indices: list[Node] = []
        map_arg((node.args[1:], node.kwargs), indices.append)
        values = [value_of(n) for n in indices]
        return any(isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.uint8) for value in values)
    if name == "repeat_interleave":
        return not isinstance(node.kwargs.get("repeats", node.args[1] if len(node.args) > 1 else None), int)
    return name in _BY_VALUES


def storages(value: Any) -> set[int]:
    """Return the identities of the storages behind a value. Two values that share one are aliases."""
    if isinstance(value, torch.Tensor):
        return {storage_of(batching.unbatched(value))}
    if isinstance(value, (tuple, list)):
        return set().union(*(storages(item) for item in value))
    return set()


def fold_metadata(gm: GraphModule) -> None:
    """Replace nodes that only describe tensors by literals. For the recorded inputs they are constants.

    A size that elements decide stays, because a later call may have another.
    """
    metadata = metadata_nodes(gm.graph) - by_values(gm.graph)
    for node in gm.graph.nodes:
        if node not in metadata and any(n in metadata for n in node.all_input_nodes):
            node.args = map_arg(node.args, lambda n: value_of(n) if n in metadata else n)
            node.kwargs = map_arg(node.kwargs, lambda n: value_of(n) if n in metadata else n)
    for node in reversed(list(gm.graph.nodes)):
        if node in metadata and not node.users:
            gm.graph.erase_node(node)


def by_values(graph: torch.fx.Graph) -> set[Node]:
    """Return the operators for which elements decide a shape or a size, and all nodes that depend on them."""
    depending: set[Node] = set()
    for node in graph.nodes:
        is_call = node.op in ("call_function", "call_method") and "passbench_pass" not in node.meta
        if not depending.isdisjoint(node.all_input_nodes) or (is_call and shaped_by_values(node)):
            depending.add(node)
    return depending


def evaluate(node: Node, binding: dict[Node, Any], metadata: set[Node]) -> Any:
    """Return the value of a pattern's metadata expression, for tensors bound as in ``binding``.

    Only the nodes in ``metadata`` are called: a pattern comes from a candidate, and may name any function of torch.
    Raises KeyError if a tensor of the expression is not bound, and ValueError for a value that no layout has.
    """
    values: dict[Node, Any] = {}  # a shared expression is evaluated once, however often it is used

    def value(n: Node) -> Any:
        if n in binding:
            bound = binding[n]
            return value_of(bound) if isinstance(bound, Node) else bound
        if n not in values:
            if n not in metadata:
                raise KeyError(n.name)
            values[n] = _small(call(n, value))
        return values[n]

    return value(node)


def call(node: Node, value: Callable[[Node], Any]) -> Any:
    """Return the result of a node's call on the values of its nodes. Raises ValueError if it would be too large."""
    args, kwargs = map_arg(node.args, value), map_arg(node.kwargs, value)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    if node.target in _GROWING:
        _check_growth(node.target, args)
    return node.target(*args, **kwargs)


def _check_growth(target: Any, args: tuple[Any, ...]) -> None:
    """Raise ValueError for a power or a repetition that would fill the memory before its size can be checked."""
    whole = [abs(value) for value in args if isinstance(value, int)]
    repeats = target is not operator.pow and any(isinstance(value, (str, tuple, list)) for value in args)
    if (target is operator.pow and whole and len(args) > 1 and args[1] is not None and whole[-1] > _MAX_BITS) or (
        repeats and any(value > MAX_ITEMS for value in whole)
    ):
        raise ValueError("a value larger than any size")


def _small(value: Any) -> Any:
    """Return a value of metadata. Raises ValueError if it is larger than any value that a layout has."""
    left, todo = MAX_ITEMS, [value]
    while todo:
        item, left = todo.pop(), left - 1
        if isinstance(item, (tuple, list)):
            todo += item[: left + 1]
        if left < 0 or (isinstance(item, str) and len(item) > MAX_ITEMS):
            raise ValueError("a value of too many items")
        if isinstance(item, int) and item.bit_length() > _MAX_BITS:
            raise ValueError("a value larger than any size")
    return value
