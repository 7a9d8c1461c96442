"""A subgraph's source text, parsed as straight-line code. Nothing is executed, and torch is not imported."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pytest_passbench.core.complexity import TooComplex, check_complexity
from pytest_passbench.core.errors import UserError
from pytest_passbench.suite.limits import (
    MAX_BITS,
    MAX_SOURCE_BYTES,
    MAX_STATEMENTS,
    MAX_SYNTAX_DEPTH,
    MAX_TOKENS,
    too_long,
)

ROOTS = frozenset({"torch", "operator", "_operator", "math", "device", "inf", "nan", "Ellipsis"})
"""Names that dotted names may start with, unless a variable of the graph has the same name."""

BUILTINS = frozenset({
    "abs", "bool", "complex", "float", "getattr", "int", "len", "list", "max", "min", "pow", "range", "round",
    "slice", "sum", "tuple",
})  # fmt: skip

SIGNATURE_COLUMNS = 200  # characters of a signature that stands on one line

_MODULES = frozenset({"torch", "operator", "math", "__future__", "typing"})
_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Delete, ast.Pass)
_EXPRESSIONS = (
    ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.keyword, ast.Subscript, ast.Slice, ast.Tuple,
    ast.List, ast.Dict, ast.BinOp, ast.UnaryOp, ast.Compare, ast.expr_context, ast.operator, ast.unaryop,
    ast.cmpop,
)  # fmt: skip
_STATEMENT_LINE = re.compile(r"^[ \t]+(?:return\b|\w+ = )", re.MULTILINE)
_SPLIT = "split it into several assignments"
_CONSTANTS = (int, float, complex, str, bool, type(None), type(...))


@dataclass(frozen=True)
class ParsedSource:
    """The function ``forward`` of a source: argument names, and statements of straight-line code only.

    ``line`` is the line of the file ``origin`` at which the source text begins (from 1).
    """

    origin: str
    inputs: tuple[str, ...]
    body: tuple[ast.stmt, ...]
    line: int = 1

    def where(self, node: ast.AST) -> str:
        """Return ``origin:line`` of a syntax node of this source."""
        return f"{self.origin}:{self.line + getattr(node, 'lineno', 1) - 1}"


def parse(source: str, origin: str, line: int = 1, statements: int = MAX_STATEMENTS) -> ParsedSource:
    """Return the function in ``source``: a single ``def forward(...)``, bare or in one class.

    ``origin`` and ``line`` say where the text stands, for messages. Straight-line code is assignments, calls,
    attributes, operators, subscripts and literals. Raises UserError at the first construct that is anything
    else, and for more than ``statements`` statements.
    """
    _check_length(source, origin, line, statements)
    return _ForwardReader(origin, line, statements).module(parse_module(source, origin, line))


def _check_length(source: str, origin: str, line: int, statements: int) -> None:
    """Raise UserError for a text with too many lines that begin as statements do.

    The reader counts statements exactly. But parsing takes seconds for a text that is only a bit too long.
    """
    for number, match in enumerate(_STATEMENT_LINE.finditer(source)):
        if number == statements:
            place = f"{origin}:{line + source.count(chr(10), 0, match.start())}"
            raise UserError(_too_many(statements), where=place, remedy="split the graph")


def _too_many(statements: int) -> str:
    return f"more than {statements:,} statements"


def parse_module(source: str, origin: str, line: int = 1) -> ast.Module:
    """Return the syntax tree of a Python text, within limits of size and depth. Raises UserError with the line."""
    if len(source) > MAX_SOURCE_BYTES:
        what = f"Python text of more than {MAX_SOURCE_BYTES:,} characters"
        raise UserError(what, where=f"{origin}:{line}", remedy="make the graph or its recorded data smaller")
    try:
        check_complexity(source, MAX_TOKENS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a string changes nothing here
            module = ast.parse(source)
    except TooComplex as error:
        raise UserError(str(error), where=f"{origin}:{line + error.line - 1}", remedy=_SPLIT) from None
    except SyntaxError as error:
        place = f"{origin}:{line + (error.lineno or 1) - 1}"
        raise UserError(f"not Python: {error.msg}", where=place, remedy="correct the source") from None
    except (ValueError, RecursionError, MemoryError) as error:
        what = f"not Python: {error or 'nested too deeply'}"
        raise UserError(what, where=f"{origin}:{line}", remedy="correct the source") from None
    level: list[ast.AST] = [module]
    for _ in range(MAX_SYNTAX_DEPTH):  # functions that read the tree are recursive
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
    if level:
        place = f"{origin}:{line + min(getattr(node, 'lineno', 1) for node in level) - 1}"
        raise UserError(f"more than {MAX_SYNTAX_DEPTH} levels of syntax", where=place, remedy=_SPLIT)
    return module


def signature(names: Sequence[str]) -> str:
    """Return ``def forward(...):`` with these arguments, on one line, or with a line for each if that is long.

    Thousands of arguments in one line make Python's tokenizer slow (:mod:`pytest_passbench.core.complexity`).
    """
    text = f"def forward({', '.join(names)}):"
    if len(text) <= SIGNATURE_COLUMNS:
        return text
    return "\n".join(["def forward(", *(f"    {name}," for name in names), "):"])


class _ForwardReader:
    """A reader that checks a module's syntax tree and takes ``forward`` out of it."""

    def __init__(self, origin: str, line: int, statements: int) -> None:
        self.origin, self.line, self.statements = origin, line, statements
        self.names: set[str] = set()

    def fail(self, what: str, node: ast.AST, remedy: str | None = None) -> NoReturn:
        raise UserError(what, where=ParsedSource(self.origin, (), (), self.line).where(node), remedy=remedy)

    def module(self, module: ast.Module) -> ParsedSource:
        functions = [function for statement in module.body for function in self.forwards(statement)]
        if len(functions) != 1:
            last = functions[1] if functions else module
            self.fail(f"{len(functions)} functions named forward", last, "give exactly one def forward(...)")
        return self.forward(functions[0])

    def forwards(self, statement: ast.stmt) -> Iterator[ast.FunctionDef]:
        if isinstance(statement, ast.FunctionDef) and statement.name == "forward":
            yield statement
        elif isinstance(statement, ast.ClassDef):
            for inner in statement.body:
                if not _is_noise(inner):
                    yield from self.forwards(inner)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            self.check_import(statement)
        elif not _is_noise(statement):
            self.fail(f"{_kind(statement)} outside forward", statement, "only imports and one forward")

    def check_import(self, statement: ast.Import | ast.ImportFrom) -> None:
        """Fail at the import of an unknown module: its names would mean something else than they do here."""
        modules = (
            [a.name for a in statement.names] if isinstance(statement, ast.Import) else [statement.module or "."]
        )
        for name in modules:
            if name.split(".")[0] not in _MODULES:
                self.fail(f"import of {name}", statement, f"known modules: {', '.join(sorted(_MODULES))}")

    def forward(self, function: ast.FunctionDef) -> ParsedSource:
        if function.decorator_list:
            self.fail("a decorator on forward", function, "remove it")
        inputs = self.inputs(function.args, function)
        self.names.update(inputs)
        body = [s for s in function.body if not _is_noise(s)]
        if len(body) > self.statements:
            self.fail(_too_many(self.statements), body[self.statements], "split the graph")
        for statement in body:
            self.check_statement(statement)
        returns = [s for s in body if isinstance(s, ast.Return)]
        if len(returns) != 1 or body[-1] is not returns[0] or returns[0].value is None:
            self.fail("forward must end with its only return", function, "return the outputs as a tuple")
        return ParsedSource(self.origin, inputs, tuple(body), self.line)

    def inputs(self, arguments: ast.arguments, function: ast.FunctionDef) -> tuple[str, ...]:
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
            self.fail("forward has *args, keyword-only arguments or defaults", function, "name each input once")
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        return tuple(names[1:] if names[:1] == ["self"] else names)

    def check_statement(self, statement: ast.stmt) -> None:
        if not isinstance(statement, _STATEMENTS):
            self.fail(f"{_kind(statement)} is not straight-line code", statement, "unroll it")
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return):
            if statement.value is not None:
                self.check_expression(statement.value)
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                self.check_name(statement.target)
            for target in _targets(statement):
                self.assign(target)
        elif isinstance(statement, ast.Delete):
            for target in statement.targets:
                self.check_expression(target)

    def assign(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names.add(target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            for item in target.elts:
                self.assign(item)
        elif isinstance(target, ast.Subscript):
            self.check_expression(target)
        else:
            self.fail(f"assignment to {_kind(target)}", target, "assign to names or subscripts")

    def check_expression(self, expression: ast.AST) -> None:
        for node in ast.walk(expression):
            if not isinstance(node, _EXPRESSIONS):
                self.fail(f"{_kind(node)} is not straight-line code", node if hasattr(node, "lineno") else expression)
            if isinstance(node, ast.Name):
                self.check_name(node)
            elif isinstance(node, ast.Constant) and not isinstance(node.value, _CONSTANTS):
                self.fail(f"a literal of type {type(node.value).__name__}", node)
            elif isinstance(node, ast.Constant) and too_long(node.value):
                self.fail(f"an integer of more than {MAX_BITS} bits", node, "write a float")
            elif isinstance(node, ast.keyword) and node.arg is None:
                self.fail("a ** argument", node, "write the keywords out")
            elif isinstance(node, ast.Compare) and len(node.ops) > 1:
                self.fail("a chained comparison", node, "compare two values at a time")
            elif isinstance(node, ast.Dict) and None in node.keys:
                self.fail("** in a dict", node, "write the items out")

    def check_name(self, node: ast.Name) -> None:
        if node.id not in self.names and node.id not in ROOTS and node.id not in BUILTINS:
            self.fail(f"name {node.id!r} is used before it is assigned", node, "assign it, or make it an input")


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign | ast.AugAssign) else []


def _is_noise(statement: ast.stmt) -> bool:
    """Return True for docstrings and ``pass``."""
    if isinstance(statement, ast.Pass):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _kind(node: ast.AST) -> str:
    """Return the name of a syntax node for messages: ``For`` -> ``a 'for'``."""
    return f"a {type(node).__name__.lower()!r}"
