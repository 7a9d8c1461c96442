"""Evaluate an expression to the set of things it may be, reporting what may not be said on the way."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from pytest_passbench.candidate.audit import calls, containers, fold, tables
from pytest_passbench.candidate.audit.attributes import attribute
from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.program import REST
from pytest_passbench.candidate.audit.values import (
    MAYBE,
    NOTHING,
    SCALAR,
    TENSOR,
    TEXT,
    Atom,
    Box,
    Const,
    Ext,
    FuncRef,
    Mark,
    OwnPath,
    Value,
    const,
    join,
)


def evaluate(frame: Frame, node: ast.AST | None) -> Value:
    """What ``node`` may be. Every part of it is looked at, whatever it is worth."""
    if node is None:
        return NOTHING
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        return handler(frame, node)
    for child in ast.iter_child_nodes(node):
        evaluate(frame, child)
    return MAYBE


def _constant(frame: Frame, node: ast.Constant) -> Value:
    if isinstance(node.value, bytes) and len(node.value) > 512:
        frame.report("opaque-data", node, f"{len(node.value)} bytes of data")
    return const(node.value) if not isinstance(node.value, complex) else SCALAR


def _name(frame: Frame, node: ast.Name) -> Value:
    return frame.mention(node, _bare_name(frame, node))


def _bare_name(frame: Frame, node: ast.Name) -> Value:
    name = node.id
    if name.startswith("__") and name.endswith("__") and name not in tables.DUNDER_NAMES:
        frame.report("dunder", node, f"name {name}")
        return NOTHING
    if name == "__file__":
        return frozenset({OwnPath((frame.module.path.name,))})
    value = frame.look_up(name)
    if value is None:
        frame.report("undefined", node, f"name {name}")
        return NOTHING
    return value


def _attribute(frame: Frame, node: ast.Attribute) -> Value:
    return frame.mention(node, _bare_attribute(frame, node))


def _bare_attribute(frame: Frame, node: ast.Attribute) -> Value:
    """An attribute chain is judged as a whole: ``torch.nn.functional`` alone does nothing."""
    if isinstance(node.value, ast.Name):
        owner = _bare_name(frame, node.value)
    elif isinstance(node.value, ast.Attribute):
        owner = _bare_attribute(frame, node.value)
    else:
        owner = evaluate(frame, node.value)
    return attribute(frame, node, owner, node.attr)


def _sequence(frame: Frame, node: ast.Tuple | ast.List | ast.Set) -> Value:
    items: dict[Atom | str, Value] = {}
    starred = False
    for position, item in enumerate(node.elts):
        if isinstance(item, ast.Starred):
            starred = True
            items[REST] = join((items.get(REST, NOTHING), frame.elements(evaluate(frame, item.value))))
        else:
            key: Atom | str = REST if starred else Const(position)
            items[key] = join((items.get(key, NOTHING), evaluate(frame, item)))
    return _boxed(frame, node, "tuple" if isinstance(node, ast.Tuple) else "list", items)


def _boxed(frame: Frame, node: ast.AST, kind: str, items: dict[Atom | str, Value]) -> Value:
    value = frame.program.box(node, kind, items)
    frame.function_boxes.update(atom.site for atom in value if isinstance(atom, Box))
    return value


def _dict(frame: Frame, node: ast.Dict) -> Value:
    items: dict[Atom | str, Value] = {}
    for key, item in zip(node.keys, node.values, strict=True):
        value = evaluate(frame, item)
        names = evaluate(frame, key) if key is not None else NOTHING
        known = [a for a in names if isinstance(a, Const | Ext)]
        if key is None:
            value = join([frame.program.contents(a) for a in value if isinstance(a, Box)])
        for place in known if known and len(known) == len(names) else [REST]:
            items[place] = join((items.get(place, NOTHING), value))
    return _boxed(frame, node, "dict", items)


def _comprehension(frame: Frame, node: Any) -> Value:
    inner = Frame(frame.program, frame.module, frame.scope, frame.mode, frame.function, dict(frame.env))
    inner.function_boxes = frame.function_boxes
    for generator in node.generators:
        assign_target(inner, generator.target, frame.elements(evaluate(inner, generator.iter)))
        for test in generator.ifs:
            evaluate(inner, test)
    if isinstance(node, ast.DictComp):
        evaluate(inner, node.key)
        return _boxed(frame, node, "dict", {REST: evaluate(inner, node.value)})
    return _boxed(frame, node, "list", {REST: evaluate(inner, node.elt)})


def _binary(frame: Frame, node: ast.BinOp) -> Value:
    left, right = evaluate(frame, node.left), evaluate(frame, node.right)
    return operate(frame, node, node.op, left, right)


def operate(frame: Frame, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
    """``left op right``; on tensors that is a torch call."""
    both = left | right
    if isinstance(op, ast.Mod) and any(map(fold.is_text, left)):
        return _percent(frame, left, right)
    if Mark.TENSOR in both or (isinstance(op, ast.MatMult) and Mark.MAYBE in both):
        if frame.strict:
            frame.report("tensor-operator", node, f"operator {type(op).__name__} on a tensor")
        return TENSOR
    if any(isinstance(atom, Box) for atom in both):
        items = [frame.program.contents(atom) for atom in both if isinstance(atom, Box)]
        return _boxed(frame, node, "list", {REST: join(items)})
    if any(isinstance(atom, OwnPath) for atom in left):
        return join([_below(atom, right) for atom in left if isinstance(atom, OwnPath)])
    if Mark.MAYBE in both:
        return MAYBE
    marked = frozenset({Mark.ADDRESS}) & both
    plain = frozenset({Mark.ADDRESS})
    return fold.binary(op, left - plain, right - plain) | marked


def _below(path: OwnPath, right: Value) -> Value:
    names = [a.value for a in right if isinstance(a, Const) and isinstance(a.value, str)]
    return frozenset({OwnPath((*path.parts, *name.split("/"))) for name in names}) or TEXT


def _percent(frame: Frame, left: Value, right: Value) -> Value:
    inner = join([frame.program.contents(a) if isinstance(a, Box) else frozenset({a}) for a in right])
    if frame.strict and frame.holds_tensor(inner):
        return TEXT
    values = [a.value for a in inner if isinstance(a, Const)]
    if len(values) == len(inner) == 1 and not any(isinstance(a, Box) for a in right):
        return fold.binary(ast.Mod(), left, right)
    ordered = _in_order(frame, right)
    texts = [a.value for a in left if isinstance(a, Const) and isinstance(a.value, str)]
    if ordered is None or len(texts) != len(left):
        return TEXT
    try:
        return frozenset({Const(text % ordered) for text in texts if len(text) < 10_000})
    except (TypeError, ValueError):
        return TEXT


def _in_order(frame: Frame, value: Value) -> tuple[object, ...] | None:
    """The constants of the one tuple that ``value`` is."""
    (atom,) = value if len(value) == 1 else (None,)
    contents = frame.program.heap.get(atom.site, {}) if isinstance(atom, Box) else {}
    parts = [contents.get(Const(i), NOTHING) for i in range(len(contents))]
    if not parts or any(len(part) != 1 or not isinstance(next(iter(part)), Const) for part in parts):
        return None
    return tuple(a.value for part in parts for a in part if isinstance(a, Const))


def _unary(frame: Frame, node: ast.UnaryOp) -> Value:
    value = evaluate(frame, node.operand)
    if Mark.TENSOR in value:
        if frame.strict:
            frame.report("tensor-operator", node, f"operator {type(node.op).__name__} on a tensor")
        return TENSOR
    known = [a.value for a in value if isinstance(a, Const) and isinstance(a.value, int | float)]
    if isinstance(node.op, ast.USub) and known and len(known) == len(value):
        return join([const(-v) for v in known])
    return MAYBE if Mark.MAYBE in value and not isinstance(node.op, ast.Not) else SCALAR


def _compare(frame: Frame, node: ast.Compare) -> Value:
    values = [evaluate(frame, item) for item in (node.left, *node.comparators)]
    by_identity = all(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops)
    if not by_identity and frame.strict and any(Mark.TENSOR in value for value in values):
        frame.report("tensor-operator", node, "comparing a tensor")
    return SCALAR


def _boolean(frame: Frame, node: ast.BoolOp) -> Value:
    return join([evaluate(frame, item) for item in node.values])


def _choice(frame: Frame, node: ast.IfExp) -> Value:
    test(frame, node.test)
    return join((evaluate(frame, node.body), evaluate(frame, node.orelse)))


def test(frame: Frame, node: ast.expr) -> None:
    """A condition: a tensor in it would be read."""
    if evaluate(frame, node) == TENSOR and frame.strict:
        frame.report("reads-values", node, "a tensor as a condition")


def _lambda(frame: Frame, node: ast.Lambda) -> Value:
    return function_value(frame, node)


def function_value(frame: Frame, node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) -> Value:
    """The function that ``node`` makes; defaults are evaluated here and now."""
    function = frame.program.function(node, frame.module, frame.scope)
    spec = node.args
    positional = [*spec.posonlyargs, *spec.args]
    for arg, default in zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True):
        frame.program.grow(function.params, arg.arg, evaluate(frame, default))
    for arg, maybe in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        frame.program.grow(function.params, arg.arg, evaluate(frame, maybe))
    return frozenset({FuncRef(function.key)})


def _formatted(frame: Frame, node: ast.JoinedStr) -> Value:
    parts, marks = [], NOTHING
    for item in node.values:
        value = evaluate(frame, item.value if isinstance(item, ast.FormattedValue) else item)
        if isinstance(item, ast.FormattedValue) and not frame.raising:
            frame.refuse_tensors(node, "a tensor in a string", value, rule="reads-values")
        marks |= frozenset({Mark.ADDRESS}) & value
        if isinstance(item, ast.FormattedValue):
            evaluate(frame, item.format_spec)
        styled = isinstance(item, ast.FormattedValue) and item.format_spec is not None
        parts.append(TEXT if styled and any(map(fold.is_text, value)) else value - frozenset({Mark.ADDRESS}))
    return fold.concatenate(parts) | marks


def _subscript(frame: Frame, node: ast.Subscript) -> Value:
    owner, index = evaluate(frame, node.value), evaluate(frame, node.slice)
    return containers.subscript(frame, node, owner, index)


def _slice(frame: Frame, node: ast.Slice) -> Value:
    for part in (node.lower, node.upper, node.step):
        evaluate(frame, part)
    return SCALAR


def _named(frame: Frame, node: ast.NamedExpr) -> Value:
    value = evaluate(frame, node.value)
    assign_target(frame, node.target, value)
    return value


def _yield(frame: Frame, node: ast.Yield | ast.YieldFrom) -> Value:
    value = evaluate(frame, node.value)
    if frame.function is not None:
        given = value if isinstance(node, ast.Yield) else frame.elements(value)
        box = frame.program.box(frame.function.node, "generator", {REST: given})
        frame.function.result |= box
    return MAYBE


def _starred(frame: Frame, node: ast.Starred) -> Value:
    return frame.elements(evaluate(frame, node.value))


def assign_target(frame: Frame, target: ast.AST, value: Value) -> None:
    """``target = value`` for every form a target can have."""
    if isinstance(target, ast.Name):
        plain = target.id in ("__all__", "__version__", "__author__", "__doc__")
        if target.id.startswith("__") and target.id.endswith("__") and not plain:
            frame.report("dunder", target, f"assigning {target.id}")
        frame.assign(target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(frame, target, value)
    elif isinstance(target, ast.Starred):
        assign_target(frame, target.value, _boxed(frame, target, "list", {REST: value}))
    elif isinstance(target, ast.Subscript):
        owner = evaluate(frame, target.value)
        containers.put(frame, target, owner, evaluate(frame, target.slice), value)
    elif isinstance(target, ast.Attribute):
        calls.set_attribute(frame, target, evaluate(frame, target.value), target.attr, value)


def _unpack(frame: Frame, target: ast.Tuple | ast.List, value: Value) -> None:
    starred = any(isinstance(item, ast.Starred) for item in target.elts)
    boxes = [a for a in value if isinstance(a, Box) and a.site[1] != "dict"]
    others = frame.elements(frozenset(a for a in value if a not in boxes))
    for position, item in enumerate(target.elts):
        index = NOTHING if starred else const(position)
        parts = [containers.item_of_box(frame, box, index) for box in boxes]
        assign_target(frame, item, join([others, *parts]))


_HANDLERS: dict[type[ast.AST], Callable[[Frame, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Set: _sequence,
    ast.Dict: _dict,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.IfExp: _choice,
    ast.Lambda: _lambda,
    ast.JoinedStr: _formatted,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.NamedExpr: _named,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Starred: _starred,
    ast.Call: lambda frame, node: calls.call(frame, node, evaluate),
}
