"""What ``value.name`` is, and whether a candidate may ask for it."""

from __future__ import annotations

import ast

from pytest_passbench.candidate.audit import tables
from pytest_passbench.candidate.audit.frame import Frame
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
    Template,
    Value,
    join,
)

_PLAIN_METADATA = tables.words("""
    shape dtype device ndim layout is_cuda is_cpu is_sparse is_quantized is_meta requires_grad itemsize nbytes""")
_PLAIN_VIEWS = tables.words("T mT data H real imag")


def attribute(frame: Frame, node: ast.AST, owner: Value, name: str) -> Value:
    """The value of attribute ``name`` of ``owner``; reports names that open Python's insides."""
    if name.startswith("__") and name.endswith("__") and name not in tables.DUNDER_ATTRIBUTES:
        frame.report("dunder", node, f"attribute {name}")
        return NOTHING
    if name in tables.FRAME_ATTRIBUTES:
        frame.report("frame", node, f"attribute {name}")
        return NOTHING
    return join([_of(frame, node, atom, name) for atom in owner])


def _of(frame: Frame, node: ast.AST, atom: Atom, name: str) -> Value:
    if isinstance(atom, Ext):
        if atom.path.removeprefix("torch.") in tables.DTYPES:
            return SCALAR
        return frozenset({Ext(f"{atom.path}.{name}")})
    if isinstance(atom, ModuleRef):
        return _of_module(frame, node, atom, name)
    if isinstance(atom, Instance | ClassRef):
        return _of_class(frame, atom, name)
    if isinstance(atom, Box):
        field = frame.program.heap.get(atom.site, {}).get(Const(name))
        return field or frozenset({Method(atom, name)})
    if isinstance(atom, Const | Template) or atom is Mark.TEXT:
        return frozenset({Method(atom, name)})
    if isinstance(atom, OwnPath):
        return _of_path(atom, name)
    if isinstance(atom, FuncRef):
        return TEXT if name.startswith("__") else frame.program.function_attributes.get(name, NOTHING)
    return _of_mark(frame, node, atom, name)


def _of_module(frame: Frame, node: ast.AST, atom: ModuleRef, name: str) -> Value:
    module = frame.program.modules[atom.index]
    if name in module.scope.names:
        return module.scope.names[name]
    stars = frozenset({Ext(f"{library}.{name}") for library in module.scope.stars})
    if not stars and not name.startswith("__"):
        frame.report("undefined", node, f"{module.name} defines no {name}")
    return stars


def _of_class(frame: Frame, atom: Instance | ClassRef, name: str) -> Value:
    known = frame.program.classes[atom.key]
    found = join((known.attributes.get(name, NOTHING), known.scope.names.get(name, NOTHING)))
    if not found:
        return MAYBE
    if isinstance(atom, ClassRef):
        return found
    return join([_of_instance(frame, atom, item) for item in found])


def _of_instance(frame: Frame, atom: Instance, item: Atom) -> Value:
    if not isinstance(item, FuncRef):
        return frozenset({item})
    function = frame.program.functions[item.key]
    if function.is_property:
        return frame.program.bind(function, [frozenset({atom})], {}, NOTHING, frame.mode)
    return frozenset({Bound(item, atom)})


def _of_path(atom: OwnPath, name: str) -> Value:
    if name == "parent":
        return frozenset({OwnPath(atom.parts[:-1] if atom.parts else ("..",))})
    return TEXT if name in ("name", "stem", "suffix") else frozenset({Method(atom, name)})


def _of_mark(frame: Frame, node: ast.AST, atom: Atom, name: str) -> Value:
    if atom is Mark.TENSOR:
        return _of_tensor(frame, node, name)
    if atom is Mark.MAYBE:
        return _of_anything(frame, node, name)
    if atom is Mark.NATIVE:
        return frozenset({Mark.NATIVE})
    if atom is Mark.SCALAR:
        return SCALAR
    if atom is Mark.ADDRESS:
        return NOTHING
    if atom is Mark.KERNEL and name in ("best_config", "configs", "arg_names", "__name__", "cache"):
        return SCALAR
    frame.report("unresolved", node, f"attribute {name} of {_kind(atom)}")
    return NOTHING


def _kind(atom: Atom) -> str:
    return atom.value if isinstance(atom, Mark) else type(atom).__name__.lower()


def _of_tensor(frame: Frame, node: ast.AST, name: str) -> Value:
    if name in _PLAIN_METADATA:
        return SCALAR
    known = tables.TENSOR_METADATA | tables.TENSOR_VIEWS | tables.TENSOR_ALLOCATION
    refused = frame.strict or name in tables.TENSOR_NEVER or name.startswith("_")
    if refused and name not in known and not name.startswith("__"):
        frame.report("tensor-method", node, f".{name} of a tensor")
    if name in _PLAIN_VIEWS:
        return TENSOR
    return frozenset({Method(Mark.TENSOR, name)})


def _of_anything(frame: Frame, node: ast.AST, name: str) -> Value:
    """Of a value that may be anything only names that are harmless on everything may be asked."""
    harmless = tables.TENSOR_METADATA | tables.TENSOR_VIEWS | tables.TENSOR_ALLOCATION | tables.CONTAINER_METHODS
    if name in harmless or name in frame.program.attribute_names or name.startswith("__"):
        return MAYBE
    if frame.program.policy.name == "open" and not name.startswith("_") and name not in tables.TENSOR_NEVER:
        return MAYBE
    if frame.mode != "pattern":
        frame.report("unresolved", node, f".{name} of a value that may be a tensor or anything else")
    return MAYBE
