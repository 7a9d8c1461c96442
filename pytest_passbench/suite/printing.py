"""The printer of FX graphs as source text, in one canonical spelling for graphs of any origin."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.fx

from pytest_passbench.core.errors import UserError
from pytest_passbench.suite.allowlist import ATTRIBUTES, METHODS, spelling
from pytest_passbench.suite.source import signature

_INFIX: dict[Callable[..., Any], str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|",
    operator.xor: "^", operator.lshift: "<<", operator.rshift: ">>", operator.eq: "==", operator.ne: "!=",
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip
_PREFIX: dict[Callable[..., Any], str] = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}


def to_source(gm: torch.fx.GraphModule) -> str:
    """Return the canonical ``def forward(in_0, ...)`` of a graph: temporaries tmp_0, tmp_1, ..., a tuple returned.

    :func:`~pytest_passbench.suite.build.build_graph` makes the same graph of it. Raises UserError for an operator
    without a spelling on the allow-list, and for submodules and attributes, which have to be lifted to inputs.
    """
    return GraphPrinter().text(gm.graph.nodes)


class GraphPrinter:
    """The printer of one graph. It names the nodes in the order in which it gets them, and writes each as text."""

    def __init__(self) -> None:
        self.names: dict[torch.fx.Node, str] = {}
        self.inputs: list[str] = []
        self.lines: list[str] = []

    def text(self, nodes: Iterable[torch.fx.Node]) -> str:
        """Return the source of a graph's nodes. Those that a node uses come before it."""
        for node in nodes:
            self.node(node)
        return "\n    ".join([signature(self.inputs), *self.lines]) + "\n"

    def node(self, node: torch.fx.Node) -> None:
        if node.op == "placeholder":
            self.names[node] = f"in_{len(self.inputs)}"
            self.inputs.append(self.names[node])
        elif node.op == "output":
            self.lines.append(f"return {self.outputs(node)}")
        elif node.target is operator.setitem:
            owner, index, value = node.args
            self.lines.append(f"{self.value(owner)}[{self.index(index)}] = {self.value(value)}")
        else:
            text = self.call(node)
            self.names[node] = f"tmp_{len(self.names) - len(self.inputs)}"
            self.lines.append(f"{self.names[node]} = {text}")

    def outputs(self, node: torch.fx.Node) -> str:
        outputs = node.args[0]
        values = tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)
        for value in values:
            if not isinstance(value, torch.fx.Node):
                raise UserError(f"the graph returns {value!r}", remedy="return tensors that it computes")
        return self.value(values)

    def call(self, node: torch.fx.Node) -> str:
        if node.op == "call_method":
            return self.method(str(node.target), node)
        if node.op != "call_function":
            raise UserError(f"the graph has a {node.op} ({node.target})", remedy="lift it to an input")
        return self.operator(node) or self.function(node)

    def operator(self, node: torch.fx.Node) -> str | None:
        """Return an operator's call in infix, prefix, index or attribute form, or None if it has none."""
        target, args = node.target, node.args
        if not any(isinstance(a, torch.fx.Node) for a in args) or node.kwargs:
            return None
        if target in _INFIX and len(args) == 2:
            return f"{self.left(args[0])} {_INFIX[target]} {self.value(args[1])}"
        if target in _PREFIX and len(args) == 1:
            return f"{_PREFIX[target]}{self.value(args[0])}"
        if not isinstance(args[0], torch.fx.Node):
            return None
        if target is operator.getitem:
            return f"{self.value(args[0])}[{self.index(args[1])}]"
        if target is getattr and args[1] in ATTRIBUTES:
            return f"{self.value(args[0])}.{args[1]}"
        return None

    def function(self, node: torch.fx.Node) -> str:
        name = getattr(node.target, "__name__", "")
        if name in METHODS and getattr(torch.Tensor, name, None) is node.target:
            return self.method(name, node)
        dotted = None if node.target is getattr else spelling(node.target)
        if dotted is None:
            qualified = f"{getattr(node.target, '__module__', '')}.{name}" if name else str(node.target)
            raise UserError(
                f"operator {qualified.strip('.')!r} has no allowed spelling", remedy="see suite/allowlist.py"
            )
        return f"{dotted}({self.arguments(node.args, node.kwargs)})"

    def method(self, name: str, node: torch.fx.Node) -> str:
        if name not in METHODS or not node.args or not isinstance(node.args[0], torch.fx.Node):
            raise UserError(f"tensor method {name!r} has no allowed spelling", remedy="see suite/allowlist.py")
        return f"{self.value(node.args[0])}.{name}({self.arguments(node.args[1:], node.kwargs)})"

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        named = [f"{key}={self.value(value)}" for key, value in kwargs.items()]
        return ", ".join([*map(self.value, args), *named])

    def left(self, value: Any) -> str:
        """Return a value to the left of an operator, in brackets if needed: ``-1 ** x`` would negate the power."""
        text = self.value(value)
        return f"({text})" if text.startswith("-") else text

    def index(self, value: Any) -> str:
        """Return a value inside ``[...]``, where slices have their own form."""
        if isinstance(value, tuple) and value:
            return ", ".join(map(self.subscript, value)) + ("," if len(value) == 1 else "")
        return self.subscript(value)

    def subscript(self, value: Any) -> str:
        if not isinstance(value, slice):
            return self.value(value)
        parts = ["" if part is None else self.value(part) for part in (value.start, value.stop)]
        return ":".join(parts) + ("" if value.step is None else f":{self.value(value.step)}")

    def value(self, value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            if value not in self.names:
                raise UserError(f"the graph uses {value.name!r}, which has no value", remedy="the graph is damaged")
            return self.names[value]
        if isinstance(value, tuple | list | dict | slice):
            return self.container(value)
        if isinstance(value, torch.device):
            index = "" if value.index is None else f", index={value.index}"
            return f"device(type={value.type!r}{index})"
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value)
        return _literal(value)

    def container(self, value: Any) -> str:
        if isinstance(value, slice):
            return f"slice({self.value(value.start)}, {self.value(value.stop)}, {self.value(value.step)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{_literal(k)}: {self.value(v)}" for k, v in value.items()) + "}"
        inside = ", ".join(map(self.value, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"


def _literal(value: Any) -> str:
    if value is ...:
        return "..."
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, complex):
        return f"complex({value.real!r}, {value.imag!r})"
    what = f"a literal of type {type(value).__name__} ({value!r}) has no spelling"
    raise UserError(what, remedy="make it an input")
