"""The forms of a task: graphs that one pattern can match.

Graphs of one form have the same calls, wired the same way. Where their literals differ (a size, a scale, a dtype),
the form has a *hole*: an argument of the pattern, which the kernel's wrapper gets too.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.node import map_arg

from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.rewrite.inplace import thread_inplace
from pytest_passbench.rewrite.names import COMMUTATIVE
from pytest_passbench.rewrite.normalise import Call, canonical
from pytest_passbench.suite import batching
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs
from pytest_passbench.suite.limits import limited_memory

# Parameters whose value decides what a kernel has to do. Graphs that differ in one of them are two forms.
_STRUCTURE = frozenset({
    "dim", "dims", "dim0", "dim1", "start_dim", "end_dim", "source", "destination", "keepdim", "training",
})  # fmt: skip


_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "truediv", "pow"})


@dataclass(frozen=True)
class Seen:
    """A value as one subgraph has it. ``dtype`` is None for a number, a tuple of tensors is in ``parts``."""

    dtype: torch.dtype | None
    shape: tuple[int, ...] = ()
    parts: tuple[Seen, ...] = ()
    strides: tuple[int, ...] = ()

    def dense(self, order: Sequence[int]) -> bool:
        """Return True if the elements lie in one block, with the dimensions in this order, the last one densest."""
        expected = 1
        for dim in reversed(order):
            if self.shape[dim] != 1 and self.strides[dim] != expected:
                return False
            expected *= self.shape[dim]
        return True


@dataclass
class Form:
    """Graphs of a task that one pattern can match.

    ``graph`` is the first of them, with a placeholder for each hole. ``values`` has, for a node, one :class:`Seen`
    per column. A column is a subgraph, or one in another floating dtype: a pass should not break on those.
    ``literals`` has, for a hole, its value in each graph.
    """

    keys: list[str]
    graph: Graph
    columns: list[Subgraph]
    values: dict[Node, list[Seen]] = field(default_factory=dict)
    literals: dict[Node, list[Any]] = field(default_factory=dict)

    @property
    def operators(self) -> list[Node]:
        """The nodes that are calls, in graph order."""
        return [node for node in self.graph.nodes if node.op in ("call_function", "call_method")]

    def call(self, node: Node) -> Call:
        """Return a node's call in canonical form."""
        return canonical(node)

    def chosen(self, hole: Node) -> tuple[Any, ...]:
        """Return a hole's value in each column."""
        return tuple(self.literals[hole][self.keys.index(column.graph)] for column in self.columns)

    def dtypes(self, node: Node) -> tuple[torch.dtype | None, ...]:
        """Return a value's dtype in each column."""
        return tuple(seen.dtype for seen in self.values[node])

    def order(self, node: Node) -> tuple[int, ...] | None:
        """Return the order in which a value's dimensions lie in memory in all subgraphs, or None if it differs."""
        seen = self.values[node]
        first = seen[0]
        ranks = tuple(range(len(first.shape)))
        sorted_ = {
            tuple(sorted(ranks, key=lambda d: -one.strides[d])) for one in seen if len(one.shape) == len(ranks)
        }
        for order in (ranks, *sorted_):
            if all(len(one.shape) == len(ranks) and one.dense(order) for one in seen):
                return order
        return None

    def shapes(self, node: Node) -> tuple[tuple[int, ...], ...]:
        """Return a value's shape in each column."""
        return tuple(seen.shape for seen in self.values[node])


def forms(task: Task) -> list[Form]:
    """Return the forms of a task, that of most subgraphs first. Raises UserError for a graph that is not allowed."""
    graphs = []
    for key, source in task.graphs.items():
        gm = build_graph(source, str(task.path), line=task.graph_lines.get(key, 1))
        thread_inplace(gm.graph)
        if any(subgraph.graph == key for subgraph in task.subgraphs):
            graphs.append((key, gm))
    groups: dict[Any, list[tuple[str, GraphModule]]] = {}
    for numbers in (False, True):
        groups = {}
        for key, gm in graphs:
            groups.setdefault(_skeleton(gm, numbers), []).append((key, gm))
        if len(groups) == 1:
            break
    found = [_form(task, members, twins) for members, twins in _with_twins(list(groups.values()))]
    # A pattern with a number in it may be a case of one with an argument there, so it comes first.
    return sorted(
        found, key=lambda form: (sum(n.op == "placeholder" and n in form.values for n in form.graph.nodes), form.keys)
    )


_Member = tuple[str, GraphModule]


def _with_twins(groups: list[list[_Member]]) -> Iterator[tuple[list[_Member], dict[str, _Member]]]:
    """Yield the groups, the largest first, each with further graphs that only spell a member's calls otherwise.

    A further graph is given by its key, with the key of the member that it equals and its module.
    """
    owners: dict[Any, tuple[int, str]] = {}
    kept: list[list[_Member]] = []
    twins: list[dict[str, _Member]] = []
    for group in sorted(groups, key=lambda members: -len(members)):
        own = []
        for key, gm in group:
            meaning = _meaning(gm)
            if meaning in owners and owners[meaning][0] != len(kept):
                place, member = owners[meaning]
                twins[place][key] = (member, gm)
            else:
                owners.setdefault(meaning, (len(kept), key))
                own.append((key, gm))
        if own:
            kept.append(own)
            twins.append({})
    yield from zip(kept, twins, strict=True)


def _meaning(gm: GraphModule) -> Any:
    """Return the graph's calls in canonical form: equal for graphs that the same patterns match."""
    places = {node: i for i, node in enumerate(gm.graph.nodes)}

    def bones(value: Any) -> Any:
        if isinstance(value, Node):
            return f"node {places[value]}"
        if isinstance(value, (tuple, list)):
            return tuple(map(bones, value))
        if isinstance(value, slice):
            return ("slice", bones(value.start), bones(value.stop), bones(value.step))
        return repr(float(value)) if type(value) in (int, float) else repr(value)

    found: list[Any] = []
    for node in gm.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            found.append((node.op, bones(node.args)))
            continue
        call = canonical(node)
        args = {name: bones(value) for name, value in call.args.items()}
        if call.op in COMMUTATIVE and {"input", "other"} <= set(args):
            args["input"], args["other"] = sorted((args["input"], args["other"]), key=str)
        found.append((call.op, tuple(sorted((name, value) for name, value in args.items() if value != "None"))))
    return tuple(found)


def _form(task: Task, members: list[_Member], twins: dict[str, _Member]) -> Form:
    keys = [*(key for key, _gm in members), *twins]
    own = [subgraph for subgraph in task.subgraphs if subgraph.graph in keys]
    by_key = {**dict(members), **{key: gm for key, (_member, gm) in twins.items()}}
    recorded: list[dict[int, Seen]] = [_values(by_key[subgraph.graph], subgraph) for subgraph in own]
    known = {tuple(spec.dtype for spec in subgraph.inputs) for subgraph in own}
    for subgraph in _in_other_dtypes(own[0]):
        dtypes = tuple(spec.dtype for spec in subgraph.inputs)
        if dtypes not in known:
            with contextlib.suppress(Exception):  # a graph that cannot have these dtypes has no such column
                recorded.append(_values(by_key[subgraph.graph], subgraph, examples=False))
                own.append(subgraph)
    form = Form(keys, Graph(), own)
    nodes = [list(gm.graph.nodes) for _key, gm in members]
    copies = _copy(form, nodes)
    for found in form.literals.values():
        found += [found[keys.index(member)] for member, _gm in twins.values()]
    for place, node in enumerate(nodes[0]):
        if node.op != "output":
            form.values[copies[node]] = [values[place] for values in recorded]
    return form


def _in_other_dtypes(subgraph: Subgraph) -> Iterator[Subgraph]:
    """Yield a subgraph with one of its floating dtypes in place of another."""
    floating = ("float32", "bfloat16", "float16")
    for one in dict.fromkeys(spec.dtype for spec in subgraph.inputs if spec.dtype in floating):
        for other in floating:
            inputs = (replace(spec, dtype=other if spec.dtype == one else spec.dtype) for spec in subgraph.inputs)
            yield replace(subgraph, inputs=tuple(inputs))


