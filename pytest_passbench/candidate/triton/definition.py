"""The definition of a kernel in the candidate's files, found by a reference."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_passbench.candidate.syntax import parse
from pytest_passbench.candidate.triton.reference import KernelReference
from pytest_passbench.core.complexity import TooComplex
from pytest_passbench.core.rejected import Rejected, kernel_refused

_FROM_FILES = "; a Triton kernel's text is read from the candidate's files"
_LITERAL_OPTIONS = frozenset({"do_not_specialize", "do_not_specialize_on_alignment"})


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
        """The options of ``triton.jit(...)`` for specialising. Raises Rejected for other decorators."""
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
