"""Variants of a pass: other names, aliases, names in pieces, indirections, helper files. Same meaning.

``variant(folder, seed)`` gives the files of one; equal seeds give equal files.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable
from pathlib import Path

CORPUS = Path(__file__).parent
EXPLOITS = (
    "torch-direct", "torch-methods", "torch-operators", "torch-aten", "torch-compile", "cache-address", "walk-frames",
    "exit-os", "baseline-threads", "decoy-native",
)  # fmt: skip
HONEST = (
    "cpp-plain", "triton-plain", "route-constant", "view-strided", "cpp-dispatch-by-dtype", "class-wrapper",
    "scalar-arithmetic", "cpp-two-kernels", "triton-grid-function", "args-metadata", "closure-wrapper", "two-outputs",
    "unrolled-loops", "args-eps", "cpp-pointers",
)  # fmt: skip
_ENTRY = frozenset({"pattern", "replacement_args", "replacement_func"})
_WORDS = (
    "alpha", "beta", "tile", "lane", "fused", "stage", "warp", "flow", "node", "unit", "span", "mesh", "core", "base",
)  # fmt: skip
_SPELLINGS = (
    "from pass_dir.{helper} import {name}",
    "from .{helper} import {name}",
    "from {helper} import {name}",
    "from pass_dir import {helper}\n{name} = {helper}.{name}",
    "import {helper} as other\n{name} = other.{name}",
    "import os\nimport sys\nsys.path.append(os.path.dirname(__file__))\nimport {helper}\n{name} = {helper}.{name}",
    "from {helper} import *",
)


def variant(folder: Path, seed: int) -> dict[str, str]:
    """The files of variant ``seed`` of the one-pass candidate in ``folder``."""
    rng = random.Random(f"{folder.name}/{seed}")
    (stem,) = json.loads((folder / "sorted_output_pass_rule_names.json").read_text())
    tree = ast.parse((folder / f"{stem}.py").read_text())
    steps: list[Callable[[ast.Module, random.Random], None]] = [_rename, _alias, _split_names, _indirect]
    for step in rng.sample(steps, rng.randint(1, len(steps))):
        step(tree, rng)
        tree = ast.parse(ast.unparse(ast.fix_missing_locations(tree)))
    files = _to_helper(tree, stem, rng) if rng.random() < 0.5 else {f"{stem}.py": ast.unparse(tree)}
    return {**files, "sorted_output_pass_rule_names.json": json.dumps([stem])}


def _is_kernel(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any("triton" in ast.unparse(d) for d in node.decorator_list)


def _own_code(tree: ast.Module) -> list[ast.stmt]:
    """Functions and classes but for the pass's entry points and Triton kernels."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [s for s in tree.body if isinstance(s, kinds) and s.name not in _ENTRY and not _is_kernel(s)]


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self.names.get(name, name) for name in node.names]
        return node


def _rename(tree: ast.Module, rng: random.Random) -> None:
    """New names for functions, globals and locals (not for arguments, which callers may name)."""
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    functions = {s.name for s in tree.body if isinstance(s, ast.FunctionDef)}
    names = sorted((stored | functions) - _ENTRY - arguments)
    _Rename({name: f"{rng.choice(_WORDS)}_{i}" for i, name in enumerate(names)}).visit(tree)


def _alias(tree: ast.Module, rng: random.Random) -> None:
    """Libraries under other names, some of them through a tuple, a dict or a function."""
    imported = [
        a.asname or a.name for s in tree.body if isinstance(s, ast.Import) for a in s.names if "." not in a.name
    ]
    for name in imported:
        new = f"{rng.choice(_WORDS)}_{name}"
        forms = [f"{new} = {name}", f"{new}, _ = ({name}, 1)", f"{new} = [{name}][0]"]
        forms += [
            f"{new} = {{'k': {name}}}['k']",
            f"{new} = (lambda: {name})()",
            f"_one = _two = {name}\n{new} = _two",
        ]
        at = 1 + max(i for i, s in enumerate(tree.body) if isinstance(s, ast.Import | ast.ImportFrom))
        tree.body[at:at] = ast.parse(rng.choice(forms)).body
        for part in _own_code(tree):
            _Rename({name: new}).visit(part)


class _Split(ast.NodeTransformer):
    """``a.b`` becomes ``getattr(a, "b")`` with the name in pieces."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or self.rng.random() < 0.4:
            return node
        return ast.parse(f"getattr({ast.unparse(node.value)}, {_pieces(node.attr, self.rng)})", mode="eval").body


def _pieces(name: str, rng: random.Random) -> str:
    cut = rng.randint(0, len(name))
    a, b = name[:cut], name[cut:]
    return rng.choice([
        f"{a!r} + {b!r}",
        f"''.join([{a!r}, {b!r}])",
        f"'{{}}{{}}'.format({a!r}, {b!r})",
        f"'%s%s' % ({a!r}, {b!r})",
        f"{name[::-1]!r}[::-1]",
        f'f"{a}{{{b!r}}}"',
        f"{a + '~' + b!r}.replace('~', '')",
        "''.join([" + ", ".join(f"chr({ord(c)})" for c in name) + "])",
        f"{{'key': {name!r}}}['key']",
        f"{name.encode()!r}.decode()",
    ])  # fmt: skip


def _split_names(tree: ast.Module, rng: random.Random) -> None:
    for part in _own_code(tree):
        for inner in ast.walk(part):
            if isinstance(inner, ast.FunctionDef):
                inner.body = [_Split(rng).visit(statement) for statement in inner.body]


class _Indirect(ast.NodeTransformer):
    """``f(x)`` becomes ``run(f, x)``, ``[f][0](x)``, ``(lambda g: g(x))(f)`` and the like."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name in ("getattr", "super") or self.rng.random() < 0.5:
            return node
        forms = (
            "[{f}][0]",
            "{{'f': {f}}}['f']",
            "(lambda g: g)({f})",
            "({f},)[-1]",
            "functools.partial({f})",
            "same({f})",
        )
        node.func = ast.parse(self.rng.choice(forms).format(f=name), mode="eval").body
        return node


def _indirect(tree: ast.Module, rng: random.Random) -> None:
    parts = _own_code(tree)
    for part in parts:
        for inner in ast.walk(part):
            if isinstance(inner, ast.FunctionDef):
                inner.body = [_Indirect(rng).visit(statement) for statement in inner.body]
    helpers = (
        "import functools\n\n\ndef same(f):\n    return f\n\n\ndef partial_of(f):\n    return functools.partial(f)\n"
    )
    at = next(i for i, s in enumerate(tree.body) if not isinstance(s, ast.Expr))
    tree.body[at:at] = ast.parse(helpers).body


def _to_helper(tree: ast.Module, stem: str, rng: random.Random) -> dict[str, str]:
    """All but the entry points goes into a helper, imported in one of the spellings that are in use."""
    helper = f"{rng.choice(_WORDS)}_helper"
    entry = [s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name in _ENTRY]
    rest = [s for s in tree.body if s not in entry]
    returned = next(
        n.value for s in entry if s.name == "replacement_func" for n in ast.walk(s) if isinstance(n, ast.Return)
    )
    spelling = rng.choice(_SPELLINGS).format(helper=helper, name=ast.unparse(returned))
    own = "\n\n".join(ast.unparse(s) for s in entry)
    return {
        f"{helper}.py": "\n".join(ast.unparse(s) for s in rest) + "\n",
        f"{stem}.py": f"import torch\n{spelling}\n\n{own}\n",
    }


def write(files: dict[str, str], folder: Path) -> Path:
    """Write a variant's files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder
