"""A kernel's text, read from the candidate's file on the judge's side. A reader states only its place.

So a patched ``inspect`` or ``linecache`` in the reader changes nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from pytest_passbench.candidate.triton.body import Body, check_name, constexpr, is_constexpr
from pytest_passbench.candidate.triton.definition import Definition, all_arguments, find_definition
from pytest_passbench.candidate.triton.names import CALLABLE_BUILTINS, DTYPES, RESERVED
from pytest_passbench.candidate.triton.reference import KernelReference
from pytest_passbench.core.rejected import Rejected, kernel_refused


@dataclass(frozen=True)
class KernelText:
    """A checked function. Its text uses only ``tl``, ``triton``, ``libdevice``, ``math`` and ``functions``.

    ``functions`` are the other kernels that it uses, each after those that it uses itself. ``line`` is that of the
    definition in ``file``. ``types`` has what ``x: tl.int64`` declares. ``lines`` has lines of ``file``.
    """

    file: str
    line: int
    name: str
    source: str
    parameters: tuple[str, ...]
    constexprs: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    functions: tuple[KernelText, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)  # by parameter, if it declares one
    lines: Mapping[int, int] = field(default_factory=dict)  # of statements, by line of ``source``

    def to_json(self) -> dict[str, Any]:
        """Return the text as JSON-ready data, as ``runner.triton_kernels.make_kernel`` takes it."""
        functions = [_own_json(function) for function in self.functions]
        return {**_own_json(self), "constexprs": list(self.constexprs), "functions": functions}


def _own_json(text: KernelText) -> dict[str, Any]:
    return {"name": text.name, "source": text.source, "options": dict(text.options)}


def kernel_text(root: Path, reference: KernelReference) -> KernelText:
    """Return the checked text of a kernel and of the functions that it uses. ``root`` is the candidate's folder.

    Raises Rejected: with a ``rule`` if the text does what a kernel may not do, without one for a fault.
    """
    return _KernelReader(root, reference).text()


class _KernelReader:
    """A kernel with its functions. All definitions are found first, so that the names can be kept apart."""

    def __init__(self, root: Path, reference: KernelReference) -> None:
        self._root = root
        self._main = find_definition(root, reference)
        self._references = reference.functions
        self._others: dict[int, Definition] = {}
        self._missing: dict[int, Rejected] = {}
        self._names: dict[int, str] = {}
        self._used_names: set[str] = set(RESERVED | CALLABLE_BUILTINS)
        self._done: dict[int, KernelText] = {}
        self._open: list[int] = []

    def text(self) -> KernelText:
        for index, reference in enumerate(self._references):
            try:
                self._others[index] = find_definition(self._root, reference)
            except Rejected as refusal:
                self._missing[index] = refusal  # raised only if the text uses the function
        for definition in (self._main, *self._others.values()):
            self._used_names |= definition.local
        name = self._free_name(self._main.node.name)
        for index, definition in self._others.items():
            self._names[index] = self._free_name(definition.node.name)
        return replace(self._write(self._main, name), functions=tuple(self._done.values()))

    def _free_name(self, name: str) -> str:
        free, count = name, 1
        while free in self._used_names:
            count += 1
            free = f"{name}_{count}"
        self._used_names.add(free)
        return free

    def _emitted(self, index: int) -> str:
        """Return the name of another kernel, and write that kernel first if it is not written yet."""
        if index in self._missing:
            raise self._missing[index]
        if index in self._open:
            definition = self._others[index]
            raise kernel_refused("", "a Triton kernel may not call itself", definition.file, definition.node.lineno)
        if index not in self._done:
            self._open.append(index)
            text = self._write(self._others[index], self._names[index])
            self._open.pop()
            self._done[index] = text
        return self._names[index]

    def _write(self, source_definition: Definition, name: str) -> KernelText:
        definition, file = source_definition.node, source_definition.file
        check_name(file, definition.lineno, definition.name)
        for argument in source_definition.arguments:
            check_name(file, argument.lineno, argument.arg)
        constexprs = tuple(a.arg for a in source_definition.arguments if a.annotation and is_constexpr(a.annotation))
        body = Body(
            file, source_definition.reference.values, source_definition.local, self._emitted, frozenset(constexprs)
        )
        try:
            arguments, statements = _arguments(definition.args, body), body.statements(definition.body)
            function = ast.FunctionDef(name, arguments, statements, [], lineno=1)
            source = ast.unparse(ast.fix_missing_locations(function)) + "\n"
            lines = _lines(function, source)
        except RecursionError:
            raise kernel_refused("", "a Triton kernel nests too deeply", file, definition.lineno) from None
        parameters = tuple(argument.arg for argument in source_definition.arguments)
        types = {item.arg: item.annotation.attr for item in all_arguments(arguments) if _is_type(item.annotation)}
        options = source_definition.options
        return KernelText(
            file, definition.lineno, name, source, parameters, constexprs, options, types=types, lines=lines
        )


def _is_type(annotation: ast.expr | None) -> TypeGuard[ast.Attribute]:
    return isinstance(annotation, ast.Attribute) and annotation.attr in DTYPES


def _lines(function: ast.FunctionDef, source: str) -> dict[int, int]:
    """Return the line in the candidate's file, for each line of ``source`` that begins a statement."""
    [written] = ast.parse(source).body
    new, old = ([node for node in ast.walk(tree) if isinstance(node, ast.stmt)] for tree in (written, function))
    return {now.lineno: before.lineno for now, before in zip(new[1:], old[1:], strict=True)}  # not the function


def _arguments(parameters: ast.arguments, body: Body) -> ast.arguments:
    if parameters.vararg or parameters.kwarg:
        argument = parameters.vararg or parameters.kwarg
        assert argument is not None
        raise kernel_refused("", "a Triton kernel may not take arguments by * or **", body.file, argument.lineno)
    return ast.arguments(
        posonlyargs=[_argument(item) for item in parameters.posonlyargs],
        args=[_argument(item) for item in parameters.args],
        kwonlyargs=[_argument(item) for item in parameters.kwonlyargs],
        kw_defaults=[None if item is None else _default(item, body) for item in parameters.kw_defaults],
        defaults=[_default(item, body) for item in parameters.defaults],
    )


def _argument(parameter: ast.arg) -> ast.arg:
    annotation = parameter.annotation
    if annotation is not None and is_constexpr(annotation):
        return ast.arg(parameter.arg, constexpr())
    if _is_type(annotation):  # tl.int64: the type to compile for
        return ast.arg(parameter.arg, ast.Attribute(ast.Name("tl", ast.Load()), annotation.attr, ast.Load()))
    return ast.arg(parameter.arg)


def _default(expression: ast.expr, body: Body) -> ast.expr:
    outside = Body(body.file, body.values, frozenset(), body.emitted)
    match expression:
        case ast.Constant() | ast.Name() | ast.Attribute() | ast.UnaryOp(ast.USub(), ast.Constant()):
            return outside.expression(expression, 0)
        case ast.Call(ast.Attribute(attr="constexpr"), [ast.Constant()], []):
            return outside.expression(expression, 0)
    raise kernel_refused(
        "", "a default value of a Triton kernel's parameter is not a literal", body.file, expression.lineno
    )
