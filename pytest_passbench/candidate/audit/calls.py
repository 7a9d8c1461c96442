"""Calls of everything that is not a library member, and assignments to attributes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from pytest_passbench.candidate.audit import containers, externals, fold, inlined, tables
from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.program import REST, Class
from pytest_passbench.candidate.audit.values import (
    MAYBE,
    NOTHING,
    SCALAR,
    TENSOR,
    TEXT,
    Atom,
    Bound,
    Box,
    ClassRef,
    Const,
    Ext,
    FuncRef,
    Instance,
    Mark,
    Method,
    ModuleRef,
    OwnPath,
    Partial,
    Template,
    Value,
    join,
)

Evaluate = Callable[[Frame, "ast.AST | None"], Value]


@dataclass
class Arguments:
    """Evaluated arguments: by position, by name, and what came through ``*`` and ``**``."""

    args: list[Value]
    named: dict[str, Value]
    rest: Value = NOTHING

    @property
    def all(self) -> list[Value]:
        """Every argument."""
        return [*self.args, *self.named.values(), self.rest]

    def first(self) -> Value:
        """The first positional argument."""
        return self.args[0] if self.args else self.rest


def call(frame: Frame, node: ast.Call, evaluate: Evaluate) -> Value:
    """The value of a call expression."""
    callee = evaluate(frame, node.func)
    return apply(frame, node, callee, _arguments(frame, node, evaluate))


def _arguments(frame: Frame, node: ast.Call, evaluate: Evaluate) -> Arguments:
    out = Arguments([], {})
    for item in node.args:
        if isinstance(item, ast.Starred):
            _spread(frame, evaluate(frame, item.value), out)
        else:
            value = evaluate(frame, item)
            if out.rest:
                out.rest |= value
            else:
                out.args.append(value)
    for keyword in node.keywords:
        value = evaluate(frame, keyword.value)
        if keyword.arg is not None:
            out.named[keyword.arg] = value
        else:
            out.rest |= join([frame.program.contents(a) if isinstance(a, Box) else MAYBE for a in value])
    return out


def _spread(frame: Frame, value: Value, out: Arguments) -> None:
    """``*value``: in order where it is one tuple of known length."""
    (atom,) = value if len(value) == 1 else (None,)
    contents = frame.program.heap.get(atom.site, {}) if isinstance(atom, Box) else {}
    if contents and not out.rest and all(Const(i) in contents for i in range(len(contents))):
        out.args += [contents[Const(i)] for i in range(len(contents))]
    else:
        out.rest |= frame.elements(value)


def apply(frame: Frame, node: ast.Call, callee: Value, given: Arguments) -> Value:
    """What calling ``callee`` gives; a callee that cannot be told from the source is a finding."""
    return join([_apply(frame, node, atom, given) for atom in callee])


def _apply(frame: Frame, node: ast.Call, atom: Atom, given: Arguments) -> Value:
    if isinstance(atom, Ext):
        frame.mention(node, frozenset({atom}))  # out of a table or a closure, it was not judged by name here
        return externals.call(frame, node, atom.path, given)
    if isinstance(atom, FuncRef):
        return _function(frame, node, atom, given)
    if isinstance(atom, Bound):
        owner: Value = frozenset({atom.owner})
        return _function(frame, node, atom.func, Arguments([owner, *given.args], given.named, given.rest))
    if isinstance(atom, ClassRef):
        return _construct(frame, node, atom, given)
    if isinstance(atom, Instance):
        return _call_instance(frame, node, atom, given)
    if isinstance(atom, Partial):
        return _call_partial(frame, node, atom, given)
    if isinstance(atom, Method):
        return _method(frame, node, atom, given)
    return _call_mark(frame, node, atom, given)


def _function(frame: Frame, node: ast.Call, atom: FuncRef, given: Arguments) -> Value:
    function = frame.program.functions[atom.key]
    if function.cached and frame.strict and frame.holds_tensor(*given.all):
        frame.report("address-cache", node, f"{function.name} keeps results by the tensors it is given")
    if inlined.can(frame, function):
        return inlined.run(frame, function, given)
    result = frame.program.bind(function, given.args, given.named, given.rest, frame.mode)
    return MAYBE if function.kernel else result


def _construct(frame: Frame, node: ast.Call, atom: ClassRef, given: Arguments) -> Value:
    kind = frame.program.classes[atom.key]
    instance = Instance(atom.key)
    made: Value = frozenset({instance})
    for name in ("__init__", "__new__"):
        for method in kind.scope.names.get(name, NOTHING):
            if isinstance(method, FuncRef):
                _function(frame, node, method, Arguments([made, *given.args], given.named, given.rest))
    _fill_fields(frame, kind, given)
    return made


def _fill_fields(frame: Frame, kind: Class, given: Arguments) -> None:
    """A dataclass or named tuple: arguments become its annotated fields."""
    fields = [
        item.target.id
        for item in kind.node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]
    for name, value in [*zip(fields, given.args, strict=False), *given.named.items()]:
        frame.program.grow(kind.attributes, name, value)
        frame.program.attribute_names.add(name)
    for name in fields if given.rest else ():
        frame.program.grow(kind.attributes, name, given.rest)


def _call_instance(frame: Frame, node: ast.Call, atom: Instance, given: Arguments) -> Value:
    methods = frame.program.classes[atom.key].scope.names.get("__call__", NOTHING)
    if not methods:
        frame.report("unresolved", node, "calling an object without __call__")
    bound = frozenset({Bound(m, atom) if isinstance(m, FuncRef) else m for m in methods})
    return apply(frame, node, bound, given)


def _call_partial(frame: Frame, node: ast.Call, atom: Partial, given: Arguments) -> Value:
    parts = frame.program.heap.get(atom.site, {})
    before = [parts[Const(i)] for i in range(len(parts)) if Const(i) in parts]
    named = {str(key)[1:]: value for key, value in parts.items() if isinstance(key, str) and key[0] == "="}
    merged = Arguments([*before, *given.args], {**named, **given.named}, given.rest | parts.get(REST, NOTHING))
    return apply(frame, node, parts.get("f", NOTHING), merged)


def _method(frame: Frame, node: ast.Call, atom: Method, given: Arguments) -> Value:
    owner = atom.owner
    if isinstance(owner, Box):
        return containers.method(frame, node, owner, atom.name, given.all, given.named)
    if isinstance(owner, OwnPath):
        return externals.path_method(frame, node, owner, atom.name, given)
    if owner is Mark.TENSOR:
        return _tensor_method(frame, node, atom.name, given)
    if isinstance(owner, Const | Template) and fold.is_text(owner):
        return _text_method(frame, owner, atom.name, given)
    return TEXT if owner is Mark.TEXT else SCALAR


def _text_method(frame: Frame, owner: Const | Template, name: str, given: Arguments) -> Value:
    if name == "join" and isinstance(owner, Const) and isinstance(owner.value, str):
        return containers.joined(frame, owner.value, given.first())
    if name == "format":
        frame.refuse_tensors(frame.module.tree, "a tensor in a string", *given.all, rule="reads-values")
    if name not in fold.TEXT_METHODS or given.named or given.rest:
        return TEXT
    return fold.method(owner, name, given.args)


def _tensor_method(frame: Frame, node: ast.Call, name: str, given: Arguments) -> Value:
    if name in ("data_ptr",):
        return SCALAR | frozenset({Mark.ADDRESS})
    if name in tables.TENSOR_METADATA:
        return SCALAR
    if name in tables.TENSOR_ALLOCATION:
        frame.refuse_tensors(node, f".{name} with a tensor's value", *given.all)
    if not frame.strict and name in ("item", "tolist"):
        return SCALAR
    return TENSOR


def _call_mark(frame: Frame, node: ast.Call, atom: Atom, given: Arguments) -> Value:
    if atom is Mark.LAUNCH:
        frame.program.escape(join(given.all), frame.mode)
        return SCALAR
    if atom is Mark.NATIVE:
        return SCALAR
    if atom is Mark.ADDRESS or (atom is Mark.SCALAR and isinstance(node.func, ast.Attribute)):
        return SCALAR
    if atom is Mark.MAYBE and isinstance(node.func, ast.Attribute):
        argument = MAYBE | TENSOR if frame.holds_tensor(*given.all) else MAYBE
        frame.program.escape(join(given.all), frame.mode, argument)
        return MAYBE
    if frame.mode != "pattern" and atom != Const(None):
        kind = atom.value if isinstance(atom, Mark) else type(atom).__name__
        frame.report("unresolved", node, f"calling {kind}, which cannot be resolved")
    return NOTHING


def set_attribute(frame: Frame, node: ast.Attribute, owner: Value, name: str, value: Value) -> None:
    """``owner.name = value``."""
    frame.program.attribute_names.add(name)
    for atom in owner:
        if isinstance(atom, Instance | ClassRef):
            if name.startswith("__"):
                frame.report("dunder", node, f"assigning {name}")
            frame.program.grow(frame.program.classes[atom.key].attributes, name, value)
            _kept(frame, node, value)
        elif isinstance(atom, FuncRef):
            if name.startswith("__") and name not in ("__name__", "__doc__"):
                frame.report("dunder", node, f"assigning {name}")
            frame.program.grow(frame.program.function_attributes, name, value)
            _kept(frame, node, value)
        elif isinstance(atom, ModuleRef):
            frame.program.grow(frame.program.modules[atom.index].scope.names, name, value)
        elif atom is Mark.TENSOR:
            frame.report("tensor-patch", node, f"setting .{name} of a tensor")
        elif not isinstance(atom, Box) and frame.mode != "pattern":
            what = atom.path if isinstance(atom, Ext) else "a value of unknown kind"
            frame.report("patch", node, f"setting {name} of {what}")


def _kept(frame: Frame, node: ast.AST, value: Value) -> None:
    if frame.mode == "code" and frame.holds_tensor(value):
        frame.report("cache", node, "a tensor kept in an attribute")
