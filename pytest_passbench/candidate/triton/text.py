"""A kernel's text and the options of its launches, checked.

The text is read from the candidate's file on the judge's side. A reader states only its place, so a patched
``inspect`` or ``linecache`` in the reader changes nothing. Options are numbers and switches for the compiler: none
brings code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from pytest_passbench.candidate.syntax import parse
from pytest_passbench.candidate.triton.body import Body, check_name, constexpr, is_constexpr
from pytest_passbench.candidate.triton.names import CALLABLE_BUILTINS, DTYPES, RESERVED
from pytest_passbench.candidate.triton.reference import KernelReference
from pytest_passbench.core.complexity import TooComplex
from pytest_passbench.core.rejected import Rejected, kernel_refused

_FROM_FILES = "; a Triton kernel's text is read from the candidate's files"
_LITERAL_OPTIONS = frozenset({"do_not_specialize", "do_not_specialize_on_alignment"})
_RANGES = {  # of the options that are numbers
    "num_warps": (1, 64),
    "num_stages": (0, 64),
    "num_ctas": (1, 64),
    "maxnreg": (1, 1024),
    "waves_per_eu": (0, 64),
    "matrix_instr_nonkdim": (0, 64),
    "kpack": (1, 8),
}
_SWITCHES = frozenset({"enable_fp_fusion", "launch_cooperative_grid", "launch_pdl"})


@dataclass(frozen=True)
class Definition:
    """A function's reference, with the definition that it refers to."""

    reference: KernelReference
    node: ast.FunctionDef

    @property
    def file(self) -> str:
        """The file, relative to the candidate's folder."""
        return self.reference.file

    @property
    def arguments(self) -> list[ast.arg]:
        """The parameters, in order."""
        return all_arguments(self.node.args)

    @cached_property
    def local(self) -> frozenset[str]:
        """The names that the function binds."""
        bound = {argument.arg for argument in self.arguments}
        for statement in self.node.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    bound.add(node.id)
        return frozenset(bound)

    @property
    def options(self) -> dict[str, Any]:
        """The options of ``triton.jit(...)`` that change code. Raises Rejected if all decorators are other ones."""
        decorators = self.node.decorator_list
        jits = [item for item in decorators if _last_name(item) == "jit"]
        if decorators and not jits:
            line, decorator_name = decorators[0].lineno, _last_name(decorators[0])
            message = f"{self.node.name} is decorated with {decorator_name}, not triton.jit"
            raise kernel_refused("", message, self.file, line)
        return dict(_options(jits))


def find_definition(root: Path, reference: KernelReference) -> Definition:
    """Return the definition that a reference states, by its name and first line, decorators included.

    ``root`` is the candidate's folder. Raises Rejected, as a fault, if the definition is not there.
    """
    name = reference.name.rpartition(".")[2]
    for node in ast.walk(_parse(root, reference)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            if first <= reference.line <= node.lineno:
                return Definition(reference, node)
    raise _fault(reference, f"there is no function {name} here{_FROM_FILES}")


def _parse(root: Path, reference: KernelReference) -> ast.Module:
    path = root / reference.file
    try:
        if not path.resolve(strict=True).is_relative_to(root.resolve()) or not path.is_file():
            raise _fault(reference, f"no file of the candidate{_FROM_FILES}")
        return parse(path)
    except TooComplex as error:
        raise kernel_refused("", str(error), reference.file, error.line) from None
    except SyntaxError as error:
        raise kernel_refused("", f"syntax error: {error.msg}", reference.file, error.lineno or 1) from None
    except (ValueError, OSError, RuntimeError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise _fault(reference, f"cannot be read: {problem}") from None


def all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    """Return the parameters of a function, in order. Those by * and ** are left out."""
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _last_name(node: ast.expr) -> str:
    inner = node.func if isinstance(node, ast.Call) else node
    return inner.attr if isinstance(inner, ast.Attribute) else inner.id if isinstance(inner, ast.Name) else "?"


def _options(decorators: list[ast.expr]) -> Iterator[tuple[str, Any]]:
    for decorator in decorators:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else []:
            match keyword.arg, keyword.value:
                case ["noinline", ast.Constant(bool() as value)]:
                    yield keyword.arg, value
                case ((str() as option), ast.List(items) | ast.Tuple(items)) if option in _LITERAL_OPTIONS:
                    constants = [item.value for item in items if isinstance(item, ast.Constant)]
                    yield option, [item for item in constants if type(item) in (int, str)]


def _fault(reference: KernelReference, message: str) -> Rejected:
    return kernel_refused("", message, reference.file, reference.line)


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
        functions = [function.to_json() for function in self.functions]
        return {"name": self.name, "source": self.source, "options": dict(self.options), "functions": functions}


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
    if argument := parameters.vararg or parameters.kwarg:
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


def check_options(options: Mapping[str, object]) -> dict[str, int | bool]:
    """Return the options of a launch, without those that are None.

    Raises ValueError, with the option's name, for one that is not allowed (an external library) or out of range.
    """
    checked: dict[str, int | bool] = {}
    for name, value in options.items():
        if value is None and name in ("maxnreg", *_SWITCHES):
            continue
        if name in _SWITCHES:
            if type(value) is not bool:
                raise ValueError(f"the launch option {name} is True or False")
            checked[name] = value
        elif name in _RANGES:
            low, high = _RANGES[name]
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"the launch option {name} is a whole number from {low} to {high}")
            checked[name] = value
        else:
            raise ValueError(f"a Triton launch may not have the option {name!r:.40}")
    return checked
