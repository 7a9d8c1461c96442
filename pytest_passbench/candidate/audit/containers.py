"""Subscripts and the methods of tuples, lists, sets and dicts."""

from __future__ import annotations

import ast
from typing import Any

from pytest_passbench.candidate.audit import fold
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
    Instance,
    Mark,
    ModuleRef,
    OwnPath,
    Template,
    Value,
    join,
)

_READ_ONE = frozenset({"get", "pop", "popleft", "popitem", "setdefault"})
_DISORDER = frozenset({"reverse", "sort", "rotate", "pop", "popleft", "remove", "insert", "appendleft", "clear"})
_PUT_ONE = frozenset({"append", "add", "appendleft"})
_PUT_ALL = frozenset({"extend", "update", "extendleft"})


def subscript(frame: Frame, node: ast.Subscript, owner: Value, index: Value) -> Value:
    """``owner[index]``."""
    return join([_item(frame, node, atom, index) for atom in owner])


def _item(frame: Frame, node: ast.Subscript, atom: Atom, index: Value) -> Value:
    if isinstance(atom, Box):
        return _slice(frame, node, atom) if isinstance(node.slice, ast.Slice) else item_of_box(frame, atom, index)
    if isinstance(atom, Instance):
        return _item_of_instance(frame, atom, index)
    if atom is Mark.TENSOR:
        frame.refuse_tensors(node, "indexing a tensor with a tensor", index)
        if frame.strict and _has_list(frame, index):
            frame.report("tensor-operator", node, "indexing a tensor with a list, which gathers")
        return TENSOR
    if atom is Mark.KERNEL:
        frame.program.escape(index, frame.mode)
        return frozenset({Mark.LAUNCH})
    if isinstance(atom, Const | Template) or atom is Mark.TEXT:
        return _text_item(atom, node, index)
    if isinstance(atom, Ext | ModuleRef):
        return NOTHING if isinstance(atom, Ext) and frame.program.policy.refuses(atom.path, frame.mode) else MAYBE
    if atom in (Mark.SCALAR, Mark.ADDRESS) or isinstance(atom, OwnPath):
        return SCALAR
    return MAYBE


def _slice(frame: Frame, node: ast.Subscript, box: Box) -> Value:
    """A part of a container, in an order that is not followed."""
    value = frame.program.box(node, box.site[1], {REST: frame.program.contents(box)})
    if _is_local(frame, box):
        frame.function_boxes.update(atom.site for atom in value if isinstance(atom, Box))
    return value


def _item_of_instance(frame: Frame, atom: Instance, index: Value) -> Value:
    methods = frame.program.classes[atom.key].scope.names.get("__getitem__", NOTHING)
    if not methods:
        return MAYBE
    given = [frozenset({atom}), index]
    found = [frame.program.functions[a.key] for a in methods if isinstance(a, FuncRef)]
    return join([frame.program.bind(function, given, {}, NOTHING, frame.mode) for function in found])


def _has_list(frame: Frame, index: Value) -> bool:
    inner = [frame.program.contents(a) for a in index if isinstance(a, Box)]
    return any(isinstance(a, Box) and a.site[1] == "list" for a in join([index, *inner]))


def _text_item(atom: Atom, node: ast.Subscript, index: Value) -> Value:
    bounds = node.slice
    if isinstance(atom, Const) and isinstance(atom.value, str | bytes):
        if isinstance(bounds, ast.Slice):
            parts = [_literal(part) for part in (bounds.lower, bounds.upper, bounds.step)]
            if "unknown" not in parts:
                return frozenset({Const(atom.value[slice(*parts)])})
        known = [a.value for a in index if isinstance(a, Const) and isinstance(a.value, int)]
        if len(known) == len(index) and all(-len(atom.value) <= k < len(atom.value) for k in known):
            return frozenset({Const(atom.value[k]) for k in known})
    return TEXT


def _literal(node: ast.expr | None) -> Any:
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except ValueError:
        return "unknown"


def item_of_box(frame: Frame, box: Box, index: Value) -> Value:
    """What lies under ``index``; everything where the index is not known."""
    contents = frame.program.heap.get(box.site, {})
    keys = [a for a in index if isinstance(a, Const | Ext)]
    if keys and len(keys) == len(index) and all(_wrapped(key, contents) in contents for key in keys):
        found = [contents[_wrapped(key, contents)] for key in keys]
        return join([*found, contents.get(REST, NOTHING)])
    return join(contents.values())


