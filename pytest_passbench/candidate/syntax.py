"""Facts about a pass file, read from its syntax tree. Limits on the text's size and depth also limit the time."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pytest_passbench.core.complexity import TooComplex, check_complexity

MAX_BYTES = 1 << 20  # of a file
_DECLARED = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_UTF_8 = frozenset({"utf-8", "utf8", "utf-8-sig", "utf8-sig", "ascii", "us-ascii"})
REQUIRED = ("pattern", "replacement_args", "replacement_func")
REGION = ("supported", "replacement_func")  # of a region pass
REGISTER = "register_replacement"  # the function of TorchInductor's that a pass of its own calls


@dataclass(frozen=True)
class Fault:
    """A pass that cannot work because of a mistake in its file (status ``compile_fail``)."""

    file: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


def read_fault(file: Path) -> Fault | None:
    """Return the fault of a pass file (a syntax error or a missing function), or None if it has none."""
    try:
        tree = parse(file)
    except SyntaxError as error:
        return Fault(file, error.lineno or 1, f"syntax error: {error.msg}")
    except TooComplex as error:
        return Fault(file, error.line, str(error))
    except (ValueError, OSError) as error:
        return Fault(file, 1, f"cannot be parsed: {error}")
    names, kind = set(_defined(tree.body)), _kind(tree)
    if kind == "inductor":
        return None
    required = REGION if kind == "region" else REQUIRED
    missing = [name for name in required if name not in names]
    if missing and "*" not in names:
        similar = [close for name in missing for close in get_close_matches(name, names - set(required), n=1)]
        hint = f" (it has {', '.join(similar)}: rename it)" if similar else ""
        return Fault(file, 1, f"defines no {' and no '.join(missing)}{hint}")
    return None


def pass_kind(file: Path) -> str:
    """Return the kind of a pass file: "region", "inductor" or "pattern", also "pattern" if it cannot be parsed."""
    try:
        return _kind(parse(file))
    except (SyntaxError, TooComplex, ValueError, OSError):
        return "pattern"


def _kind(tree: ast.Module) -> str:
    names = set(_defined(tree.body))
    if "supported" in names and "pattern" not in names:
        return "region"
    return "inductor" if not names & {*REQUIRED, *REGION} and _registers(tree) else "pattern"


def _registers(tree: ast.Module) -> bool:
    """Return True if a module calls TorchInductor's ``register_replacement``, by whatever path."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(REGISTER in (getattr(call, "id", ""), getattr(call, "attr", "")) for call in calls)


def parse(file: Path) -> ast.Module:
    """Return the file's syntax tree.

    Raises SyntaxError, TooComplex, OSError, and ValueError for null bytes and for a text that is not UTF-8.
    """
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TooComplex(1, f"more than {MAX_BYTES} bytes")
    text = _decode(data)
    check_complexity(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escapes: they are the author's matter
            return ast.parse(text, str(file))
    except (RecursionError, MemoryError):
        raise TooComplex(1, "nested too deeply") from None


def _decode(data: bytes) -> str:
    """Return the text, with ``\\n`` at the end of each line. Raises ValueError if it is not UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start})") from None
    if "\0" in text:
        raise ValueError("contains null bytes")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for line in text.split("\n", 2)[:2]:
        declared = _DECLARED.match(line)
        if declared and declared[1].lower().replace("_", "-") not in _UTF_8:
            raise ValueError(f"is not UTF-8 but declares {declared[1][:40]}")
        if line.strip() and not line.lstrip().startswith("#"):
            break  # a declaration counts in the second line only below a comment
    return text


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that a module's top level binds, and ``*`` for an import of all names."""
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
