"""The candidate as the analysis sees it: its files, functions, classes and containers, and what they hold."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from pytest_passbench.candidate.audit.findings import Report
from pytest_passbench.candidate.audit.policy import Policy
from pytest_passbench.candidate.audit.values import (
    MAYBE,
    NOTHING,
    Atom,
    Box,
    ClassRef,
    FuncRef,
    Instance,
    Partial,
    Value,
    join,
)

# Where code runs: at import, in a replacement (kernels, wrappers, replacement_args), or inside a pattern.
Mode = Literal["module", "code", "pattern"]
Callable_ = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
REST = "*"
Key = TypeVar("Key", bound=Hashable)


@dataclass
class Scope:
    """Names of one module, function or class: everything they are ever bound to."""

    parent: Scope | None
    names: dict[str, Value] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)  # libraries imported with *


@dataclass
class Module:
    """One Python file of the candidate; ``name`` is its path as shown in findings."""

    index: int
    path: Path
    name: str
    root: Path  # the pass folder that its imports are resolved in
    tree: ast.Module
    scope: Scope
    is_pass: bool


@dataclass
class Function:
    """A function or lambda with what its parameters and its result may be."""

    key: int
    node: Callable_
    module: Module
    scope: Scope
    is_pattern: bool = False
    kernel: bool = False
    cached: bool = False
    is_property: bool = False
    generator: bool = False
    params: dict[str, Value] = field(default_factory=dict)
    result: Value = NOTHING
    callers: set[Mode] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "<lambda>")

    @property
    def mode(self) -> Mode:
        """Pattern code only if nothing but patterns calls it; code that nothing calls counts as code."""
        for mode in ("code", "module", "pattern"):
            if mode in self.callers:
                return mode
        return "pattern" if self.is_pattern else "code"


@dataclass
class Class:
    """A class of the candidate; ``attributes`` are those of all its instances together."""

    key: int
    node: ast.ClassDef
    module: Module
    scope: Scope
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass
class Program:
    """All tables, and whether the last round added to any of them."""

    policy: Policy
    report: Report
    root: Path
    modules: list[Module] = field(default_factory=list)
    by_path: dict[Path, Module] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    by_node: dict[int, Function] = field(default_factory=dict)
    classes: dict[int, Class] = field(default_factory=dict)
    heap: dict[tuple[int, str], dict[Atom | str, Value]] = field(default_factory=dict)
    function_attributes: dict[str, Value] = field(default_factory=dict)
    attribute_names: set[str] = field(default_factory=set)
    # One call node per decorator, kept: what is made at it is known by the node's identity.
    stand_ins: dict[int, ast.Call] = field(default_factory=dict)
    assigned_inside: dict[int, frozenset[str]] = field(default_factory=dict)
    changed: bool = False
    settled: bool = False  # all calls are known: what has no caller by now may be called with anything

    def grow(self, table: dict[Key, Value], key: Key, value: Value) -> None:
        """Join ``value`` into ``table[key]`` and note whether that changed it."""
        old = table.get(key, NOTHING)
        if not value <= old:
            table[key] = join((old, value))
            self.changed = self.changed or table[key] != old

    def grow_box(self, site: tuple[int, str], key: Atom | str, value: Value) -> None:
        """Put ``value`` under ``key`` into a container."""
        contents = self.heap.setdefault(site, {})
        if not isinstance(key, str) and len(contents) > 256:
            key = REST
        self.grow(contents, key, value)

    def box(self, node: ast.AST, kind: str, items: dict[Atom | str, Value]) -> Value:
        """The container made at ``node``, holding ``items`` from now on."""
        site = (id(node), kind)
        self.heap.setdefault(site, {})
        for key, value in items.items():
            self.grow_box(site, key, value)
        return frozenset({Box(site)})

    def contents(self, box: Box | Partial) -> Value:
        """Everything that a container may hold."""
        return join(self.heap.get(box.site, {}).values())

    def function(self, node: Callable_, module: Module, parent: Scope) -> Function:
        """The function defined at ``node``, entered on first sight."""
        known = self.by_node.get(id(node))
        if known is None:
            known = Function(len(self.functions), node, module, Scope(parent))
            known.generator = not isinstance(node, ast.Lambda) and _yields(node)
            self.functions.append(known)
            self.by_node[id(node)] = known
            self.changed = True
        return known

    def called(self, function: Function, mode: Mode) -> None:
        """Note that code in ``mode`` calls ``function``."""
        if mode not in function.callers:
            function.callers.add(mode)
            self.changed = True

    def bind(self, function: Function, args: list[Value], named: dict[str, Value], rest: Value, mode: Mode) -> Value:
        """A call: join the arguments into the parameters; ``rest`` may land in any of them."""
        self.called(function, mode)
        if mode == "pattern":
            return MAYBE
        spec = function.node.args
        positional = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
        for name, value in zip(positional, args, strict=False):
            self.grow(function.params, name, value)
        extra = join([*args[len(positional) :], rest])
        if spec.vararg:
            self.grow(function.params, spec.vararg.arg, extra)
        for name in (*positional, *(arg.arg for arg in spec.kwonlyargs)):
            self.grow(function.params, name, join((named.get(name, NOTHING), rest)))
        if spec.kwarg:
            self.grow(function.params, spec.kwarg.arg, join([*named.values(), rest]))
        return function.result

    def escape(self, value: Value, mode: Mode, argument: Value = MAYBE) -> None:
        """``value`` leaves our sight: whatever functions it holds may be called with ``argument``.

        Also of what is given away at import (a hook of Triton's) the call comes later, on real inputs.
        """
        mode = "code" if mode == "module" else mode
        seen: set[Atom] = set()
        todo = list(value)
        while todo:
            atom = todo.pop()
            if atom in seen:
                continue
            seen.add(atom)
            if isinstance(atom, FuncRef):
                self.bind(self.functions[atom.key], [], {}, argument, mode)
            elif isinstance(atom, Box | Partial):
                todo.extend(self.contents(atom))
            elif isinstance(atom, Instance | ClassRef):
                todo.extend(join(self.classes[atom.key].scope.names.values()))


def _yields(node: ast.AST) -> bool:
    return any(isinstance(item, ast.Yield | ast.YieldFrom) for item in ast.walk(node))
