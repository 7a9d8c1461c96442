"""The names that a package binds: those that say nothing about the value, and those that several classes share."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Each of these says how a value came, or that there is one, in place of what the value is.
VAGUE = frozenset(
    (
        "found", "one", "ones", "said", "told", "made", "known", "given", "kept", "seen", "wanted", "chosen",
        "own", "shown", "again", "asked", "brought", "came", "gone", "got", "had", "have", "heard", "held",
        "meant", "mine", "needed", "noted", "ours", "taken", "theirs", "went", "anything", "something",
        "stuff", "thing", "things", "whatever",
    )
)  # fmt: skip


@dataclass
class Names:
    """The bound names of some files."""

    bound: int = 0
    vague: Counter[str] = field(default_factory=Counter)
    places: list[str] = field(default_factory=list)  # of vague names: "room/module.py:12: binds 'found'"
    classes: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """The vague names' share of all bound names, in per cent."""
        return 100 * self.vague.total() / self.bound if self.bound else 0.0

    @property
    def twice(self) -> dict[str, int]:
        """The names that more than one class has, and how many classes have each."""
        return {name: count for name, count in self.classes.most_common() if count > 1}


def bound_names(package: Path, paths: list[Path]) -> Names:
    """Return the names that these Python files of the package bind."""
    names = Names()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names.classes[node.name.lstrip("_")] += 1
            for name in _bindings(node):
                names.bound += 1
                if name.strip("_").lower() in VAGUE:
                    names.vague[name.strip("_").lower()] += 1
                    names.places.append(f"{path.relative_to(package)}:{getattr(node, 'lineno', 1)}: binds {name!r}")
    return names


def _bindings(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.alias(asname=str(name)):
            yield name