def _copy(form: Form, nodes: list[list[Node]]) -> dict[Node, Node]:
    """Copy the first graph into the form, with a hole for each literal that differs between the graphs.

    Return the copy of each of its nodes.
    """
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
            if all(_same(value, other) for other in values):
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


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


def _skeleton(gm: GraphModule, numbers: bool) -> Any:
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

    found: list[Any] = []
    for node in gm.graph.nodes:
        names = _parameters(node)
        fixed = node.target is torch.tensor or (
            numbers and str(getattr(node.target, "__name__", node.target)) in _ARITHMETIC
        )
        # The first number of a subscript selects a part of a tuple, so it is structure.
        own = [bones(arg, names[i] if i < len(names) else "") for i, arg in enumerate(node.args)]
        own += [(name, bones(value, name)) for name, value in node.kwargs.items()]
        if node.target is operator.getitem and isinstance(node.args[1], int):
            own.append(node.args[1])
        found.append((node.op, str(node.target), tuple(own)))
    return tuple(found)


def _parameters(node: Node) -> list[str]:
    """Return the names of a call's positional parameters, as far as structure depends on them."""
    if node.op == "output" or not node.args:
        return []
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
    known = {
        "transpose": ["", "dim0", "dim1"], "permute": ["", *["dims"] * 8], "movedim": ["", "source", "destination"],
        "softmax": ["", "dim"], "flatten": ["", "start_dim", "end_dim"], "unsqueeze": ["", "dim"],
        "squeeze": ["", "dim"], "cat": ["", "dim"], "mean": ["", "dim", "keepdim"], "sum": ["", "dim", "keepdim"],
        "chunk": ["", "chunks", "dim"], "unbind": ["", "dim"], "index_select": ["", "dim"],
        "gather": ["", "dim"],
        "argmax": ["", "dim"], "max": ["", "dim"], "min": ["", "dim"], "unfold": ["", "dim"], "cumsum": ["", "dim"],
        "split": ["", "sections", "dim"], "unflatten": ["", "dim"], "select": ["", "dim"],
        "scatter_add_": ["", "dim"],
    }  # fmt: skip
    return known.get(name, [])


def _values(gm: GraphModule, subgraph: Subgraph, examples: bool = True) -> dict[int, Seen]:
    """Return what each node of a graph is on a subgraph's inputs, by its place.

    Fake tensors carry no data. If a shape depends on values, the graph runs on example inputs instead.
    """
    with torch.no_grad(), batching.closing():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                inputs = [torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in subgraph.inputs]
                return _Recorder(gm).values(inputs)
        except Exception:  # a shape that depends on values, or an operator without a fake implementation
            if not examples:
                raise
            with limited_memory():
                return _Recorder(gm).values(example_inputs(subgraph))


class _Recorder(Interpreter):  # type: ignore[misc]
    """An interpreter that notes what each value is."""

    def values(self, inputs: list[Any]) -> dict[int, Seen]:
        found: dict[int, Seen] = {}
        self.args_iter = iter(inputs)
        for place, node in enumerate(self.module.graph.nodes):
            self.env[node] = value = self.run_node(node)
            found[place] = _seen(value)
        return found


def _seen(value: Any) -> Seen:
    if isinstance(value, torch.Tensor):
        return Seen(value.dtype, tuple(value.shape), strides=tuple(value.stride()))
    if isinstance(value, (tuple, list)):
        return Seen(None, (), tuple(map(_seen, value)))
    return Seen(None)


def inputs_of(nodes: list[Node]) -> list[Node]:
    """Return the values from outside that ``nodes`` use, in order of use."""
    inside, found = set(nodes), dict[Node, None]()

    def note(value: Node) -> Node:
        if value not in inside:
            found.setdefault(value)
        return value

    for node in nodes:
        map_arg((node.args, node.kwargs), note)
    return list(found)


def outputs_of(nodes: list[Node]) -> Iterator[Node]:
    """Yield the values of ``nodes`` that are used outside."""
    inside = set(nodes)
    for node in nodes:
        if any(user not in inside for user in node.users):
            yield node
