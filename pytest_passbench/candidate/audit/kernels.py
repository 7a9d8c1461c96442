"""The body of a Triton kernel: triton.language, constants, its parameters and other kernels, and no more.

Under Triton's interpreter a kernel's body runs as Python, so it is held to a list as everything else.
"""

from __future__ import annotations

import ast
import builtins

from pytest_passbench.candidate.audit import tables
from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.policy import kernel_refuses
from pytest_passbench.candidate.audit.program import Function
from pytest_passbench.candidate.audit.tables import words
from pytest_passbench.candidate.audit.values import ClassRef, Ext, FuncRef, Instance, Mark, ModuleRef

_BUILTINS = words("""
    range min max abs int float bool tuple list len sum isinstance print str slice zip enumerate
    getattr divmod round hasattr type""")  # fmt: skip
_BUILTINS_NEVER = frozenset({"getattr", "type", "hasattr"})


def check(frame: Frame, kernel: Function) -> None:
    """Report what is out of place in ``kernel``'s body."""
    own = _bound_names(kernel.node)
    inner = {id(node.value) for node in ast.walk(kernel.node) if isinstance(node, ast.Attribute)}
    for node in _body(kernel.node):
        if isinstance(node, ast.Attribute):
            _attribute(frame, node, own, whole=id(node) not in inner)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
            _name(frame, node, whole=id(node) not in inner)
        elif isinstance(node, ast.Import | ast.ImportFrom | ast.Global | ast.Lambda | ast.ClassDef):
            frame.report("kernel-body", node, f"{type(node).__name__} in a kernel")


def _body(node: ast.AST) -> list[ast.AST]:
    parts = getattr(node, "body", [])
    return [item for part in (parts if isinstance(parts, list) else [parts]) for item in ast.walk(part)]


def _bound_names(node: ast.AST) -> set[str]:
    stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return stored | {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}


def _chain(node: ast.Attribute) -> tuple[str, list[str]] | None:
    parts: list[str] = []
    item: ast.expr = node
    while isinstance(item, ast.Attribute):
        parts.append(item.attr)
        item = item.value
    return (item.id, parts[::-1]) if isinstance(item, ast.Name) else None


def _attribute(frame: Frame, node: ast.Attribute, own: set[str], *, whole: bool) -> None:
    if node.attr.startswith("_") or node.attr in tables.KERNEL_NEVER | tables.FRAME_ATTRIBUTES:
        frame.report("kernel-body", node, f"attribute {node.attr} in a kernel")
    chain = _chain(node)
    if whole and chain is not None and chain[0] not in own:
        for atom in frame.look_up(chain[0]) or ():
            if isinstance(atom, Ext):
                _external(frame, node, ".".join((atom.path, *chain[1])))


def _name(frame: Frame, node: ast.Name, *, whole: bool) -> None:
    for atom in frame.look_up(node.id) or ():
        if isinstance(atom, Ext):
            if whole:
                _external(frame, node, atom.path)
        elif isinstance(atom, FuncRef):
            if not frame.program.functions[atom.key].kernel:
                frame.report("kernel-body", node, f"{node.id} is not a kernel")
        elif isinstance(atom, Instance | ClassRef | ModuleRef) or atom in (Mark.TENSOR, Mark.MAYBE, Mark.NATIVE):
            frame.report("kernel-body", node, f"{node.id} in a kernel")


def _external(frame: Frame, node: ast.AST, path: str) -> None:
    name = path.removeprefix("builtins.")
    if path.startswith("builtins."):
        exception = isinstance(getattr(builtins, name, None), type) and name.endswith("Error")
        if name not in _BUILTINS - _BUILTINS_NEVER and not exception:
            frame.report("kernel-body", node, f"{name} in a kernel")
    elif kernel_refuses(path):
        frame.report("kernel-body", node, f"{path} in a kernel")
