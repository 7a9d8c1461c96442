"""Imports: of the listed libraries, and of the candidate's own files in every spelling that is in use."""

from __future__ import annotations

import ast
from pathlib import Path

from pytest_passbench.candidate.audit.frame import Frame
from pytest_passbench.candidate.audit.policy import importable
from pytest_passbench.candidate.audit.program import Module
from pytest_passbench.candidate.audit.values import NOTHING, Ext, ModuleRef, Value


def plain(frame: Frame, node: ast.Import) -> None:
    """``import a.b`` and ``import a.b as c``."""
    for alias in node.names:
        first = alias.name.split(".")[0]
        value = _module(frame, node, alias.name)
        if alias.asname is None and "." in alias.name:
            value = frozenset({Ext(first)}) if value and _is_ext(value) else value
        frame.assign(alias.asname or first, value)


def _is_ext(value: Value) -> bool:
    return all(isinstance(atom, Ext) for atom in value)


def names(frame: Frame, node: ast.ImportFrom) -> None:
    """``from a import b``, ``from .a import b``, ``from . import a``, ``from a import *``."""
    if node.level > 1:
        frame.report("import", node, "an import from outside the pass folder")
        return
    if node.level == 1 and node.module is None:
        for alias in node.names:
            frame.assign(alias.asname or alias.name, _own(frame, node, alias.name))
        return
    if node.level == 0 and _is_folder(frame, node.module or ""):
        for alias in node.names:
            frame.assign(alias.asname or alias.name, _own(frame, node, alias.name))
        return
    source = _own(frame, node, node.module or "") if node.level else _module(frame, node, node.module or "")
    for alias in node.names:
        _bind(frame, node, source, alias)


def _is_folder(frame: Frame, name: str) -> bool:
    """Is ``name`` the pass folder itself, as a package?"""
    known = name == "pass_dir" or (name == frame.module.root.name and not importable(name))
    return known and _find(frame.module.root, name) is None


def _bind(frame: Frame, node: ast.ImportFrom, source: Value, alias: ast.alias) -> None:
    for atom in source:
        if isinstance(atom, Ext):
            _bind_external(frame, node, atom.path, alias)
        elif isinstance(atom, ModuleRef):
            _bind_own(frame, node, frame.program.modules[atom.index], alias)


def _bind_external(frame: Frame, node: ast.ImportFrom, path: str, alias: ast.alias) -> None:
    if alias.name == "*":
        frame.scope.stars.append(path)
        return
    full = f"{path}.{alias.name}"
    if not path.startswith("torch"):
        frame.mention(node, frozenset({Ext(full)}))
    frame.assign(alias.asname or alias.name, frozenset({Ext(full)}))


def _bind_own(frame: Frame, node: ast.ImportFrom, module: Module, alias: ast.alias) -> None:
    if alias.name == "*":
        for name, value in list(module.scope.names.items()):
            if not name.startswith("_"):
                frame.assign(name, value)
        frame.scope.stars.extend(star for star in module.scope.stars if star not in frame.scope.stars)
        return
    inner = _find(module.path.parent / module.path.stem if module.path.stem != "__init__" else module.path.parent,
                  alias.name)  # fmt: skip
    if alias.name in module.scope.names or inner is None:
        value = module.scope.names.get(alias.name, NOTHING)
        if not value and not frame.program.changed:
            frame.report("undefined", node, f"{module.name} defines no {alias.name}")
    else:
        value = _load(frame, inner, module.root)
    frame.assign(alias.asname or alias.name, value)


def _module(frame: Frame, node: ast.stmt, name: str) -> Value:
    """The module ``name``: a listed library, else a file of the candidate's."""
    if importable(name):
        return frozenset({Ext(name)})
    own = _search(frame, name)
    if own is not None:
        return _load(frame, own, frame.module.root)
    first, _, rest = name.partition(".")
    if first == "pass_dir" or (rest and first == frame.module.root.name):
        frame.report("missing-helper", node, f"no file for {name}")
    else:
        frame.report("import", node, f"import of {name}")
    return NOTHING


def _own(frame: Frame, node: ast.stmt, name: str) -> Value:
    found = _find(frame.module.path.parent, name)
    if found is None:
        frame.report("missing-helper", node, f"no file for .{name}")
        return NOTHING
    return _load(frame, found, frame.module.root)


def _search(frame: Frame, name: str) -> Path | None:
    """``helper`` beside the pass, or ``pass_dir.helper`` whatever the folder is called."""
    rest = name.partition(".")[2]
    for folder in (frame.module.root, frame.module.path.parent):
        found = _find(folder, name) or (_find(folder, rest) if rest else None)
        if found is not None:
            return found
    return None


def _find(folder: Path, name: str) -> Path | None:
    target = folder.joinpath(*name.split("."))
    for path in (target.with_name(target.name + ".py"), target / "__init__.py"):
        if path.is_file():
            return path
    return None


def _load(frame: Frame, path: Path, root: Path) -> Value:
    from pytest_passbench.candidate.audit import files

    module = files.load(frame.program, path, root, is_pass=False)
    return frozenset({ModuleRef(module.index)}) if module is not None else NOTHING
