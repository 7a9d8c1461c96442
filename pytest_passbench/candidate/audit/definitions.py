"""Function and class definitions: decorators, special methods, bases."""

from __future__ import annotations

import ast

from pytest_passbench.candidate.audit import calls, expressions, statements, tables
from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.program import Class, Function, Program, Scope
from pytest_passbench.candidate.audit.values import (
    MAYBE,
    NOTHING,
    ClassRef,
    Ext,
    Instance,
    Value,
)

_PLAIN_BASES = ("typing.", "enum.", "abc.", "builtins.object", "typing_extensions.")


def function(frame: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """``def``: bind the name to what the decorators make of the function."""
    value = expressions.function_value(frame, node)
    made = frame.program.function(node, frame.module, frame.scope)
    if node.name == "pattern" and frame.function is None and frame.scope is frame.module.scope:
        made.is_pattern = True
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    for item in (*(arg.annotation for arg in arguments), node.returns):
        statements.annotation(frame, item)
    frame.assign(node.name, _decorated(frame, node, value))


def _decorated(frame: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, value: Value) -> Value:
    for decorator in reversed(node.decorator_list):
        wrapper = expressions.evaluate(frame, decorator)
        stand_in = ast.copy_location(ast.Call(decorator, [], []), decorator)
        site = frame.program.stand_ins.setdefault(id(decorator), stand_in)
        value = calls.apply(frame, site, wrapper, calls.Arguments([value], {}))
    return value


def class_(frame: Frame, node: ast.ClassDef) -> None:
    """``class``: its body runs here; its methods are run like functions, with an instance."""
    kind = frame.program.classes.get(id(node))
    if kind is None:
        kind = Class(id(node), node, frame.module, Scope(frame.scope))
        frame.program.classes[id(node)] = kind
    _bases(frame, node, kind)
    for item in node.body:
        name = item.name if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) else ""
        if name.startswith("__") and name.endswith("__") and name not in tables.DUNDER_METHODS:
            frame.report("special-method", item, f"method {name}")
    inner = Frame(frame.program, frame.module, kind.scope, frame.mode, None)
    statements.run(inner, node.body)
    frame.program.attribute_names.update(kind.scope.names)
    _give_self(frame, node, kind)
    frame.assign(node.name, _decorated(frame, node, frozenset({ClassRef(kind.key)})))


def assigned_inside(program: Program, node: ast.AST) -> frozenset[str]:
    """Names that functions inside ``node`` declare ``nonlocal`` or ``global``; looked for once."""
    if id(node) not in program.assigned_inside:
        program.assigned_inside[id(node)] = _assigned_inside(node)
    return program.assigned_inside[id(node)]


def _assigned_inside(node: ast.AST) -> frozenset[str]:
    return frozenset(
        name
        for item in ast.walk(node)
        if isinstance(item, ast.Nonlocal | ast.Global) and item not in getattr(node, "body", [])
        for name in item.names
    )


def _bases(frame: Frame, node: ast.ClassDef, kind: Class) -> None:
    for keyword in node.keywords:
        expressions.evaluate(frame, keyword.value)
        frame.report("special-method", node, f"class keyword {keyword.arg or '**'}")
    for base in node.bases:
        for atom in expressions.evaluate(frame, base):
            if isinstance(atom, ClassRef):
                for name, value in frame.program.classes[atom.key].scope.names.items():
                    frame.program.grow(kind.scope.names, name, value)
            elif isinstance(atom, Ext) and not atom.path.startswith(_PLAIN_BASES):
                _foreign_base(frame, node, atom.path)


def _foreign_base(frame: Frame, node: ast.ClassDef, path: str) -> None:
    name = path.removeprefix("builtins.")
    if path.startswith("builtins.") and (name.endswith(("Error", "Warning")) or name == "Exception"):
        return
    frame.report("tensor-class" if path.startswith("torch.") else "special-method", node, f"a class of {path}")


def _give_self(frame: Frame, node: ast.ClassDef, kind: Class) -> None:
    """The first parameter of a method is an instance, however it is called."""
    for item in node.body:
        known = frame.program.by_node.get(id(item))
        if known is None or not isinstance(item, ast.FunctionDef):
            continue
        first = (*item.args.posonlyargs, *item.args.args)[:1]
        for arg in first:
            frame.program.grow(known.params, arg.arg, frozenset({Instance(kind.key)}))


def body(frame: Frame, made: Function) -> None:
    """Run a function's body with what its parameters may be."""
    node = made.node
    frame.weak = assigned_inside(frame.program, node)
    for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        value = made.params.get(arg.arg, NOTHING)
        frame.assign(arg.arg, value if value or made.callers or not frame.program.settled else MAYBE)
    for extra, kind in ((node.args.vararg, "list"), (node.args.kwarg, "rest")):
        if extra is not None:
            unknown = NOTHING if made.callers or not frame.program.settled else MAYBE
            held = made.params.get(extra.arg, unknown)
            box = frame.program.box(extra, kind, {"*": held})
            frame.function_boxes.update(atom.site for atom in box)  # type: ignore[union-attr]
            frame.env[extra.arg] = box
            frame.program.grow(made.scope.names, extra.arg, box)
    if isinstance(node, ast.Lambda):
        result = expressions.evaluate(frame, node.body)
        frame.program.changed = frame.program.changed or not result <= made.result
        made.result |= result
    else:
        statements.run(frame, node.body)
