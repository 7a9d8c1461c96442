"""Graphs with the forms of their values, as data: what a region pass is asked about, and what its wrapper gets.

A node's value is a tensor on the meta device. Values that share memory in the graph share it here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.shape_prop import TensorMetadata

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.schema import Anything, Fields, Items, Text, Whole, refusal
from pytest_passbench.core.typed import schema_of
from pytest_passbench.plans.graphs import MAX_CALLS, Traced, from_data, function_name, opaque_call, to_data
from pytest_passbench.plans.launch import MAX_EXTENT, MAX_GRAPH_CHARACTERS, Form, form_of
from pytest_passbench.plans.parse import bytes_of
from pytest_passbench.plans.values import MAX_NAME_CHARACTERS, decode, encode, storage_of, tensors_in

MAX_REGIONS = 128  # of one pass in a graph
_GRAPH = Fields(
    {
        "graph": Anything(),
        "names": Items(Text(2 * MAX_NAME_CHARACTERS), MAX_CALLS),
        "values": Items(Anything(), MAX_CALLS),
    }
)
_FORM, _SIZE = schema_of(Form), schema_of(Annotated[int, Whole(0, MAX_EXTENT)])


def graph_text(graph: Graph, value: Callable[[Node], Any], names: bool) -> str:
    """Return a graph as text. ``value`` gives the value of a node. With ``names`` the nodes keep their names.

    Raises Rejected for a graph that is too large, or that has what no data can state.
    """
    nodes = [node for node in graph.nodes if node.op != "output"]
    if len(nodes) > MAX_CALLS:
        raise refusal(f"a graph of more than {MAX_CALLS} calls")
    memory = _Memory(value(node) for node in nodes)
    data = {
        "graph": to_data(Traced(graph)),
        "names": [node.name for node in nodes] if names else [],
        "values": [memory.encoded(value(node)) for node in nodes],
    }
    text = json.dumps(data, separators=(",", ":"))
    if len(text) > MAX_GRAPH_CHARACTERS:
        raise refusal(f"a graph whose text has more than {MAX_GRAPH_CHARACTERS} characters")
    return text


def is_described(node: Node) -> bool:
    """Return True if data can state a node's call."""
    if node.op not in ("call_function", "call_method"):
        return False
    try:
        encode((node.args, dict(node.kwargs)), lambda value: {} if isinstance(value, Node) else None)
        return node.op == "call_method" or bool(function_name(node.target))
    except Rejected:
        return False


def graph_module(text: str) -> GraphModule:
    """Return the graph that :func:`graph_text` wrote. Raises Rejected for any other text.

    Each node has its value in ``meta["val"]``, and the form of a tensor in ``meta["tensor_meta"]`` too.
    """
    try:
        data = _GRAPH.check(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise refusal("a graph that is not JSON") from error
    graph = from_data(data["graph"], data["names"]).graph
    nodes = [node for node in graph.nodes if node.op != "output"]
    if len(data["values"]) != len(nodes):
        raise refusal("a graph with another number of values than nodes")
    for node, value in zip(nodes, _values(data["values"]), strict=True):
        node.meta["val"] = value
        if isinstance(value, torch.Tensor):
            node.meta["tensor_meta"] = _metadata(value)
    return GraphModule(torch.nn.Module(), graph)


def _metadata(tensor: torch.Tensor) -> TensorMetadata:
    """Return a tensor's form as torch's passes note it. Torch's own function imports SymPy, which takes a second."""
    formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
    fitting = [x for x, rank in zip(formats, (None, 4, 5), strict=True) if rank in (None, tensor.dim())]
    memory_format = next((x for x in fitting if tensor.is_contiguous(memory_format=x)), None)
    return TensorMetadata(tensor.shape, tensor.dtype, False, tensor.stride(), memory_format, False, {})


class _Memory:
    """The memories of a graph's values. Each memory has a number, and begins where the first value in it begins."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._numbers: dict[int, int] = {}
        self._starts: dict[int, int] = {}  # by number: the least offset in bytes
        for tensor in filter(_is_plain, tensors_in(list(values))):
            number = self._number(tensor)
            self._starts[number] = min(self._starts.get(number, MAX_EXTENT), _offset(tensor))

    def _number(self, tensor: torch.Tensor) -> int:
        return self._numbers.setdefault(storage_of(tensor), len(self._numbers))

    def encoded(self, value: Any) -> Any:
        """Return a node's value as data, or None if no data can state it."""
        try:
            return encode(value, self._tensor)
        except Rejected:
            return None

    def _tensor(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        if not _is_plain(value):
            raise refusal("a tensor without strides")
        number = self._number(value)
        return {"tensor": [*form_of(value).to_data(), number, _offset(value) - self._starts[number]]}


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _offset(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) * int(tensor.element_size())


def _values(data: Sequence[Any]) -> list[Any]:
    """Return values from data, in which tensors of one number share memory."""
    memories: dict[int, torch.UntypedStorage] = {}

    def tensor(tag: str, content: Any) -> Any:
        if tag != "tensor" or not isinstance(content, list) or len(content) != 5:
            raise refusal("a value of unknown kind")
        form, number, start = _FORM.check(content[:3]), _SIZE.check(content[3]), _SIZE.check(content[4])
        bytes_of(form)  # raises Rejected for a form that no tensor can have
        if number not in memories:
            memories[number] = torch.empty(2 * MAX_EXTENT, dtype=torch.uint8, device="meta").untyped_storage()
        try:
            empty = torch.empty(0, dtype=getattr(torch, form.dtype), device="meta")
            return empty.set_(memories[number], start // empty.element_size(), form.shape, form.strides)
        except RuntimeError as error:
            raise refusal("a tensor that torch cannot make") from error

    return [decode(value, tensor) for value in data]


def check_regions(graph: Graph, regions: Sequence[Sequence[str]]) -> None:
    """Raise Rejected unless ``regions``, lists of names of nodes, name calls of the graph once each, without a cycle.

    There is a cycle if a region needs a result of its own through calls outside of it, or through other regions.
    """
    calls = {node.name: node for node in graph.nodes if node.op in ("call_function", "call_method")}
    region_of: dict[Node, int] = {}
    if len(regions) > MAX_REGIONS:
        raise refusal(f"more than {MAX_REGIONS} regions")
    for number, names in enumerate(regions):
        if not names:
            raise refusal("an empty region")
        for name in names:
            node = calls.get(name)
            if node is None or node.target is opaque_call:
                raise refusal(f"a region with {name[:80]!r}, which is no call of the graph's operators")
            if node in region_of:
                raise refusal(f"{name!r} twice")
            region_of[node] = number
    _check_order(graph, region_of)


def _check_order(graph: Graph, region_of: dict[Node, int]) -> None:
    """Raise Rejected if calls cannot be ordered with each region as one call."""
    groups = {node: region_of.get(node, node) for node in graph.nodes}
    order = TopologicalSorter[Any]()
    for node, group in groups.items():
        order.add(group, *(groups[source] for source in node.all_input_nodes if groups[source] != group))
    try:
        order.prepare()
    except CycleError as error:
        stuck = next(node for node, number in region_of.items() if number in error.args[1])
        message = f"the region with {stuck.name!r} depends on its own results through calls outside of it"
        raise refusal(message) from None