def _wrapped(key: Atom, contents: dict[Atom | str, Value]) -> Atom:
    if isinstance(key, Const) and isinstance(key.value, int) and key.value < 0 and REST not in contents:
        return Const(len(contents) + key.value)
    return key


def put(frame: Frame, node: ast.AST, owner: Value, index: Value, value: Value) -> None:
    """``owner[index] = value``."""
    for atom in owner:
        if isinstance(atom, Box):
            _keep(frame, node, atom, index, value)
            keys = [a for a in index if isinstance(a, Const | Ext)]
            known = bool(keys) and len(keys) == len(index) and len(keys) <= 4
            for key in keys if known else [REST]:
                frame.program.grow_box(atom.site, key, value)
        elif atom in (Mark.TENSOR, Mark.MAYBE):
            if frame.strict:
                frame.report("tensor-operator", node, "assigning to elements of a tensor")
        elif isinstance(atom, Ext):
            frame.report("sys-path" if atom.path == "sys.path" else "patch", node, f"assigning into {atom.path}")


def _keep(frame: Frame, node: ast.AST, box: Box, index: Value, value: Value) -> None:
    """Report results kept between calls: for sure by address, perhaps otherwise."""
    if frame.mode != "code" or not frame.holds_tensor(value) or _is_local(frame, box):
        return
    if frame.holds(index, Mark.ADDRESS):
        frame.report("address-cache", node, "a tensor kept under an address or identity")
    else:
        frame.report("cache", node, "a tensor kept in a container that outlives the call")


def _is_local(frame: Frame, box: Box) -> bool:
    return frame.function is not None and box.site in frame.function_boxes


def method(frame: Frame, node: ast.Call, box: Box, name: str, args: list[Value], named: dict[str, Value]) -> Value:
    """``box.name(*args)``."""
    first = args[0] if args else NOTHING
    if name in _DISORDER:
        disorder(frame, box)
    if name in _READ_ONE:
        default = join(args[1:]) if len(args) > 1 else frozenset({Const(None)}) if name == "get" else NOTHING
        if name == "setdefault" and len(args) > 1:
            put(frame, node, frozenset({box}), first, args[1])
        return join((item_of_box(frame, box, first), default))
    if name in _PUT_ONE or name == "insert":
        _keep(frame, node, box, NOTHING, join(args))
        frame.program.grow_box(box.site, REST, join(args[1:] if name == "insert" else args))
    elif name in _PUT_ALL:
        frame.program.grow_box(box.site, REST, join([_values(frame, arg) for arg in (*args, *named.values())]))
    elif name in ("items", "keys", "values"):
        return _view(frame, node, box, name)
    elif name in ("copy", "union", "intersection", "difference", "_replace", "_asdict", "__iter__"):
        return frozenset({box})
    elif name == "sort":
        frame.refuse_tensors(node, "sorting tensors", frozenset({box}))
        frame.program.escape(named.get("key", NOTHING), frame.mode)
    return SCALAR


def disorder(frame: Frame, box: Box) -> None:
    """From now on anything may lie under any key."""
    if box.site[1] != "dict":
        frame.program.grow_box(box.site, REST, frame.program.contents(box))


def _values(frame: Frame, value: Value) -> Value:
    boxes = [a for a in value if isinstance(a, Box)]
    rest = frozenset(a for a in value if not isinstance(a, Box))
    return join([frame.program.contents(box) for box in boxes] + [frame.elements(rest)])


def _view(frame: Frame, node: ast.AST, box: Box, name: str) -> Value:
    keys, values = frame.elements(frozenset({box})), frame.program.contents(box)
    if name == "items":
        pair = frame.program.box(node, "pair", {Const(0): keys, Const(1): values})
        return frame.program.box(node, "items", {REST: pair})
    return frame.program.box(node, name, {REST: keys if name == "keys" else values})


def joined(frame: Frame, separator: str, parts: Value) -> Value:
    """``separator.join(parts)`` where the parts and their order are known."""
    results = []
    for atom in parts:
        contents = frame.program.heap.get(atom.site, {}) if isinstance(atom, Box) else {}
        ordered = [contents.get(Const(i)) for i in range(len(contents))]
        if not isinstance(atom, Box) or any(part is None for part in ordered):
            return _text_of(separator, atom)
        between: list[Value] = []
        for part in ordered:
            between += [frozenset({Const(separator)})] if between else []
            between.append(part or NOTHING)
        results.append(fold.concatenate(between))
    return join(results)


def _text_of(separator: str, atom: Atom) -> Value:
    if isinstance(atom, Const) and isinstance(atom.value, str):
        return frozenset({Const(separator.join(atom.value))})
    return TEXT
