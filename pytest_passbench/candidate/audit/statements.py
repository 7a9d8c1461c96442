"""Run a body of statements: names follow control flow, both branches of every choice are taken."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from pytest_passbench.candidate.audit import calls, containers, definitions, imports
from pytest_passbench.candidate.audit.expressions import assign_target, evaluate, operate, test
from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.values import MAYBE, NOTHING, SCALAR, Box, Const, Ext, Mark, Value, join


def run(frame: Frame, body: Sequence[ast.stmt]) -> bool:
    """Run ``body``; True if it never runs off its end."""
    for statement in body:
        handler = _HANDLERS.get(type(statement))
        if handler is None:
            frame.report("unresolved", statement, f"a {type(statement).__name__} statement")
        elif handler(frame, statement):
            return True
    return False


def _assign(frame: Frame, node: ast.Assign) -> None:
    value = evaluate(frame, node.value)
    for target in node.targets:
        assign_target(frame, target, value)
        _global_tensor(frame, target, value)


def _annotated(frame: Frame, node: ast.AnnAssign) -> None:
    annotation(frame, node.annotation)
    if node.value is not None:
        assign_target(frame, node.target, evaluate(frame, node.value))


def annotation(frame: Frame, node: ast.expr | None) -> None:
    """Annotations say types; only one that calls something is code."""
    if node is not None and any(isinstance(item, ast.Call) for item in ast.walk(node)):
        evaluate(frame, node)


def _global_tensor(frame: Frame, target: ast.expr, value: Value) -> None:
    is_global = isinstance(target, ast.Name) and frame.function and target.id in frame.function.globals
    if is_global and frame.mode == "code" and frame.holds_tensor(value):
        frame.report("cache", target, "a tensor kept in a global name")


def _augmented(frame: Frame, node: ast.AugAssign) -> None:
    old = evaluate(frame, _loaded(node.target))
    _counts(frame, node.target)
    _in_place(frame, node, old)
    value = operate(frame, node, node.op, old, evaluate(frame, node.value))
    assign_target(frame, node.target, value)


def _in_place(frame: Frame, node: ast.AugAssign, old: Value) -> None:
    """What a library hands to a callback may be a tensor, and then ``+=`` writes into it."""
    called = frame.function is not None and bool(frame.function.callers)
    if frame.strict and called and Mark.MAYBE in old and isinstance(node.target, ast.Name):
        frame.report("tensor-operator", node, "an operator in place on a value that may be a tensor")


def _loaded(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    return target


def _counts(frame: Frame, target: ast.expr) -> None:
    """State that changes from call to call lets a replacement tell one phase from another."""
    if frame.mode != "code" or frame.function is None:
        return
    if isinstance(target, ast.Name) and target.id in frame.function.globals:
        frame.report("state", target, f"global {target.id} changes from call to call")
    elif isinstance(target, ast.Subscript):
        owners = [a for a in evaluate(frame, target.value) if isinstance(a, Box)]
        if any(box.site not in frame.function_boxes for box in owners):
            frame.report("state", target, "an element that outlives the call changes from call to call")
    elif isinstance(target, ast.Attribute):
        frame.report("state", target, f"attribute {target.attr} changes from call to call")


def _expression(frame: Frame, node: ast.Expr) -> None:
    evaluate(frame, node.value)


def _return(frame: Frame, node: ast.Return) -> bool:
    value = evaluate(frame, node.value) if node.value is not None else frozenset({Const(None)})
    if frame.function is not None and not value <= frame.function.result:
        frame.function.result = join((frame.function.result, value))
        frame.program.changed = True
    return True


def _if(frame: Frame, node: ast.If) -> bool:
    if _is_script(node.test):
        return run(frame, node.orelse)
    test(frame, node.test)
    return _branches(frame, [node.body, node.orelse])


def _is_script(node: ast.expr) -> bool:
    """``if __name__ == "__main__"``: a runner imports, so this never runs."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and node.left.id == "__name__"
        and len(node.ops) == 1
        and isinstance(node.ops[0], ast.Eq)
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value == "__main__"
    )


def _branches(frame: Frame, bodies: Sequence[Sequence[ast.stmt]]) -> bool:
    before, after = frame.env, []
    for body in bodies:
        frame.env = dict(before)
        if not run(frame, body):
            after.append(frame.env)
    frame.env = _merged(after) if after else before
    return not after


def _merged(envs: list[dict[str, Value]]) -> dict[str, Value]:
    names = {name for env in envs for name in env}
    return {name: join([env.get(name, NOTHING) for env in envs]) for name in names}


