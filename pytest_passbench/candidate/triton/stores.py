"""The parameters through which a Triton kernel stores, read from its checked text.

An address depends on all names in its expression, and on all values that were assigned to them. A loaded value is not
an address. A function that is a parameter may store through all that it gets. So the result may have parameters that
are only indices. It never leaves out a parameter that is stored through.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from pytest_passbench.candidate.triton.text import KernelText
from pytest_passbench.core.grouping import reached

_LOADS = frozenset({"load", "gather", "load_tensor_descriptor", "atomic_load"})
_STORES = frozenset({"store", "scatter", "store_tensor_descriptor"})
# Positions, among the arguments of Triton's own functions and methods, of the functions that these call.
_CALLED = {"map_elementwise": slice(1), "reduce": slice(1, 3), "associative_scan": slice(1, 3)}
_ADDRESSES = frozenset({"pointer", "desc"})  # keywords for the address in Triton's functions that store


def stored(text: KernelText) -> frozenset[str]:
    """Return the parameters that a kernel, or a function that it uses, may store through."""
    stored_by: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {}
    for function in (*text.functions, text):
        stored_by[function.name] = (function.parameters, _stored(function, stored_by))
    return stored_by[text.name][1]


def _stored(text: KernelText, stored_by: Mapping[str, tuple[tuple[str, ...], frozenset[str]]]) -> frozenset[str]:
    nodes = list(ast.walk(ast.parse(text.source)))
    calls = (node for node in nodes if isinstance(node, ast.Call))
    addresses = [name for call in calls for name in _addressed(call, stored_by, text.parameters)]
    sources: dict[str, list[str]] = {}  # by name: the names in the values that are assigned to it
    for node in nodes:
        for target, value in _assigned(node):
            sources.setdefault(target, []).extend(_names(value))
    stored_names = reached(addresses, lambda name: sources.get(name, ()))
    return frozenset(stored_names.keys() & set(text.parameters))


def _addressed(
    node: ast.Call, stored_by: Mapping[str, tuple[tuple[str, ...], frozenset[str]]], own_parameters: Sequence[str]
) -> Iterator[str]:
    """Yield the names in each address that a call stores to, or may store to, in a function's body."""
    function, values = node.func, [*node.args, *(item.value for item in node.keywords)]
    if isinstance(function, ast.Name) and function.id in stored_by:
        parameters, through = stored_by[function.id]
        for name, value in (*zip(parameters, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)):
            if name in through:
                yield from _names(value)
    elif isinstance(function, ast.Name) and function.id in own_parameters:
        for value in values:
            yield from _names(value)
    elif isinstance(function, ast.Attribute) and (
        function.attr in _STORES or (function.attr.startswith("atomic_") and function.attr not in _LOADS)
    ):
        yield from _names(function.value)  # of a descriptor, or of a pointer
        for value in (*node.args[:1], *(item.value for item in node.keywords if item.arg in _ADDRESSES)):
            yield from _names(value)
    elif isinstance(function, ast.Attribute) and function.attr in _CALLED:
        called = (*node.args[_CALLED[function.attr]], *(item.value for item in node.keywords))
        names = [value.id for value in called if isinstance(value, ast.Name)]
        if any(stored_by[name][1] if name in stored_by else name in own_parameters for name in names):
            for value in (function.value, *values):
                yield from _names(value)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign([target], value) | ast.AugAssign(target, _, value) | ast.For(target, value):
            pass
        case ast.AnnAssign(target, _, value) if value is not None:
            pass
        case _:
            return
    for item in target.elts if isinstance(target, ast.Tuple) else [target]:
        if isinstance(item, ast.Name):
            yield item.id, value


def _names(value: ast.expr) -> Iterator[str]:
    """Yield the names in an expression, but not those in what it loads."""
    todo: list[ast.AST] = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            yield node.id
        elif not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOADS):
            todo += ast.iter_child_nodes(node)
