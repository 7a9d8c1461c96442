"""Where evaluation stands: the names in sight, the mode, and what is reported from here."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field

from pytest_passbench.candidate.audit import tables
from pytest_passbench.candidate.audit.program import Function, Mode, Module, Program, Scope
from pytest_passbench.candidate.audit.values import (
    Atom,
    Box,
    Const,
    Ext,
    Instance,
    Mark,
    Partial,
    Template,
    Value,
    join,
)

_BUILTIN_NAMES = frozenset(dir(builtins))


@dataclass
class Frame:
    """One body being evaluated. ``env`` is what names hold here and now, ``scope`` what they ever hold."""

    program: Program
    module: Module
    scope: Scope
    mode: Mode
    function: Function | None = None
    env: dict[str, Value] = field(default_factory=dict)
    raising: bool = False
    depth: int = 0  # of calls evaluated in place
    weak: frozenset[str] = frozenset()  # names that inner functions assign: what they hold here is not followed
    function_boxes: set[tuple[int, str]] = field(default_factory=set)

    def report(self, rule: str, node: ast.AST, what: str) -> None:
        """A finding at ``node``'s line."""
        self.program.report.add(rule, self.module.name, getattr(node, "lineno", 0), what)

    @property
    def strict(self) -> bool:
        """Do the torch rules of the kernels policy hold here?"""
        return self.mode == "code" and self.program.policy.name == "kernels"

    def look_up(self, name: str) -> Value | None:
        """What ``name`` may hold, or None where nothing defines it."""
        if name in self.env:
            return self.env[name]
        scope: Scope | None = self.scope
        if self.function is not None and name in self.function.globals:
            scope = self.module.scope
        stars: list[str] = []
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            stars += scope.stars
            scope = scope.parent
        if name in _BUILTIN_NAMES or name in tables.BUILTINS:
            return frozenset({Ext(f"builtins.{name}")})
        return frozenset({Ext(f"{library}.{name}") for library in stars}) or None

    def assign(self, name: str, value: Value) -> None:
        """Bind ``name``: from here on it is ``value``, and ever it may be."""
        if self.function is not None and name in self.function.globals:
            scope: Scope = self.module.scope
        elif self.function is not None and name in self.function.nonlocals:
            scope = self._outer(name)
        else:
            scope = self.scope
            if name not in self.weak:
                self.env[name] = value
        self.program.grow(scope.names, name, value)

    def _outer(self, name: str) -> Scope:
        """The scope around this one that ``nonlocal name`` means."""
        scope = self.scope.parent
        while scope is not None and scope.parent is not None and name not in scope.names:
            scope = scope.parent
        return scope or self.scope

    def mention(self, node: ast.AST, value: Value) -> Value:
        """Report every library member in ``value`` that may not be named here; return ``value``."""
        for atom in value:
            if isinstance(atom, Ext):
                self._mention(node, atom.path)
        return value

    def _mention(self, node: ast.AST, path: str) -> None:
        if path.startswith("builtins."):
            name = path[9:].split(".")[0]
            if name in tables.EXCEPTIONS_THAT_STOP:
                self.report("exit", node, f"{name} ends the process that judges this pass")
            elif name not in tables.BUILTINS and not _is_exception(name):
                self.report("builtin", node, f"{name} is not among the builtins that a pass may use")
            return
        if rule := self.program.policy.refuses(path, self.mode):
            self.report(rule, node, f"{path} is not allowed here")

    def holds(self, value: Value, mark: Mark) -> bool:
        """Is ``mark`` in ``value`` or, three levels down, in containers of it?"""
        todo: list[tuple[Atom, int]] = [(atom, 0) for atom in value]
        seen: set[Atom] = set()
        while todo:
            atom, depth = todo.pop()
            if atom is mark:
                return True
            if isinstance(atom, Box | Partial) and depth < 3 and atom not in seen:
                seen.add(atom)
                todo.extend((inner, depth + 1) for inner in self.program.contents(atom))
        return False

    def holds_tensor(self, *values: Value) -> bool:
        """Is there a tensor in one of ``values``?"""
        return any(self.holds(value, Mark.TENSOR) for value in values)

    def refuse_tensors(self, node: ast.AST, what: str, *values: Value, rule: str = "tensor-operator") -> None:
        """Report ``what`` where one of ``values`` holds a tensor and torch is not to compute here."""
        if self.strict and self.holds_tensor(*values):
            self.report(rule, node, what)

    def elements(self, value: Value) -> Value:
        """What iterating over ``value`` gives."""
        return join([self._elements_of(atom) for atom in value])

    def _elements_of(self, atom: Atom) -> Value:
        if isinstance(atom, Box | Partial):
            contents = self.program.heap.get(atom.site, {})
            if isinstance(atom, Box) and atom.site[1] == "dict":
                return join([_key(key) for key in contents])
            return join(contents.values())
        if atom in (Mark.TENSOR, Mark.MAYBE):
            return frozenset({atom})
        if isinstance(atom, Ext | Instance):
            return frozenset({Mark.MAYBE})
        if (
            isinstance(atom, Template)
            or atom is Mark.TEXT
            or (isinstance(atom, Const) and isinstance(atom.value, str))
        ):
            return frozenset({Mark.TEXT})
        return frozenset({Mark.SCALAR})


def _key(key: Atom | str) -> Value:
    return frozenset({Mark.SCALAR, Mark.TEXT}) if isinstance(key, str) else frozenset({key})


def _is_exception(name: str) -> bool:
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, Exception)
