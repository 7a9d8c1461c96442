"""Calls of Python's builtins."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_passbench.candidate.audit import tables
from pytest_passbench.candidate.audit.attributes import attribute
from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.program import REST
from pytest_passbench.candidate.audit.tables import words
from pytest_passbench.candidate.audit.values import (
    MAYBE,
    NOTHING,
    SCALAR,
    TENSOR,
    TEXT,
    Box,
    Const,
    Ext,
    FuncRef,
    Mark,
    Value,
    const,
    constants,
    join,
)

if TYPE_CHECKING:
    from pytest_passbench.candidate.audit.calls import Arguments

_SEQUENCES = words("""
    list tuple set frozenset sorted reversed iter slice""")
_QUIET = words("""
    isinstance issubclass callable hasattr print range len object property""")


def call(frame: Frame, node: ast.Call, name: str, given: Arguments) -> Value:
    """The value of ``name(*given)`` for a builtin."""
    if name == "getattr":
        return _getattr(frame, node, given)
    if name == "object":
        return given.first() if given.args else MAYBE  # as a decorator: it gives back what it is given
    if name in _SEQUENCES:
        return _sequence(frame, node, name, given)
    if name in ("map", "filter"):
        return _map(frame, node, name, given)
    if name in ("zip", "enumerate"):
        return _zip(frame, node, name, given)
    if name in ("dict", "next", "type", "super", "id", "chr", "str", "staticmethod", "classmethod", "property"):
        return _SINGLE[name](frame, node, given)
    if name in tables.BUILTIN_ARITHMETIC or name in tables.BUILTIN_READS:
        return _compute(frame, node, name, given)
    if name not in _QUIET:
        frame.program.escape(join(given.all), frame.mode)
    return SCALAR if name in tables.BUILTINS else NOTHING


def _getattr(frame: Frame, node: ast.Call, given: Arguments) -> Value:
    names = constants(given.args[1]) if len(given.args) > 1 else None
    if names is None or given.rest or not all(isinstance(name, str) for name in names):
        if frame.mode != "pattern" and not (len(given.args) > 1 and not given.args[1]):
            frame.report("unresolved", node, "getattr with a name that cannot be read from the source")
        return NOTHING
    default = given.args[2] if len(given.args) > 2 else NOTHING
    found = [frame.mention(node, attribute(frame, node, given.args[0], str(name))) for name in names]
    return join([*found, default])


def _sequence(frame: Frame, node: ast.Call, name: str, given: Arguments) -> Value:
    if name in ("sorted", "set", "frozenset"):
        frame.refuse_tensors(node, f"{name} of tensors", given.first() if name == "sorted" else NOTHING)
        frame.program.escape(given.named.get("key", NOTHING), frame.mode)
    boxes = [a for a in given.first() if isinstance(a, Box) and a.site[1] != "dict"]
    if boxes and len(boxes) == len(given.first()) and name in ("list", "tuple", "iter"):
        return frozenset(boxes)
    value = frame.program.box(node, "list", {REST: join([frame.elements(v) for v in given.all])})
    frame.function_boxes.update(a.site for a in value if isinstance(a, Box))
    return value


def _map(frame: Frame, node: ast.Call, name: str, given: Arguments) -> Value:
    from pytest_passbench.candidate.audit import calls

    items = [frame.elements(value) for value in given.args[1:]]
    results = calls.apply(frame, node, given.first(), calls.Arguments(items, {}, given.rest))
    return frame.program.box(node, "list", {REST: results if name == "map" else join(items)})


def _zip(frame: Frame, node: ast.Call, name: str, given: Arguments) -> Value:
    columns = [frame.elements(value) for value in given.args]
    if name == "enumerate":
        columns = [SCALAR, *columns[:1]]
    row = frame.program.box(node, "tuple", {Const(i): column for i, column in enumerate(columns)})
    if given.rest:
        frame.program.box(node, "tuple", {REST: frame.elements(given.rest)})
    return frame.program.box(node, "list", {REST: row})


def _dict(frame: Frame, node: ast.Call, given: Arguments) -> Value:
    value = frame.program.box(node, "dict", {Const(key): item for key, item in given.named.items()})
    for arg in (*given.args, given.rest):
        for atom in arg:
            contents = frame.program.heap.get(atom.site, {}) if isinstance(atom, Box) else {}
            pairs = atom.site[1] != "dict" if isinstance(atom, Box) else False
            for key, item in list(contents.items()):
                frame.program.box(node, "dict", {REST: frame.elements(item)} if pairs else {key: item})
    frame.function_boxes.update(a.site for a in value if isinstance(a, Box))
    return value


def _next(frame: Frame, _node: ast.Call, given: Arguments) -> Value:
    return join([frame.elements(given.first()), *given.args[1:]])


def _type(frame: Frame, node: ast.Call, given: Arguments) -> Value:
    if len(given.args) != 1 or given.rest:
        frame.report("builtin", node, "type with three arguments makes a class")
    if frame.holds_tensor(given.first()):
        return frozenset({Ext("torch.Tensor")})
    return MAYBE if Mark.MAYBE in given.first() else SCALAR


def _id(frame: Frame, _node: ast.Call, given: Arguments) -> Value:
    return SCALAR | frozenset({Mark.ADDRESS}) if frame.holds_tensor(*given.all) else SCALAR


def _chr(_frame: Frame, _node: ast.Call, given: Arguments) -> Value:
    known = constants(given.first())
    if known is None or not all(isinstance(code, int) and 0 <= code < 0x110000 for code in known):
        return TEXT
    return join([const(chr(code)) for code in known if isinstance(code, int)])


def _str(frame: Frame, node: ast.Call, given: Arguments) -> Value:
    if not frame.raising:
        frame.refuse_tensors(node, "str of a tensor", *given.all, rule="reads-values")
    if given.args and not given.first():
        return NOTHING
    known = constants(given.first())
    if known is not None and len(given.args) == 1:
        return join([const(str(item)) for item in known])
    return given.first() if given.first() and given.first() <= SCALAR else TEXT


def _maybe(_frame: Frame, _node: ast.Call, _given: Arguments) -> Value:
    return MAYBE


def _first(_frame: Frame, _node: ast.Call, given: Arguments) -> Value:
    return given.first()


def _property(frame: Frame, _node: ast.Call, given: Arguments) -> Value:
    for atom in given.first():
        if isinstance(atom, FuncRef):
            frame.program.functions[atom.key].is_property = True
    return given.first()


def _compute(frame: Frame, node: ast.Call, name: str, given: Arguments) -> Value:
    """Builtins that compute on their arguments, or look into them."""
    reads = name in tables.BUILTIN_READS or name in ("int", "float", "bool", "complex")
    tensors = frame.holds_tensor(*given.all)
    if tensors and name == "hash":
        return SCALAR | frozenset({Mark.ADDRESS})
    if not frame.raising:
        rule = "reads-values" if reads else "tensor-operator"
        frame.refuse_tensors(node, f"{name} of a tensor", *given.all, rule=rule)
    frame.program.escape(given.named.get("key", NOTHING), frame.mode)
    if name in tables.BUILTIN_READS:
        return TEXT
    if name in ("max", "min"):
        return join(given.args) if len(given.args) > 1 else frame.elements(join(given.all))
    marks = frozenset({Mark.ADDRESS}) & join(given.all)
    if reads or not tensors:
        return (MAYBE if name == "sum" and Mark.MAYBE in join(given.all) else SCALAR) | marks
    return TENSOR


_SINGLE = {
    "dict": _dict,
    "next": _next,
    "type": _type,
    "super": _maybe,
    "id": _id,
    "chr": _chr,
    "str": _str,
    "staticmethod": _first,
    "classmethod": _first,
    "property": _property,
}
