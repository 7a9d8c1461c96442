"""The forms of a task: graphs that one pattern can match.

Graphs of one form have the same calls, wired the same way. If their literals differ (a size, a scale, a dtype), the
form has a *hole*: an argument of the pattern, which the kernel's wrapper gets too.

Two graphs have the same *skeleton* if they differ only in literals that may be holes. They have the same *meaning* if
they have the same calls in another spelling.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.first_pass.values import TensorForm, values_of
from pytest_passbench.rewrite.effects import thread_inplace
from pytest_passbench.rewrite.names import COMMUTATIVE
from pytest_passbench.rewrite.normalise import canonical, plain
from pytest_passbench.suite.build import build_graph

# Parameters whose value decides what a kernel has to do. Graphs that differ in one of them are two forms.
_STRUCTURE = frozenset({
    "dim", "dims", "dim0", "dim1", "start_dim", "end_dim", "source", "destination", "keepdim", "training",
})  # fmt: skip
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "truediv", "pow"})


@dataclass
class GraphForm:
    """Graphs of a task that one pattern can match.

    ``graph`` is the first of them, with a placeholder for each hole. ``values`` has, for a node, one
    :class:`TensorForm` per subgraph, None for what is no tensor. ``literals`` has a hole's value in each graph.
    """

    keys: list[str]
    graph: Graph
    subgraphs: list[Subgraph]
    values: dict[Node, list[TensorForm | None]] = field(default_factory=dict)
    literals: dict[Node, list[Any]] = field(default_factory=dict)

    @property
    def operators(self) -> list[Node]:
        """The nodes that are calls, in graph order."""
        return [node for node in self.graph.nodes if node.op in ("call_function", "call_method")]

    def dtypes(self, node: Node, places: Iterable[int] | None = None) -> set[torch.dtype]:
        """Return the dtypes that a value has in the subgraphs, or in those at ``places``, in which it is a tensor."""
        values = self.values[node] if places is None else [self.values[node][place] for place in places]
        return {value.dtype for value in values if value is not None}


def forms(task: Task) -> list[GraphForm]:
    """Return the forms of a task, those with few tensor arguments first. Raises UserError for a forbidden graph."""
    graphs = []
    for key, source in task.graphs.items():
        gm = build_graph(source, str(task.path), line=task.graph_lines.get(key, 1))
        thread_inplace(gm.graph)
        if any(subgraph.graph == key for subgraph in task.subgraphs):
            graphs.append((key, gm))
    groups = grouped(graphs, lambda member: skeleton(member[1], numbers=False))
    if len(groups) > 1:
        groups = grouped(graphs, lambda member: skeleton(member[1], numbers=True))
    result = [_form(task, members, twins) for members, twins in _with_twins(list(groups.values()))]
    # A pattern with a number may be a special case of one with an argument in its place, so it comes first.
    return sorted(
        result,
        key=lambda form: (sum(n.op == "placeholder" and n in form.values for n in form.graph.nodes), form.keys),
    )


_Member = tuple[str, GraphModule]


def _with_twins(groups: list[list[_Member]]) -> Iterator[tuple[list[_Member], dict[str, _Member]]]:
    """Yield the groups, the largest first, each with further graphs that have a member's calls in another spelling.

    A further graph is given by its key, with the key of the member that it equals and its module.
    """
    owners: dict[Any, tuple[int, str]] = {}
    distinct: list[list[_Member]] = []
    twins: list[dict[str, _Member]] = []
    for group in sorted(groups, key=lambda members: -len(members)):
        group_members = []
        for key, gm in group:
            calls = meaning(gm)
            if calls in owners and owners[calls][0] != len(distinct):
                place, member = owners[calls]
                twins[place][key] = (member, gm)
            else:
                owners.setdefault(calls, (len(distinct), key))
                group_members.append((key, gm))
        if group_members:
            distinct.append(group_members)
            twins.append({})
    yield from zip(distinct, twins, strict=True)


def _form(task: Task, members: list[_Member], twins: dict[str, _Member]) -> GraphForm:
    keys = [*(key for key, _gm in members), *twins]
    subgraphs = [subgraph for subgraph in task.subgraphs if subgraph.graph in keys]
    by_key = {**dict(members), **{key: gm for key, (_member, gm) in twins.items()}}
    recorded = [values_of(by_key[subgraph.graph], subgraph) for subgraph in subgraphs]
    form = GraphForm(keys, Graph(), subgraphs)
    nodes = [list(gm.graph.nodes) for _key, gm in members]
    copies = _copy(form, nodes)
    for literals in form.literals.values():
        literals += [literals[keys.index(member)] for member, _gm in twins.values()]
    for place, node in enumerate(nodes[0]):
        if node.op != "output":
            form.values[copies[node]] = [values[place] for values in recorded]
    return form


def _copy(form: GraphForm, nodes: list[list[Node]]) -> dict[Node, Node]:
    """Copy the first graph into the form, with holes for literals that differ. Return the copy of each node."""
    copies: dict[Node, Node] = {}
    holes: dict[Any, Node] = {}
    first = nodes[0]
    for place, node in enumerate(first):
        alike = [others[place] for others in nodes]

        def merged(values: list[Any]) -> Any:
            value = values[0]
            if isinstance(value, Node):
                return copies[value]
            if isinstance(value, (tuple, list)):
                return type(value)(merged([item[i] for item in values]) for i in range(len(value)))
            if isinstance(value, slice):
                return slice(*(merged([getattr(item, end) for item in values]) for end in ("start", "stop", "step")))
            if all(same(value, other) for other in values):
                return value
            key = (type(value), tuple(map(repr, values)))
            if key not in holes:
                holes[key] = form.graph.placeholder(f"hole_{len(holes)}")
                form.literals[holes[key]] = list(values)
            return holes[key]

        if node.op == "output":
            form.graph.output(merged([other.args[0] for other in alike]))
            continue
        args = tuple(merged([other.args[i] for other in alike]) for i in range(len(node.args)))
        kwargs = {name: merged([other.kwargs[name] for other in alike]) for name in node.kwargs}
        copies[node] = form.graph.create_node(node.op, node.target, args, kwargs, name=node.name)
    return copies


def skeleton(gm: GraphModule, numbers: bool) -> Any:
    """Return all of a graph but the literals that may be holes: hashable, and equal for graphs of one form.

    With ``numbers``, no number beside a tensor in arithmetic is a hole: such a hole would also match a tensor.
    """
    places, fixed = {node: i for i, node in enumerate(gm.graph.nodes)}, False

    def bones(value: Any, name: str) -> Any:
        if isinstance(value, Node):
            return places[value]
        if isinstance(value, (tuple, list)):
            return (type(value).__name__, *(bones(item, name) for item in value))
        if isinstance(value, slice):
            return ("slice", *(bones(end, "") for end in (value.start, value.stop, value.step)))
        if value is None or value is ... or isinstance(value, (bool, str)) or name in _STRUCTURE:
            return repr(value)
        if fixed and isinstance(value, (int, float)):
            return float(value)  # 2 and 2.0 match each other
        return type(value).__name__

    calls: list[Any] = []
    for node in gm.graph.nodes:
        names = _parameters(node)
        fixed = node.target is torch.tensor or (
            numbers and str(getattr(node.target, "__name__", node.target)) in _ARITHMETIC
        )
        # The first number of a subscript selects a part of a tuple, so it is structure.
        arguments = [bones(arg, names[i] if i < len(names) else "") for i, arg in enumerate(node.args)]
        arguments += [(name, bones(value, name)) for name, value in node.kwargs.items()]
        if node.target is operator.getitem and isinstance(node.args[1], int):
            arguments.append(node.args[1])
        calls.append((node.op, str(node.target), tuple(arguments)))
    return tuple(calls)


def _parameters(node: Node) -> list[str]:
    """Return the names of a call's positional parameters, as far as they decide about the structure."""
    if node.op == "output" or not node.args:
        return []
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
    parameters = {
        "transpose": ["", "dim0", "dim1"], "permute": ["", *["dims"] * 8], "movedim": ["", "source", "destination"],
        "softmax": ["", "dim"], "flatten": ["", "start_dim", "end_dim"], "unsqueeze": ["", "dim"],
        "squeeze": ["", "dim"], "cat": ["", "dim"], "mean": ["", "dim", "keepdim"], "sum": ["", "dim", "keepdim"],
        "chunk": ["", "chunks", "dim"], "unbind": ["", "dim"], "index_select": ["", "dim"],
        "gather": ["", "dim"],
        "argmax": ["", "dim"], "max": ["", "dim"], "min": ["", "dim"], "unfold": ["", "dim"], "cumsum": ["", "dim"],
        "split": ["", "sections", "dim"], "unflatten": ["", "dim"], "select": ["", "dim"],
        "scatter_add_": ["", "dim"],
    }  # fmt: skip
    return parameters.get(name, [])


def meaning(gm: GraphModule) -> Any:
    """Return the graph's calls in canonical form: equal for graphs that the same patterns match."""
    places = {node: i for i, node in enumerate(gm.graph.nodes)}

    def bone(value: Any) -> Any:
        if isinstance(value, Node):
            return ("node", places[value])
        return float(value) if type(value) in (int, float) else value

    def bones(value: Any) -> str:
        return repr(map_aggregate(plain(value), bone))

    calls: list[Any] = []
    for node in gm.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            calls.append((node.op, bones(node.args)))
            continue
        call = canonical(node)
        args = {name: bones(value) for name, value in call.args.items()}
        if call.op in COMMUTATIVE and {"input", "other"} <= set(args):
            args["input"], args["other"] = sorted((args["input"], args["other"]))
        calls.append((call.op, tuple(sorted((name, value) for name, value in args.items() if value != "None"))))
    return tuple(calls)


def same(first: Any, other: Any) -> bool:
    """Return True if two literals are equal and of one type."""
    return type(first) is type(other) and repr(first) == repr(other)
