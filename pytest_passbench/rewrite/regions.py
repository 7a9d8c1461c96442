"""Regions of a graph, as region passes choose them: what each gets and returns follows from the graph alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch.fx import Graph, Node
from torch.fx.node import map_arg

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.plans.graphs import opaque_call
from pytest_passbench.plans.launch import MAX_ARGUMENTS, Request
from pytest_passbench.plans.regions import graph_text, is_described
from pytest_passbench.rewrite.effects import hazards
from pytest_passbench.rewrite.match import Target
from pytest_passbench.rewrite.meta import planned_form, value_of
from pytest_passbench.rewrite.operators import is_work
from pytest_passbench.rewrite.passes import Kernel, Kernels, LeftToEager
from pytest_passbench.rewrite.splice import Splice


def replace_regions(name: str, target: Target, kernels: Kernels, left: list[str]) -> Iterator[RegionSplice]:
    """Yield the regions of a graph that a pass called ``name`` has a kernel for, each to be replaced before the next.

    ``left`` gets the reason for each region that stays eager's. Raises PassError if the pass fails.
    """
    try:
        graph, values = _described(target)
        text = graph_text(graph, values.get, names=True)
    except Rejected as error:
        left.append(str(error))
        return
    nodes = {node.name: node for node in target.order}
    for names in kernels.regions(name, text):
        try:
            yield RegionSplice(name, [nodes[each] for each in names], target, kernels)
        except (LeftToEager, Rejected) as error:
            left.append(f"{names[0]}{f' to {names[-1]}' if len(names) > 1 else ''}: {error}")


def _described(target: Target) -> tuple[Graph, dict[Node, object]]:
    """Return a copy of a graph with a stand-in for each call that data cannot state, and the values of its nodes."""
    graph, copies, values = Graph(), dict[Node, Node](), dict[Node, object]()
    for node in target.order:
        if node.op in ("placeholder", "output") or (node in target.calls and is_described(node)):
            copy = graph.node_copy(node, copies.__getitem__)
        else:
            inputs = tuple(copies[source] for source in node.all_input_nodes)
            copy = graph.create_node("call_function", opaque_call, inputs, name=node.name)
        copies[node], values[copy] = copy, value_of(node)
    return graph, values


class RegionSplice(Splice):
    """A region with its kernel, to be put in its place.

    Its arguments are the values from outside that it uses, in the order of their first use. It returns the values
    that others use, in graph order.
    """

    def __init__(self, name: str, nodes: list[Node], target: Target, kernels: Kernels) -> None:
        """Ask for the kernel. Raises LeftToEager or Rejected if there is none, PassError if the pass fails."""
        inside = set(nodes)
        ordered = tuple(sorted(nodes, key=target.order.__getitem__))
        self.outputs = tuple(node for node in ordered if not inside.issuperset(node.users))
        self.inputs = tuple(dict.fromkeys(s for node in ordered for s in node.all_input_nodes if s not in inside))
        if not any(is_work(target, node) for node in ordered):
            raise LeftToEager("it only moves or describes data")
        effects = hazards(ordered, set(self.outputs), target.order)
        if isinstance(effects, str):
            raise LeftToEager(effects)
        super().__init__(name, ordered, effects, target, kernels)
        self._check()
        self.kernel: Kernel = kernels.kernel(self._request())

    def _check(self) -> None:
        """Raise LeftToEager unless what the region gets and returns are tensors that a plan can have."""
        for what, nodes in (("input", self.inputs), ("result", self.outputs)):
            if len(nodes) > MAX_ARGUMENTS:
                raise LeftToEager(f"more than {MAX_ARGUMENTS} {what}s")
            for node in nodes:
                if planned_form(value_of(node)) is None:
                    raise LeftToEager(f"the {what} {node.name} is no tensor that a kernel takes")
        if not self.outputs:
            raise LeftToEager("nothing uses its results")

    def _request(self) -> Request:
        tensors, arguments = self.tensors(self.inputs)
        request = self.request(arguments, tuple(tensors.values()), self.outputs, sequence=True)
        return replace(request, region=self._text())

    def _text(self) -> str:
        """Return the region as a graph of its own. Nodes are named by their place, so that like regions are one."""
        graph, copies = Graph(), dict[Node, Node]()
        for number, source in enumerate(self.inputs):
            copies[source] = graph.placeholder(f"x{number}")
        for node in self.nodes:
            args, kwargs = map_arg((node.args, node.kwargs), copies.__getitem__)
            copies[node] = graph.create_node(node.op, node.target, args, kwargs)
        graph.output(tuple(copies[node] for node in self.outputs))
        values = {copy: value_of(node) for node, copy in copies.items()}
        return graph_text(graph, values.get, names=False)

    def _results(self) -> dict[Node, Node]:
        value = tuple(value_of(node) for node in self.outputs)
        return self.results(self.call(self.kernel, self.inputs, value), self.outputs, sequence=True)
