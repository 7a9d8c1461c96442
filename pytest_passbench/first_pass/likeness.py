"""The likeness of graphs: which of them one pattern can match.

Two graphs have the same skeleton if they differ only in literals that a pattern may take as arguments. They have the
same meaning if they only spell the same calls otherwise.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from pytest_passbench.rewrite.names import COMMUTATIVE
from pytest_passbench.rewrite.normalise import canonical

# Parameters whose value decides what a kernel has to do. Graphs that differ in one of them are two forms.
_STRUCTURE = frozenset({
    "dim", "dims", "dim0", "dim1", "start_dim", "end_dim", "source", "destination", "keepdim", "training",
})  # fmt: skip


_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "truediv", "pow"})


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
    """Return the names of a call's positional parameters, as far as structure depends on them."""
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

    def bones(value: Any) -> Any:
        if isinstance(value, Node):
            return f"node {places[value]}"
        if isinstance(value, (tuple, list)):
            return tuple(map(bones, value))
        if isinstance(value, slice):
            return ("slice", bones(value.start), bones(value.stop), bones(value.step))
        return repr(float(value)) if type(value) in (int, float) else repr(value)

    calls: list[Any] = []
    for node in gm.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            calls.append((node.op, bones(node.args)))
            continue
        call = canonical(node)
        args = {name: bones(value) for name, value in call.args.items()}
        if call.op in COMMUTATIVE and {"input", "other"} <= set(args):
            args["input"], args["other"] = sorted((args["input"], args["other"]), key=str)
        calls.append((call.op, tuple(sorted((name, value) for name, value in args.items() if value != "None"))))
    return tuple(calls)


def same(first: Any, other: Any) -> bool:
    """Return True if two literals are equal and of one type."""
    return type(first) is type(other) and repr(first) == repr(other)