def _loop(frame: Frame, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], start: Callable[[], None]) -> None:
    """Inside and after, a name that the body assigns is whatever it ever is: turns and breaks are not followed."""
    _forget(frame, body)
    start()
    run(frame, body)
    _forget(frame, body)
    run(frame, orelse)


def _forget(frame: Frame, body: Sequence[ast.stmt]) -> None:
    """Let go of what the names assigned in ``body`` hold here; what they ever hold stays known."""
    stored = {
        item.id
        for part in body
        for item in ast.walk(part)
        if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load)
    }
    for name in stored & frame.env.keys():
        frame.program.grow(frame.scope.names, name, frame.env.pop(name))


def _for(frame: Frame, node: ast.For | ast.AsyncFor) -> None:
    items = frame.elements(evaluate(frame, node.iter))
    _loop(frame, node.body, node.orelse, lambda: assign_target(frame, node.target, items))


def _while(frame: Frame, node: ast.While) -> None:
    _loop(frame, node.body, node.orelse, lambda: test(frame, node.test))


def _with(frame: Frame, node: ast.With | ast.AsyncWith) -> None:
    for item in node.items:
        value = evaluate(frame, item.context_expr)
        if item.optional_vars is not None:
            entered = frozenset(a for a in value if not isinstance(a, Ext | Mark)) or SCALAR
            held = MAYBE if Mark.MAYBE in value else entered | frame.elements(entered)
            assign_target(frame, item.optional_vars, held)
    run(frame, node.body)  # a context may swallow what its body raises, at any point
    _forget(frame, node.body)


def _try(frame: Frame, node: ast.Try) -> bool:
    ended = run(frame, [*node.body, *node.orelse])
    after = [] if ended else [dict(frame.env)]
    _forget(frame, node.body)
    during = frame.env
    for handler in node.handlers:
        frame.env = dict(during)
        evaluate(frame, handler.type)
        if handler.name:
            frame.assign(handler.name, MAYBE)
        if not run(frame, handler.body):
            after.append(frame.env)
    frame.env = _merged(after) if after else during
    return run(frame, node.finalbody) or not after


def _raise(frame: Frame, node: ast.Raise) -> bool:
    frame.raising = True
    evaluate(frame, node.exc)
    evaluate(frame, node.cause)
    frame.raising = False
    return True


def _assert(frame: Frame, node: ast.Assert) -> None:
    evaluate(frame, node.test)
    frame.raising = True
    evaluate(frame, node.msg)
    frame.raising = False


def _delete(frame: Frame, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Attribute):
            calls.set_attribute(frame, target, evaluate(frame, target.value), target.attr, NOTHING)
        elif isinstance(target, ast.Subscript):
            owner = evaluate(frame, target.value)
            containers.put(frame, target, owner, evaluate(frame, target.slice), NOTHING)
            for atom in owner:
                if isinstance(atom, Box):
                    containers.disorder(frame, atom)


def _global(frame: Frame, node: ast.Global) -> None:
    if frame.function is not None:
        frame.function.globals.update(node.names)


def _nonlocal(frame: Frame, node: ast.Nonlocal) -> None:
    if frame.function is not None:
        frame.function.nonlocals.update(node.names)


def _nothing(frame: Frame, node: ast.stmt) -> None:
    """``pass``; ``break`` and ``continue`` are read as if they went on."""


def _match(frame: Frame, node: ast.Match) -> bool:
    subject = evaluate(frame, node.subject)
    for case in node.cases:
        for item in ast.walk(case.pattern):
            name = getattr(item, "name", None) or getattr(item, "rest", None)
            if isinstance(name, str):
                frame.assign(name, join((subject, frame.elements(subject))))
            if isinstance(item, ast.MatchValue):
                evaluate(frame, item.value)
        evaluate(frame, case.guard)
    return _branches(frame, [*(case.body for case in node.cases), []])


_HANDLERS: dict[type[ast.stmt], Callable[[Frame, Any], bool | None]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Expr: _expression,
    ast.Return: _return,
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.Raise: _raise,
    ast.Assert: _assert,
    ast.Delete: _delete,
    ast.Global: _global,
    ast.Nonlocal: _nonlocal,
    ast.Pass: _nothing,
    ast.Break: _nothing,
    ast.Continue: _nothing,
    ast.Match: _match,
    ast.Import: imports.plain,
    ast.ImportFrom: imports.names,
    ast.FunctionDef: lambda frame, node: definitions.function(frame, node),
    ast.AsyncFunctionDef: lambda frame, node: definitions.function(frame, node),
    ast.ClassDef: lambda frame, node: definitions.class_(frame, node),
}
