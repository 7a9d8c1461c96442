"""What a pass file says, read from its syntax tree."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REQUIRED = ("pattern", "replacement_args", "replacement_func")


@dataclass(frozen=True)
class Fault:
    """A pass that cannot work, by its author's fault (status ``compile_fail``)."""

    stem: str
    file: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


def read_fault(file: Path, stem: str) -> Fault | None:
    """What is wrong with a pass file: a syntax error, or one of its three functions missing. None if
    nothing is.
    """
    try:
        tree = parse(file)
    except SyntaxError as error:
        return Fault(stem, file, error.lineno or 1, f"syntax error: {error.msg}")
    except (ValueError, RecursionError, MemoryError, OSError) as error:
        return Fault(stem, file, 1, f"cannot be parsed: {error or type(error).__name__}")
    names = set(_defined(tree.body))
    missing = [name for name in REQUIRED if name not in names]
    if missing and "*" not in names:
        return Fault(stem, file, 1, f"defines no {' and no '.join(missing)}")
    return None


def parse(file: Path) -> ast.Module:
    """The file's syntax tree. Raises SyntaxError, ValueError (null bytes), OSError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape in a candidate's string is no matter of ours
        return ast.parse(file.read_bytes(), str(file))


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    """The names that a module's top level binds; ``*`` where it takes all of another module's."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            for block in ("body", "orelse", "finalbody"):
                yield from _defined(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                yield from _defined(handler.body)


def imports_triton(file: Path) -> bool:
    """Whether a Python file imports Triton anywhere. A file that does not parse imports nothing."""
    try:
        tree = parse(file)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        return False
    return any(name.partition(".")[0] == "triton" for node in ast.walk(tree) for name in _imported(node))


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module or ""]
    return []
