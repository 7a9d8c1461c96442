"""A kernel's text, taken from the candidate's file by the judge's side: what a reader says of it is only where it is.

A patched ``inspect`` or ``linecache`` in the reader changes nothing here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from pytest_passbench.candidate.complexity import TooComplex
from pytest_passbench.candidate.syntax import parse
from pytest_passbench.candidate.triton.body import Body, check_name, constexpr, is_constexpr
from pytest_passbench.candidate.triton.names import CALLABLE_BUILTINS, DTYPES, RESERVED
from pytest_passbench.candidate.triton.reference import KernelReference
from pytest_passbench.candidate.triton.refusal import KernelRefusal

_FROM_FILES = "; a Triton kernel's text is read from the candidate's files"
_LITERAL_OPTIONS = frozenset({"noinline", "do_not_specialize", "do_not_specialize_on_alignment"})


@dataclass(frozen=True)
class KernelText:
    """A checked function: its text needs nothing but ``tl``, ``triton``, ``libdevice``, ``math`` and ``functions``.

    ``functions`` are the other kernels that it uses, each after those that it uses itself.
    """

    file: str
    line: int
    name: str
    source: str
    parameters: tuple[str, ...]
    constexprs: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    functions: tuple[KernelText, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)  # of parameters that say one: ``x: tl.int64``
    lines: Mapping[int, int] = field(default_factory=dict)  # of statements: in ``source``, in ``file``

    def to_json(self) -> dict[str, Any]:
        """What the executing side's ``make_kernel`` takes."""
        functions = [_own_json(function) for function in self.functions]
        return {**_own_json(self), "constexprs": list(self.constexprs), "functions": functions}


def _own_json(text: KernelText) -> dict[str, Any]:
    return {"name": text.name, "source": text.source, "options": dict(text.options)}


def kernel_text(root: Path, reference: KernelReference) -> KernelText:
    """Find, check and normalise the text of a kernel and of the functions that it uses.

    Raises KernelRefusal: with a ``rule`` if the text does what a kernel may not, without one if it is not there.
    """
    return _Kernel(root, reference).text()


class _Kernel:
    """One kernel with its functions: their definitions are found first, since names have to be told apart."""

    def __init__(self, root: Path, reference: KernelReference) -> None:
        self._root = root
        self._main = _Found(reference, self._definition(reference))
        self._references = reference.functions
        self._others: dict[int, _Found] = {}
        self._missing: dict[int, KernelRefusal] = {}
        self._names: dict[int, str] = {}
        self._taken: set[str] = set(RESERVED | CALLABLE_BUILTINS)
        self._done: dict[int, KernelText] = {}
        self._open: list[int] = []

    def text(self) -> KernelText:
        for index, reference in enumerate(self._references):
            try:
                self._others[index] = _Found(reference, self._definition(reference))
            except KernelRefusal as refusal:
                self._missing[index] = refusal  # of no matter unless the text uses it
        for found in (self._main, *self._others.values()):
            self._taken |= found.local
        name = self._free_name(self._main.definition.name)
        for index, found in self._others.items():
            self._names[index] = self._free_name(found.definition.name)
        return replace(self._write(self._main, name), functions=tuple(self._done.values()))

    def _free_name(self, name: str) -> str:
        chosen, count = name, 1
        while chosen in self._taken:
            count += 1
            chosen = f"{name}_{count}"
        self._taken.add(chosen)
        return chosen

    def _emitted(self, index: int) -> str:
        """The name of another kernel, which is written first."""
        if index in self._missing:
            raise self._missing[index]
        if index in self._open:
            found = self._others[index]
            raise KernelRefusal(found.file, found.definition.lineno, "a Triton kernel may not call itself")
        if index not in self._done:
            self._open.append(index)
            text = self._write(self._others[index], self._names[index])
            self._open.pop()
            self._done[index] = text
        return self._names[index]

    def _write(self, found: _Found, name: str) -> KernelText:
        definition, file = found.definition, found.file
        check_name(file, definition.lineno, definition.name)
        for argument in found.arguments:
            check_name(file, argument.lineno, argument.arg)
        constexprs = tuple(a.arg for a in found.arguments if a.annotation and is_constexpr(a.annotation))
        body = Body(file, found.reference.values, found.local, self._emitted, frozenset(constexprs))
        try:
            arguments, statements = _arguments(definition.args, body), body.statements(definition.body)
            made = ast.FunctionDef(name, arguments, statements, [], lineno=1)
            source = ast.unparse(ast.fix_missing_locations(made)) + "\n"
            lines = _lines(made, source)
        except RecursionError:
            raise KernelRefusal(file, definition.lineno, "a Triton kernel nests too deeply") from None
        parameters = tuple(argument.arg for argument in found.arguments)
        types = {item.arg: item.annotation.attr for item in _all(arguments) if _is_type(item.annotation)}
        return KernelText(
            file, definition.lineno, name, source, parameters, constexprs, found.options, types=types, lines=lines
        )

    def _definition(self, reference: KernelReference) -> ast.FunctionDef:
        """The definition of that name whose lines, decorators included, begin with the one given."""
        name = reference.name.rpartition(".")[2]
        for node in ast.walk(self._parse(reference)):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
                if first <= reference.line <= node.lineno:
                    return node
        raise _fault(reference, f"there is no function {name} here{_FROM_FILES}")

    def _parse(self, reference: KernelReference) -> ast.Module:
        path = self._root / reference.file
        try:
            if not path.resolve(strict=True).is_relative_to(self._root.resolve()) or not path.is_file():
                raise _fault(reference, f"no file of the candidate{_FROM_FILES}")
            return parse(path)
        except TooComplex as error:
            raise KernelRefusal(reference.file, error.line, str(error)) from None
        except SyntaxError as error:
            raise KernelRefusal(reference.file, error.lineno or 1, f"syntax error: {error.msg}") from None
        except (ValueError, OSError, RuntimeError) as error:
            problem = error.strerror if isinstance(error, OSError) else error
            raise _fault(reference, f"cannot be read: {problem}") from None


