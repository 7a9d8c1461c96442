"""The builder of FX graphs from source text. It executes none of the text: each name goes through the allow-list."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.fx

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.task import Task
from pytest_passbench.suite import allowlist, batching, constants
from pytest_passbench.suite.limits import MAX_STATEMENTS
from pytest_passbench.suite.opnames import has_no_effect
from pytest_passbench.suite.source import BUILTINS, ROOTS, ParsedSource, parse

_BINARY: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[..., Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_NUMBERS = (int, float, complex)


def build_graph(
    source: str, origin: str, device: str = "cpu", line: int = 1, statements: int = MAX_STATEMENTS
) -> torch.fx.GraphModule:
    """Return the graph module of a subgraph's source. Its placeholders have the names of forward's arguments.

    Recorded devices (``device(type='cuda', index=0)``, ``.to('cuda')``, ``.cuda()``) become ``device``. The
    output is a tuple. ``line`` is the line of ``origin`` at which the text begins. Raises UserError at
    ``origin:line`` for code that is not allowed or not understood, and for more than ``statements``.
    """
    return build_program(parse(source, origin, line, statements), device)


def build_program(program: ParsedSource, device: str = "cpu") -> torch.fx.GraphModule:
    """Return the graph module of a parsed source, as :func:`build_graph` does."""
    return torch.fx.GraphModule(torch.nn.Module(), _GraphBuilder(program, device).build())


def check_graphs(task: Task) -> None:
    """Build every graph of a task, once in a process. Raises UserError, with file and line, if one is not allowed."""
    for key, source in task.graphs.items():
        _check_graph(source, str(task.path), task.graph_lines.get(key, 1))


@functools.lru_cache(maxsize=256)
def _check_graph(source: str, origin: str, line: int) -> None:
    build_graph(source, origin, line=line)


class _GraphBuilder(ast.NodeVisitor):
    """A visitor that makes nodes of a checked program. ``visit`` returns an expression's value: a Node or literal."""

    def __init__(self, program: ParsedSource, device: str) -> None:
        self.program, self.device = program, torch.device(device)
        self.graph = torch.fx.Graph()
        self.env: dict[str, Any] = {}
        self.names: dict[ast.AST, str] = {}  # the variables that expressions are assigned to

    def build(self) -> torch.fx.Graph:
        for name in self.program.inputs:
            self.env[name] = self.graph.create_node("placeholder", name, (), {}, name=name)
        for statement in self.program.body:
            self.visit(statement)
        return self.graph

    def fail(self, what: str, node: ast.AST, remedy: str | None = None) -> NoReturn:
        raise UserError(what, where=self.program.where(node), remedy=remedy)

    def generic_visit(self, node: ast.AST) -> NoReturn:
        self.fail(f"{type(node).__name__} is not understood", node)

    def call(
        self, node: ast.AST, target: Any, *args: Any, kwargs: dict[str, Any] | None = None, op: str = "call_function"
    ) -> torch.fx.Node:
        """Add a graph node for a syntax node, named after the variable that it is assigned to, and return it."""
        name = node.id if isinstance(node, ast.Name) else self.names.get(node)
        return self.graph.create_node(op, target, args, kwargs, name=name)

    def is_node(self, *values: Any) -> bool:
        """Return True if any of the values is a graph node, or contains one."""
        nodes: list[Any] = []
        torch.fx.node.map_arg(values, nodes.append)
        return bool(nodes)

    # Statements

    def visit_Assign(self, node: ast.Assign) -> None:
        first = node.targets[0]
        if isinstance(first, ast.Name):
            self.names[node.value] = first.id
        value = self.visit(node.value)
        if not isinstance(value, constants.Repeated):  # it may be assigned, but not used
            self.check_value(value, node.value)
        for target in node.targets:
            self.store(target, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(node.target, self.visit_value(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        plain = _BINARY[type(node.op)]
        in_place = getattr(operator, f"i{plain.__name__.rstrip('_')}")
        target, value = node.target, self.visit_value(node.value)
        if isinstance(target, ast.Name):
            old = self.visit(target)
            function = in_place if self.is_node(old) else plain
            self.env[target.id] = self.binary(node, function, old, value)
        elif isinstance(target, ast.Subscript):
            base, index = self.visit(target.value), self.visit(target.slice)
            changed = self.call(node, in_place, self.call(node, operator.getitem, base, index), value)
            self.call(node, operator.setitem, base, index, changed)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.visit_value(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        """Ignore ``del x``: it frees memory early, but a graph has no names to free."""

    def visit_Return(self, node: ast.Return) -> None:
        value = self.visit_value(node.value) if node.value is not None else None
        values = tuple(value) if isinstance(value, tuple | list) else (value,)
        if not all(isinstance(v, torch.fx.Node) for v in values):
            self.fail("an output is not a value that the graph computes", node, "return tensors, one tuple of them")
        self.graph.output(values)
        if problem := batching.level_fault(self.graph):
            self.fail(problem, node, "open and close each level inside the graph")

    def store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            for position, item in enumerate(target.elts):
                self.store(item, self.item(target, value, position))
        elif isinstance(target, ast.Subscript):
            base = self.visit(target.value)
            self.call(target, operator.setitem, base, self.visit(target.slice), value)

    def item(self, target: ast.Tuple | ast.List, value: Any, position: int) -> Any:
        if isinstance(value, torch.fx.Node):
            return self.call(target.elts[position], operator.getitem, value, position)
        if not isinstance(value, tuple | list) or len(value) != len(target.elts):
            self.fail(f"cannot unpack into {counted(len(target.elts), 'name')}", target)
        return value[position]

    # Expressions

    def visit_value(self, node: ast.expr) -> Any:
        """Return an expression's value in a form that a node accepts as an argument."""
        value = self.visit(node)
        self.check_value(value, node)
        return value

    def check_value(self, value: Any, node: ast.expr) -> None:
        if isinstance(value, constants.DtypeLimits):
            self.fail("torch.finfo is not a value by itself", node, "name one of its numbers, such as .min")
        if isinstance(value, constants.Repeated):
            self.fail("a list is used whose length is a value of the graph", node, "write the list out")

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.visit_value(e) for e in node.elts)

    def visit_List(self, node: ast.List) -> Any:
        return [self.visit_value(e) for e in node.elts]

    def visit_Dict(self, node: ast.Dict) -> Any:
        keys = [self.visit_value(k) for k in node.keys if k is not None]
        if not all(isinstance(k, str) for k in keys):
            self.fail("a dict key is not a string", node)
        return dict(zip(keys, [self.visit_value(v) for v in node.values], strict=True))

    def visit_Slice(self, node: ast.Slice) -> Any:
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else self.visit_value(part) for part in parts))

    def visit_Name(self, node: ast.Name) -> Any:
        return self.env[node.id] if node.id in self.env else self.constant(node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        dotted = self.dotted(node)
        if dotted is not None:
            return self.constant(dotted, node)
        owner = self.visit(node.value)
        if isinstance(owner, constants.DtypeLimits):
            return self.placed(owner.number, node.attr, node)
        if not isinstance(owner, torch.fx.Node) or node.attr not in allowlist.ATTRIBUTES:
            self.fail(f"attribute {node.attr!r} is not allowed", node, "see the allow-list in suite/allowlist.py")
        return self.call(node, getattr, owner, node.attr)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        base, index = self.visit_value(node.value), self.visit_value(node.slice)
        if isinstance(base, torch.fx.Node):
            return self.call(node, operator.getitem, base, index)
        if not isinstance(base, tuple | list) or not isinstance(index, int) or not -len(base) <= index < len(base):
            self.fail("a subscript of something that is not a tensor or tuple", node)
        return base[index]

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value, function = self.visit_value(node.operand), _UNARY[type(node.op)]
        if isinstance(value, _NUMBERS) and isinstance(node.op, ast.USub | ast.UAdd):
            return function(value)
        return self.call(node, function, value)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.visit_value(node.left), self.visit_value(node.right)
        return self.binary(node, _BINARY[type(node.op)], left, right)

    def visit_Compare(self, node: ast.Compare) -> Any:
        function = _COMPARE.get(type(node.ops[0]))
        if function is None:
            self.fail(f"comparison {type(node.ops[0]).__name__} is not understood", node)
        return self.call(node, function, self.visit_value(node.left), self.visit_value(node.comparators[0]))

    def visit_Call(self, node: ast.Call) -> Any:
        method = node.func if isinstance(node.func, ast.Attribute) and self.dotted(node.func) is None else None
        owner = self.visit(method.value) if method is not None else None
        args = [self.visit_value(a) for a in node.args]
        kwargs = {k.arg: self.visit_value(k.value) for k in node.keywords if k.arg is not None}
        if method is not None:
            return self.call_method(node, owner, method.attr, args, kwargs)
        return self.call_function(node, args, kwargs)

    # Calls

    def call_method(self, node: ast.Call, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not isinstance(owner, torch.fx.Node):
            self.fail(f"method {name!r} of something that is not a tensor", node)
        if name not in allowlist.METHODS:
            self.fail(f"tensor method {name!r} is not allowed", node, "see the allow-list in suite/allowlist.py")
        if name in ("cuda", "cpu"):
            name, args, kwargs = "to", [self.device], {}
        if name == "to" and args and isinstance(args[0], str):
            args = [self.device, *args[1:]]
        return self.call(node, name, owner, *args, kwargs=self.on_device(kwargs), op="call_method")

    def call_function(self, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
        dotted = self.dotted(node.func)
        if dotted is None:
            self.fail("a call of something that is not an operator", node, "call torch functions and tensor methods")
        if dotted in ("device", "torch.device"):
            return self.device
        if has_no_effect(dotted, args, kwargs):
            return None
        if dotted == "getattr":
            return self.call_getattr(node, args)
        if dotted == "torch._check_is_size" and len(args) == 1:  # torch is about to remove it: its definition
            return self.call(node, torch._check, self.call(node, operator.ge, args[0], 0))
        if problem := constants.fault(dotted.rpartition(".")[2], args):
            self.fail(problem, node, "write the value out")
        is_constructor = dotted in constants.CONSTRUCTORS and not self.is_node(*args)
        if dotted in constants.CONTAINERS or is_constructor:  # a value out of literals, which needs no node
            return self.placed(lambda name: constants.construct(name, args), dotted, node)
        function = self.placed(allowlist.resolve, dotted, node)
        return self.call(node, function, *args, kwargs=self.on_device(kwargs))

    def call_getattr(self, node: ast.Call, args: list[Any]) -> Any:
        if len(args) != 2 or not self.is_node(args[0]) or args[1] not in allowlist.ATTRIBUTES:
            self.fail("this getattr is not allowed", node, "getattr(tensor, 'shape') and the like are")
        return self.call(node, getattr, *args)

    # Helpers

    def constant(self, dotted: str, node: ast.expr) -> Any:
        return self.placed(constants.constant, dotted, node)

    def placed(self, function: Callable[[str], Any], name: str, node: ast.expr) -> Any:
        """Return ``function(name)``. A UserError that it raises gets the node's line."""
        try:
            return function(name)
        except UserError as error:
            self.fail(error.what, node, error.remedy)

    def binary(self, node: ast.AugAssign | ast.BinOp, function: Callable[..., Any], left: Any, right: Any) -> Any:
        is_list = isinstance(left, tuple | list)
        if function is operator.mul and is_list and isinstance(right, torch.fx.Node):
            return constants.Repeated()
        if problem := constants.fault(function.__name__, (left, right)):
            self.fail(problem, node, "write the value out")
        if function is operator.mul and is_list:
            return left * right
        if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            return self.folded(node, left, right)
        return self.call(node, function, left, right)

    def folded(self, node: ast.AugAssign | ast.BinOp, left: Any, right: Any) -> Any:
        """Return the number that arithmetic on two numbers gives."""
        try:
            value = _BINARY[type(node.op)](left, right)
        except (ArithmeticError, TypeError, ValueError) as error:
            self.fail(str(error), node, "write the number out")
        if problem := constants.fault("", (value,)):
            self.fail(problem, node, "write a float")
        return value

    def on_device(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        if isinstance(kwargs.get("device"), str | int):
            return {**kwargs, "device": self.device}
        return kwargs

    def dotted(self, node: ast.expr) -> str | None:
        """Return a chain of names as text, such as ``torch.nn.functional.gelu``, or None if it starts at a value."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self.env:
            return None
        if node.id not in ROOTS and node.id not in BUILTINS:
            return None
        return ".".join([node.id, *reversed(names)])
