"""Functions that are one expression are evaluated where they are called, with what they get there.

``def same(f): return f`` handed two functions would otherwise give either one back to both callers, and an
honest pass would be accused of calling the wrong one.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.program import Function
from pytest_passbench.candidate.audit.values import NOTHING, Value, join

if TYPE_CHECKING:
    from pytest_passbench.candidate.audit.calls import Arguments

_DEEPEST = 6


def can(frame: Frame, function: Function) -> bool:
    """Is ``function`` one expression of plain parameters, and are we not too deep in such already?"""
    spec = function.node.args
    plain = not (spec.vararg or spec.kwarg or function.kernel or function.generator or function.is_pattern)
    return plain and frame.mode != "pattern" and frame.depth < _DEEPEST and _expression(function) is not None


def _expression(function: Function) -> ast.expr | None:
    node = function.node
    if isinstance(node, ast.Lambda):
        return node.body
    body = [part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
    only = body[0] if len(body) == 1 else None
    return only.value if isinstance(only, ast.Return) else None


def run(frame: Frame, function: Function, given: Arguments) -> Value:
    """The value of the call; the function's own body is then not looked at for this call."""
    from pytest_passbench.candidate.audit import expressions

    frame.program.called(function, frame.mode)
    inner = Frame(frame.program, function.module, function.scope, frame.mode, function, depth=frame.depth + 1)
    inner.function_boxes, inner.raising = frame.function_boxes, frame.raising
    spec = function.node.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
    for name in (*names, *(arg.arg for arg in spec.kwonlyargs)):
        inner.env[name] = function.params.get(name, NOTHING)
    for name, value in (*zip(names, given.args, strict=False), *given.named.items()):
        inner.env[name] = value
    for name in names if given.rest else ():
        inner.env[name] = join((inner.env[name], given.rest))
    _let_inner_functions_see(inner)
    return expressions.evaluate(inner, _expression(function))


def _let_inner_functions_see(inner: Frame) -> None:
    """Lambdas inside read the parameters later, whatever this call has made of them."""
    for name, value in inner.env.items():
        inner.program.grow(inner.scope.names, name, value)
