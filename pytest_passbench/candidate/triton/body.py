"""A kernel's body, checked against the allow-list and written anew.

Each node of the result is made here, and only for a kind of node that is listed. Outer names are replaced by what
they stand for: constants by literals, members of modules by one fixed spelling, and kernels by their names in the
written text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_passbench.candidate.triton.names import (
    ATTRIBUTES,
    CALLABLE_BUILTINS,
    DROPPED_CALLS,
    HIDDEN_ATTRIBUTES,
    MODULES,
    NEVER,
    RESERVED,
)
from pytest_passbench.candidate.triton.reference import (
    MAX_INTEGER,
    MAX_STRING_CHARACTERS,
    Constant,
    Function,
    Member,
    Module,
    UnsupportedValue,
    Value,
    member_expression,
)
from pytest_passbench.core.rejected import Rejected, kernel_refused

MAX_NODES = 20_000
MAX_DEPTH = 150  # of nesting; unparsing takes three frames a level
_PLAIN = (ast.Pass, ast.Break, ast.Continue)


@dataclass
class Body:
    """The checker and rewriter of a function's body.

    ``values`` are the recorded values of outer names. ``local`` are the names that the function binds.
    ``callable_parameters`` are those of them that it may call. ``emitted`` returns the name of another kernel by its
    index. All methods raise Rejected for what is not on the list.
    """

    file: str
    values: Mapping[str, Value]
    local: frozenset[str]
    emitted: Callable[[int], str]
    callable_parameters: frozenset[str] = frozenset()
    nodes: int = field(default=0, init=False)

    def statements(self, body: list[ast.stmt], depth: int = 0) -> list[ast.stmt]:
        """Return the statements rewritten, without those that do nothing. Return ``pass`` if none is left."""
        statements = [self._placed(node, depth + 1) for node in body if not _does_nothing(node)]
        return statements or [ast.Pass()]

    def _placed(self, node: ast.stmt, depth: int) -> ast.stmt:
        """Return a statement rewritten, with the line that it has in the candidate's file."""
        statement = self._statement(node, depth)
        statement.lineno = node.lineno
        return statement

    def _statement(self, node: ast.stmt, depth: int) -> ast.stmt:
        self._count(node, depth)
        match node:
            case ast.Expr(value):
                return ast.Expr(self.expression(value, depth))
            case ast.Assign([target], value):
                return ast.Assign([self._target(target)], self.expression(value, depth), lineno=1)
            case ast.AnnAssign(ast.Name() as target, annotation, value) if value is not None:
                return self._annotated(target, annotation, self.expression(value, depth))
            case ast.AugAssign(ast.Name() as target, operator, value):
                return ast.AugAssign(self._name(target), operator, self.expression(value, depth))
            case ast.Return(value):
                return ast.Return(None if value is None else self.expression(value, depth))
            case ast.If(test, body, orelse) | ast.While(test, body, orelse):
                test = self.expression(test, depth)
                return type(node)(test, self.statements(body, depth), self._else(orelse, depth))
            case ast.For(target, source, body, orelse):
                source = self.expression(source, depth)
                inner = self.statements(body, depth)
                return ast.For(self._target(target), source, inner, self._else(orelse, depth), lineno=1)
            case _ if isinstance(node, _PLAIN):
                return type(node)()
        raise self._no_syntax(node)

    def _else(self, body: list[ast.stmt], depth: int) -> list[ast.stmt]:
        return self.statements(body, depth) if body else []

    def _annotated(self, target: ast.Name, annotation: ast.expr, value: ast.expr) -> ast.stmt:
        if is_constexpr(annotation):
            return ast.AnnAssign(self._name(target), constexpr(), value, simple=1)
        return ast.Assign([self._name(target)], value, lineno=1)

    def _target(self, node: ast.expr) -> ast.expr:
        self._count(node, 1)
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Tuple(items) if all(isinstance(item, ast.Name) for item in items):
                return ast.Tuple([self._name(item) for item in items if isinstance(item, ast.Name)], ast.Store())
        raise self._refusal(node, "a Triton kernel may assign only to names")

    def _name(self, node: ast.Name) -> ast.Name:
        check_name(self.file, node.lineno, node.id)
        return ast.Name(node.id, ast.Store())

    def expression(self, node: ast.expr, depth: int) -> ast.expr:
        """Return the expression, rewritten. Raises Rejected for what is not on the list."""
        depth += 1
        self._count(node, depth)
        match node:
            case ast.Constant(value):
                return self._constant(node, value)
            case ast.Name() | ast.Attribute():
                return self._path(node, depth)
            case ast.BinOp(left, operator, right):
                return ast.BinOp(self.expression(left, depth), operator, self.expression(right, depth))
            case ast.UnaryOp(operator, operand):
                return ast.UnaryOp(operator, self.expression(operand, depth))
            case ast.BoolOp(operator, values):
                return ast.BoolOp(operator, [self.expression(item, depth) for item in values])
            case ast.Compare(left, operators, others):
                left = self.expression(left, depth)
                return ast.Compare(left, operators, [self.expression(item, depth) for item in others])
            case ast.IfExp(test, body, orelse):
                return ast.IfExp(*(self.expression(item, depth) for item in (test, body, orelse)))
            case ast.Call():
                return self._call(node, depth)
            case ast.Subscript(value, place):
                return ast.Subscript(self.expression(value, depth), self.expression(place, depth), ast.Load())
            case ast.Slice(lower, upper, step):
                parts = (None if part is None else self.expression(part, depth) for part in (lower, upper, step))
                return ast.Slice(*parts)
            case ast.Tuple(items) | ast.List(items):
                return type(node)([self.expression(item, depth) for item in items], ast.Load())
        raise self._no_syntax(node)

    def _constant(self, node: ast.expr, value: object) -> ast.expr:
        if value is not None and not isinstance(value, bool | int | float | str):
            raise self._refusal(node, f"a Triton kernel may not contain a {type(value).__name__}")
        if isinstance(value, int) and value >= MAX_INTEGER:
            raise self._refusal(node, "an integer of more than 64 bits")
        plain = not isinstance(value, str) or (value.isascii() and value.isprintable())
        if not plain or (isinstance(value, str) and len(value) > MAX_STRING_CHARACTERS):
            raise self._refusal(node, f"a string here has at most {MAX_STRING_CHARACTERS} printable ASCII characters")
        return ast.Constant(value)

    def _call(self, node: ast.Call, depth: int) -> ast.expr:
        function = node.func
        if isinstance(function, ast.Name) and function.id not in self.local and function.id not in self.values:
            if function.id not in CALLABLE_BUILTINS:
                raise self._unknown(function)
            called: ast.expr = ast.Name(function.id, ast.Load())
        else:
            called = self.expression(function, depth)
            if not isinstance(called, ast.Name | ast.Attribute):
                raise self._refusal(node, "a Triton kernel may call functions by their names only")
            if isinstance(called, ast.Name) and called.id in self.local - self.callable_parameters:
                raise self._refusal(node, f"a Triton kernel may not call its variable {called.id}")
        arguments, keywords = self._drop_message(called, node)
        values = [self.expression(item, depth) for item in arguments]
        return ast.Call(called, values, [self._keyword(item, depth) for item in keywords])

    def _drop_message(self, called: ast.expr, node: ast.Call) -> tuple[list[ast.expr], list[ast.keyword]]:
        """Return a call's arguments and keywords. An assertion's message is left out, since it may be any text."""
        if isinstance(called, ast.Attribute) and called.attr == "static_assert":
            return node.args[:1], [item for item in node.keywords if item.arg == "cond"]
        return node.args, node.keywords

    def _keyword(self, node: ast.keyword, depth: int) -> ast.keyword:
        if node.arg is None:
            raise self._refusal(node.value, "a Triton kernel may not pass arguments by ** or *")
        check_name(self.file, node.value.lineno, node.arg, private=True)
        return ast.keyword(node.arg, self.expression(node.value, depth))

    def _path(self, node: ast.Name | ast.Attribute, depth: int) -> ast.expr:
        """Return a name with its attributes: first members of modules, then attributes of the value."""
        attributes: list[ast.Attribute] = []
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            attributes.append(root)
            root = root.value
        if depth + len(attributes) > MAX_DEPTH:
            raise self._refusal(node, "a Triton kernel nests too deeply")
        attributes.reverse()
        if not isinstance(root, ast.Name):
            expression = self.expression(root, depth)
        elif root.id in self.local:
            check_name(self.file, root.lineno, root.id)
            expression = ast.Name(root.id, ast.Load())
        else:
            expression, attributes = self._outer(root, attributes)
        for attribute in attributes:
            self._check_attribute(attribute)
            expression = ast.Attribute(expression, attribute.attr, ast.Load())
        return expression

    def _outer(self, root: ast.Name, attributes: list[ast.Attribute]) -> tuple[ast.expr, list[ast.Attribute]]:
        value = self.values.get(root.id)
        match value:
            case Constant(expression, constexpr=wrapped):
                path = attributes[1:] if wrapped and attributes and attributes[0].attr == "value" else attributes
                return expression, path
            case Function(index):
                return ast.Name(self.emitted(index), ast.Load()), attributes
            case Member():
                return self._member(root, value), attributes
            case Module(name):
                return self._in_module(root, name, attributes)
            case UnsupportedValue(kind):
                description = f"{root.id}, which is no number, string, type or kernel but a {kind}"
                raise self._refusal(root, f"a Triton kernel may not use {description}")
        raise self._unknown(root)

    def _in_module(
        self, root: ast.expr, module: str, attributes: list[ast.Attribute]
    ) -> tuple[ast.expr, list[ast.Attribute]]:
        if module not in MODULES:
            raise self._refusal(root, f"a Triton kernel may not use the module {module}", "kernel-names")
        for at, attribute in enumerate(attributes):
            if attribute.attr in MODULES[module][1]:
                return self._member(attribute, Member(module, attribute.attr)), attributes[at + 1 :]
            if attribute.attr not in MODULES[module][2]:
                self._never(attribute, module)
                self._member(attribute, Member(module, attribute.attr))
            module = f"{module}.{attribute.attr}"
        raise self._refusal(root, f"a Triton kernel may not use the module {module} as a value", "kernel-names")

    def _member(self, node: ast.expr, member: Member) -> ast.expr:
        if member.name in NEVER:
            raise self._forbidden(node, member.name, member.name)
        try:
            return member_expression(member)
        except ValueError as error:
            raise self._refusal(node, str(error)) from None

    def _never(self, node: ast.Attribute, module: str) -> None:
        name = f"{'tl' if module == 'triton.language' else module}.{node.attr}"
        if node.attr in NEVER:
            raise self._forbidden(node, node.attr, name)
        if node.attr.startswith("_"):
            raise self._refusal(node, f"a Triton kernel may not use private names ({name})", "kernel-names")

    def _forbidden(self, node: ast.expr, name: str, description: str) -> Rejected:
        return self._refusal(node, f"a Triton kernel may not use {NEVER[name]} ({description})", "kernel-names")

    def _check_attribute(self, node: ast.Attribute) -> None:
        self._count(node, 1)
        if node.attr not in ATTRIBUTES:
            hidden = node.attr.startswith("_") or node.attr in HIDDEN_ATTRIBUTES
            message = f"a Triton kernel may not use the attribute {node.attr}"
            raise self._refusal(node, message, "kernel-names" if hidden else "")

    def _unknown(self, node: ast.Name) -> Rejected:
        return self._refusal(node, f"a Triton kernel uses {node.id}, and there is no recorded value of it")

    def _count(self, node: ast.expr | ast.stmt, depth: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise self._refusal(node, "a Triton kernel is too long or nests too deeply")

    def _no_syntax(self, node: ast.expr | ast.stmt) -> Rejected:
        """Return the refusal of a kind of node: a violation for what only Python has, a fault for the rest.

        Triton may support the rest one day.
        """
        kind = _PYTHON.get(type(node)) or _UNKNOWN.get(type(node), type(node).__name__)
        rule = "kernel-syntax" if type(node) in _PYTHON else ""
        return self._refusal(node, f"a Triton kernel may not contain {kind}", rule)

    def _refusal(self, node: ast.expr | ast.stmt, message: str, rule: str = "") -> Rejected:
        return kernel_refused(rule, message, self.file, node.lineno)


_PYTHON: dict[type[ast.AST], str] = {
    ast.Lambda: "a lambda",
    ast.FunctionDef: "a function",
    ast.AsyncFunctionDef: "a function",
    ast.ClassDef: "a class",
    ast.Import: "an import",
    ast.ImportFrom: "an import",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.Try: "try",
    ast.TryStar: "try",
    ast.With: "with",
    ast.AsyncWith: "with",
    ast.AsyncFor: "async",
    ast.Raise: "raise",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Await: "await",
    ast.GeneratorExp: "a generator",
}
_UNKNOWN: dict[type[ast.AST], str] = {
    ast.JoinedStr: "a format string",
    ast.NamedExpr: "an assignment inside an expression",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.Starred: "a starred expression",
    ast.Assign: "an assignment to several targets",
    ast.Delete: "del",
    ast.Match: "match",
}


def check_name(file: str, line: int, name: str, *, private: bool = False) -> None:
    """Raise Rejected for a name that a kernel may not bind.

    It may not bind names that the written text or Triton uses, hidden names, and names that are not plain ASCII.
    ``private`` refuses names with one leading underscore too.
    """
    hidden = name.startswith("_") if private else name.startswith("__")
    if name in RESERVED or hidden or not name.isascii() or len(name) > MAX_STRING_CHARACTERS:
        raise kernel_refused("kernel-names", f"a Triton kernel may not bind the name {name:.40}", file, line)


def is_constexpr(annotation: ast.expr) -> bool:
    """Return True if an annotation is ``tl.constexpr``, as a name or as a string."""
    match annotation:
        case ast.Name("constexpr") | ast.Attribute(attr="constexpr"):
            return True
        case ast.Constant(str() as text):
            return text.strip().rpartition(".")[2] == "constexpr"
    return False


def constexpr() -> ast.expr:
    """Return the annotation ``tl.constexpr``."""
    return ast.Attribute(ast.Name("tl", ast.Load()), "constexpr", ast.Load())


def _does_nothing(node: ast.stmt) -> bool:
    """Return True for docstrings, prints and assertions, which a kernel does not need."""
    match node:
        case ast.Expr(ast.Constant()) | ast.Assert():
            return True
        case ast.Expr(ast.Call(ast.Name(name))) | ast.Expr(ast.Call(ast.Attribute(attr=name))):
            return name in DROPPED_CALLS
    return False