@dataclass(frozen=True)
class _Found:
    """A function's reference together with its definition."""

    reference: KernelReference
    definition: ast.FunctionDef

    @property
    def file(self) -> str:
        return self.reference.file

    @property
    def arguments(self) -> list[ast.arg]:
        return _all(self.definition.args)

    @cached_property
    def local(self) -> frozenset[str]:
        """All names that the function binds."""
        bound = {argument.arg for argument in self.arguments}
        for statement in self.definition.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    bound.add(node.id)
        return frozenset(bound)

    @property
    def options(self) -> dict[str, Any]:
        """What ``triton.jit(...)`` is told about specialising. Refuses a function that is decorated otherwise."""
        decorators = self.definition.decorator_list
        jits = [item for item in decorators if _last_name(item) == "jit"]
        if decorators and not jits:
            line, shown = decorators[0].lineno, _last_name(decorators[0])
            message = f"{self.definition.name} is decorated with {shown}, not triton.jit"
            raise KernelRefusal(self.file, line, message)
        return dict(_options(jits))


def _all(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _is_type(annotation: ast.expr | None) -> TypeGuard[ast.Attribute]:
    return isinstance(annotation, ast.Attribute) and annotation.attr in DTYPES


def _lines(made: ast.FunctionDef, source: str) -> dict[int, int]:
    """Return the line in the candidate's file of each line of ``source`` that begins a statement."""
    [written] = ast.parse(source).body
    new, old = ([node for node in ast.walk(tree) if isinstance(node, ast.stmt)] for tree in (written, made))
    return {now.lineno: before.lineno for now, before in zip(new[1:], old[1:], strict=True)}  # without the function


def _last_name(node: ast.expr) -> str:
    inner = node.func if isinstance(node, ast.Call) else node
    return inner.attr if isinstance(inner, ast.Attribute) else inner.id if isinstance(inner, ast.Name) else "?"


def _options(decorators: list[ast.expr]) -> Iterator[tuple[str, Any]]:
    for decorator in decorators:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else []:
            match keyword.arg, keyword.value:
                case "noinline", ast.Constant(bool() as value):
                    yield keyword.arg, value
                case (str() as option), ast.List(items) | ast.Tuple(items) if option in _LITERAL_OPTIONS:
                    constants = [item.value for item in items if isinstance(item, ast.Constant)]
                    yield option, [item for item in constants if type(item) in (int, str)]


def _arguments(found: ast.arguments, body: Body) -> ast.arguments:
    if found.vararg or found.kwarg:
        argument = found.vararg or found.kwarg
        assert argument is not None
        raise KernelRefusal(body.file, argument.lineno, "a Triton kernel may not take arguments by * or **")
    return ast.arguments(
        posonlyargs=[_argument(item) for item in found.posonlyargs],
        args=[_argument(item) for item in found.args],
        kwonlyargs=[_argument(item) for item in found.kwonlyargs],
        kw_defaults=[None if item is None else _default(item, body) for item in found.kw_defaults],
        defaults=[_default(item, body) for item in found.defaults],
    )


def _argument(found: ast.arg) -> ast.arg:
    annotation = found.annotation
    if annotation is not None and is_constexpr(annotation):
        return ast.arg(found.arg, constexpr())
    if _is_type(annotation):  # tl.int64: the type to compile for
        return ast.arg(found.arg, ast.Attribute(ast.Name("tl", ast.Load()), annotation.attr, ast.Load()))
    return ast.arg(found.arg)


def _default(found: ast.expr, body: Body) -> ast.expr:
    outside = Body(body.file, body.values, frozenset(), body.emitted)
    match found:
        case ast.Constant() | ast.Name() | ast.Attribute() | ast.UnaryOp(ast.USub(), ast.Constant()):
            return outside.expression(found, 0)
        case ast.Call(ast.Attribute(attr="constexpr"), [ast.Constant()], []):
            return outside.expression(found, 0)
    raise KernelRefusal(body.file, found.lineno, "a default value of a Triton kernel's parameter is not a literal")


def _fault(reference: KernelReference, message: str) -> KernelRefusal:
    return KernelRefusal(reference.file, reference.line, message)
