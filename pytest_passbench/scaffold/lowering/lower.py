"""The calls that have a plain kernel, and the order in which a run of them is lowered."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import ClassVar

from torch.fx import Node

from pytest_passbench.rewrite.normalise import CanonicalCall
from pytest_passbench.scaffold import elementwise
from pytest_passbench.scaffold.emitter import (
    NoPlainKernel,
    OnlyViews,
    literal,
    refuse,
)
from pytest_passbench.scaffold.forms import GraphForm
from pytest_passbench.scaffold.lowering.moves import Moves
from pytest_passbench.scaffold.lowering.wrapper import ALIASES, VIEWS, OperandView
from pytest_passbench.scaffold.roundings import REORDERED
from pytest_passbench.scaffold.text import Python


class CallLowering(Moves):
    """The lowering of a run of calls. ``inexact`` are operators that may round otherwise than eager."""

    inexact: ClassVar[Set[str]] = REORDERED

    def run(self) -> None:
        """Lower all calls. Raises NoPlainKernel for the first that has no plain kernel."""
        for node in self.nodes:
            self._lower(node)
        self._flush()
        values = [self._laid_out(node) for node in self.returned]
        if not self.launches:  # only moves: a kernel has to do the last of them
            order = self.form.order(self.returned[-1])
            if order is None or list(order) != sorted(order):
                raise OnlyViews("only views")
            values[-1] = self._moved(values[-1].removesuffix(".contiguous()"))
        self.lines.append(f"return {', '.join(values)}")

    def _laid_out(self, node: Node) -> str:
        """Return a result's variable with eager's strides."""
        text, order = self._variable(node), self.form.order(node)
        if text in self._dense and order == tuple(range(len(self.form.shapes(node)[0]))):
            return text
        if self._of_argument(node):
            return text
        if order is None:
            like = self._laid_out_alike(node)
            return text if like is None else f"torch.empty_like({self._variable(like)}).copy_({text})"
        if list(order) == sorted(order):
            return f"{text}.contiguous()"
        back = tuple(order.index(d) for d in range(len(order)))
        return f"{text}.permute({order}).contiguous().permute({back})"

    def _laid_out_alike(self, node: Node) -> Node | None:
        """Return the operand that a result of an operator on elements has its strides from, or None if unknown."""
        while node in self._inside:
            call = self.form.call(node)
            if self._of_argument(node):
                return node
            if call.op not in elementwise.OPERATORS | ALIASES | {"dropout"}:
                return None
            shapes = self.form.shapes(node)
            alike = [v for v in call.args.values() if isinstance(v, Node) and self.form.values.get(v)
                     and self.form.shapes(v) == shapes]  # fmt: skip
            if not alike:
                return None
            node = alike[0]
        return node

    def _of_argument(self, node: Node) -> bool:
        """Return True if a result is a view of an argument, so that it has eager's strides."""
        while node in self._inside:
            call = self.form.call(node)
            value = call.args.get("input")
            alias = call.op in VIEWS | ALIASES | {"getitem", "dropout"} and call.op not in ("contiguous", "reshape")
            if not alias or not isinstance(value, Node):
                return False
            node = value
        return True

    def _lower(self, node: Node) -> None:
        call = self.form.call(node)
        method: Callable[[Node, CanonicalCall], None] | None = getattr(self, f"_do_{call.op}", None)
        if method is not None:
            method(node, call)
        elif call.op in ALIASES or _is_identity(self.form, node, call):
            self._variables[node] = self._variable(call.args["input"])
            if call.args["input"] in self._numbers:
                self._numbers[node] = self._numbers[call.args["input"]]
        elif call.op in VIEWS:
            self._view(node)
        elif call.op in elementwise.OPERATORS:
            self._elementwise(node, call)
        else:
            raise NoPlainKernel("an assignment into a tensor" if call.op == "setitem" else call.op)

    def _do_getitem(self, node: Node, call: CanonicalCall) -> None:
        base, index = call.args["input"], call.args["index"]
        if self.form.values[base][0].parts or not any(isinstance(i, Node) and self._is_tensor(i) for i in index):
            self._view(node)
            return
        refuse(len(index) != 1, "a subscript with several tensors")
        self._take(node, base, index[0])

    def _is_tensor(self, node: Node) -> bool:
        return node not in self.form.literals and self.form.values[node][0].dtype is not None

    def _do_getattr(self, node: Node, call: CanonicalCall) -> None:
        refuse(self.form.values[node][0].dtype is not None, f"the attribute {call.args['name']}")
        self._view(node)

    def _do_tensor(self, node: Node, call: CanonicalCall) -> None:
        value = next(iter(call.args.values()))
        refuse(not isinstance(value, (int, float)), "torch.tensor of several numbers")
        self._numbers[node] = value
        self._variables[node] = self.names[node]

    def _do_zeros(self, node: Node, call: CanonicalCall) -> None:
        refuse(set(self.form.shapes(node)) != {()}, call.op)
        self._numbers[node] = 0.0
        self._variables[node] = self.names[node]

    def _do_new_zeros(self, node: Node, call: CanonicalCall) -> None:
        size = call.args["size"]
        text = Python(self._variables).value(tuple(size) if isinstance(size, (tuple, list)) else size)
        self._set(node, f"torch.zeros({text}, dtype={self._dtype(self.form.dtypes(node))})", dense=True)

    def _do_zeros_like(self, node: Node, call: CanonicalCall) -> None:
        shape = self._variable(call.args["input"])
        fill = call.op.removesuffix("_like")
        self._set(node, f"torch.{fill}({shape}.shape, dtype={self._dtype(self.form.dtypes(node))})", dense=True)

    _do_ones_like = _do_zeros_like

    def _do_dropout(self, node: Node, call: CanonicalCall) -> None:
        refuse(literal(call.get("training")) is not False, "dropout in training")
        self._same(node, call)

    def _same(self, node: Node, call: CanonicalCall) -> None:
        source = call.args["input"]
        if self._stage is not None and source in self._stage.nodes:
            self._stage.nodes.append(node)
            self._stage.locals[node] = self._stage.locals[source]
        else:
            self._variables[node] = self._variable(source)

    def _do_batch_norm(self, node: Node, call: CanonicalCall) -> None:
        self._by_channel(node, call, "weight", "bias", "running_mean", "running_var")

    def _do_prelu(self, node: Node, call: CanonicalCall) -> None:
        self._by_channel(node, call, "weight")

    def _by_channel(self, node: Node, call: CanonicalCall, *names: str) -> None:
        """Lower a call whose arguments of these names have one element per channel."""
        rank = len(self.form.shapes(node)[0])
        suffix = f".view(-1{', 1' * (rank - 2)})" if rank > 2 else ""
        views = {
            name: OperandView(call.args[name], suffix) for name in names if isinstance(call.args.get(name), Node)
        }
        self._elementwise(node, CanonicalCall(call.op, {**call.args, **views}))

    def _do_outer(self, node: Node, call: CanonicalCall) -> None:
        other = call.args.get("vec2", call.args.get("other"))
        self._elementwise(
            node, CanonicalCall("mul", {"input": OperandView(call.args["input"], "[:, None]"), "other": other})
        )

    def _do_glu(self, node: Node, call: CanonicalCall) -> None:
        value = call.args["input"]
        (dim,) = self._dims(value, -1 if call.get("dim") is None else call.get("dim"))
        halves = [OperandView(value, f".chunk(2, {dim})[{half}]") for half in (0, 1)]
        self._elementwise(node, CanonicalCall("glu", {"input": halves[0], "other": halves[1]}))


def _is_identity(form: GraphForm, node: Node, call: CanonicalCall) -> bool:
    """Return True for a cast that changes nothing in any subgraph."""
    value = call.args.get("input")
    if call.op != "to" or not isinstance(value, Node):
        return False
    return value not in form.literals and form.dtypes(value) == form.dtypes(node)
