"""The normal form of a graph: a hash that is equal for two graphs that compute the same in another spelling.

Operands of commutative operators have no order. Identities and casts to the same dtype are left out. Layout
operations of one kind have one name: ``view``, ``reshape``, ``flatten`` and ``unsqueeze`` give a shape, ``permute``,
``transpose`` and ``movedim`` an order of dimensions. Consecutive ones are joined.

Two graphs are the same task material if their canonical sources are equal. A normal form is coarser.

The hash is a Weisfeiler-Lehman hash: every value has a colour, made of its operator and of the colours about it. So
neither the names nor the order of inputs, values and outputs matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.grouping import reached
from pytest_passbench.rewrite.meta import call
from pytest_passbench.rewrite.names import COMMUTATIVE, DIM_NAMES
from pytest_passbench.rewrite.normalise import CanonicalCall, canonical
from pytest_passbench.suite.opnames import is_metadata
from pytest_passbench.suite.printing import GraphPrinter

ROUNDS = 4
"""How often colours are refined by the colours of their users: enough to tell inputs apart by their place."""
COPIES = {"contiguous", "detach", "clone", "alias", "positive", "dropout", "dropout1d", "dropout2d", "dropout3d",
          "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}  # fmt: skip
RESHAPES = {"view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"}
ORDERS = {"permute", "transpose", "t", "movedim", "numpy_T", "adjoint", "swapaxes", "moveaxis"}
EXPANDS = {"expand", "expand_as"}
CASTS = {"to", "type", "type_as"}

Edge = tuple[str, fx.Node]
"""An operand: the name of its parameter, and the value."""


class _NormalForm:
    """The values of one graph that stay, each with its label and its operands."""

    def __init__(self, module: fx.GraphModule, values: Mapping[fx.Node, Any], sized: bool) -> None:
        self.values, self.sized = values, sized
        self.stands: dict[fx.Node, fx.Node] = {}
        self.labels: dict[fx.Node, str] = {}
        self.operands: dict[fx.Node, list[Edge]] = {}
        self.outputs: list[fx.Node] = []
        for node in module.graph.nodes:
            if node.op == "output":
                self.outputs = [self.stand(value) for value in node.args[0]]
            elif node.op == "placeholder":
                self.label(node, "input" + (self.size(node) if sized else ""), [])
            elif not (is_metadata(node) and not isinstance(values[node], torch.Tensor)):
                self.add(node, canonical(node))

    def stand(self, node: fx.Node) -> fx.Node:
        """Return the value that stands for ``node``: another one if ``node`` is an identity of it."""
        return self.stands.get(node, node)

    def size(self, node: fx.Node) -> str:
        value = self.values[node]
        return f"{list(value.shape)}{value.dtype}" if isinstance(value, torch.Tensor) else "()"

    def label(self, node: fx.Node, text: str, operands: list[Edge]) -> None:
        self.labels[node], self.operands[node] = text, operands

    def add(self, node: fx.Node, call: CanonicalCall) -> None:
        result, first = self.values[node], call.args.get("input")
        source = self.values.get(first) if isinstance(first, fx.Node) else None
        if not isinstance(result, torch.Tensor) or not isinstance(source, torch.Tensor):
            self.plain(node, call)
            return
        assert isinstance(first, fx.Node)
        same_shape = result.shape == source.shape
        if call.op in COPIES or (call.op in CASTS and (result.dtype == source.dtype or not self.sized)):
            self.stands[node] = self.stand(first)
        elif call.op in CASTS:
            self.label(node, f"to {result.dtype}", [("", self.stand(first))])
        elif call.op in RESHAPES | EXPANDS and same_shape:
            self.stands[node] = self.stand(first)
        elif call.op in RESHAPES:
            self.join(node, "reshape", str(list(result.shape)), first)
        elif call.op in EXPANDS:
            self.join(node, "expand", str(list(result.shape)), first)
        elif call.op in ORDERS:
            self.order(node, first, source)
        else:
            self.plain(node, call)

    def join(self, node: fx.Node, kind: str, detail: str, first: fx.Node) -> None:
        """Label a layout operation. Those of its kind directly before it are skipped: the last one decides."""
        before = self.stand(first)
        while self.labels[before].startswith(kind + " "):
            before = self.operands[before][0][1]
        if self.values[before].shape == self.values[node].shape:
            self.stands[node] = before
        else:
            self.label(node, f"{kind} {detail if self.sized else ''}", [("", before)])

    def order(self, node: fx.Node, first: fx.Node, source: torch.Tensor) -> None:
        """Label a reordering of dimensions, which is a reshape if only dimensions of one element move."""
        dims = _dims(node, first, source.dim())
        moved = [dim for dim in dims if source.shape[dim] != 1]
        if moved == sorted(moved):
            self.join(node, "reshape", str(list(self.values[node].shape)), first)
            return
        before = self.stand(first)
        if self.labels[before].startswith("order "):
            inner = [int(dim) for dim in self.labels[before].split()[1:]]
            dims, before = [inner[dim] for dim in dims], self.operands[before][0][1]
        if dims == sorted(dims):
            self.stands[node] = before
        else:
            self.label(node, f"order {' '.join(map(str, dims))}", [("", before)])

    def plain(self, node: fx.Node, call: CanonicalCall) -> None:
        """Label any other operator by its name and its literals."""
        operands: list[Edge] = []
        literals = [
            f"{name}={self.literal(call, name, value, operands)}" for name, value in sorted(call.args.items())
        ]
        if call.op in COMMUTATIVE and call.get("alpha") == 1 and {"input", "other"} <= call.args.keys():
            literals = [text.partition("=")[2] for text in literals if "=<" not in text]
            operands = [("", source) for _, source in operands]
        sizes = ", ".join(sorted(literals)) if self.sized else ""
        self.label(node, f"{call.op}({sizes})", operands)

    def literal(self, call: CanonicalCall, name: str, value: Any, operands: list[Edge]) -> str:
        """Return an argument as text; values of the graph in it are added to ``operands``."""
        if isinstance(value, fx.Node):
            if value not in self.labels and value not in self.stands:  # a number from a tensor's shape
                return repr(self.values[value])
            operands.append((f"{name}{len(operands)}", self.stand(value)))
            return "<>"
        if isinstance(value, tuple | list):
            return f"({' '.join(self.literal(call, name, item, operands) for item in value)})"
        if isinstance(value, slice):
            return ":".join(self.literal(call, name, v, operands) for v in (value.start, value.stop, value.step))
        first = call.args.get("input")
        rank = getattr(self.values.get(first), "ndim", 0) if isinstance(first, fx.Node) else 0
        if name in DIM_NAMES and isinstance(value, int) and not isinstance(value, bool) and value < 0 < rank:
            return str(value % rank)
        if isinstance(value, int) and not isinstance(value, bool) and call.op in ("add", "sub", "mul", "div", "pow"):
            return str(float(value))
        return repr(value)


def _dims(node: fx.Node, first: fx.Node, rank: int) -> list[int]:
    """Return the order of dimensions that a layout operator gives, from a call on dimensions of different sizes."""
    probe = torch.empty(tuple(range(2, rank + 2)), device="meta")
    return [size - 2 for size in call(node, lambda operand: probe if operand is first else operand).shape]


def normal_form(module: fx.GraphModule, values: Mapping[fx.Node, Any], sized: bool = True) -> str:
    """Return the hash of the normal form of ``module``.

    ``values`` has the value of every node, from which shapes and dtypes are read. ``sized=False`` leaves the shapes
    and dtypes out of the hash: graphs that differ in them alone are equal then.
    """
    form = _NormalForm(module, values, sized)
    order = list(form.labels)
    users: dict[fx.Node, list[Edge]] = {node: [] for node in order}
    for node in order:
        for name, source in form.operands[node]:
            users[source].append((name, node))
    # The values that an output depends on, without inputs that only an identity or a cast takes.
    alive = reached(form.outputs, lambda node: [source for _, source in form.operands[node]])
    colours = {node: digest([form.labels[node], str(form.outputs.count(node))]) for node in order}
    for _ in range(ROUNDS):
        for node in order:  # what a value is made of, all the way up
            colours[node] = digest([colours[node], *_about(form.operands[node], colours)])
        for node in reversed(order):  # what it is used for, all the way down
            colours[node] = digest([colours[node], *_about([u for u in users[node] if u[1] in alive], colours)])
    return digest(sorted(colours[node] for node in alive))


def _about(edges: list[Edge], colours: Mapping[fx.Node, str]) -> list[str]:
    return sorted(f"{name} {colours[node]}" for name, node in edges)


def canonical_source(module: fx.GraphModule) -> str:
    """Return the source of ``module`` with its inputs in order of first use. Unused ones are left out."""
    inner = [node for node in module.graph.nodes if node.op != "placeholder"]
    inputs = dict.fromkeys(a for node in inner for a in node.all_input_nodes if a.op == "placeholder")
    return GraphPrinter().text([*inputs, *inner])


def digest(parts: Iterable[str], length: int = 16) -> str:
    """Return a short SHA-256 hash (``length`` hex digits) of several texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]
