"""Which files a candidate has: the passes, what they import, and what does not belong there."""

from __future__ import annotations

import ast
import io
import json
import stat
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

from pytest_passbench.candidate.audit import native
from pytest_passbench.candidate.audit.findings import Report
from pytest_passbench.candidate.audit.program import Module, Program, Scope
from pytest_passbench.candidate.audit.tables import IMPORTABLE, words

MANIFEST = "sorted_output_pass_rule_names.json"
_CODE = words("""
    .pyc .pyo .so .pyd .dll .dylib .o .a .obj .pkl .pickle .pt .pth .zip .egg .whl .pyz .cubin .ptx
    .npy""")
_TAKEN_UP = words("""
    conftest.py sitecustomize.py usercustomize.py""")
_NATIVE = words("""
    .cpp .cc .cxx .c .cu .cuh .h .hpp .inl .ipp""")
_ENCODINGS = frozenset({"utf-8", "utf-8-sig", "ascii", "iso-8859-1"})
_LARGEST = 4 << 20


def pass_folders(path: Path) -> list[Path]:
    """The pass directories below ``path``, itself among them, in order of their names."""
    return sorted(
        {found.parent for found in path.rglob(MANIFEST)} | ({path} if (path / MANIFEST).is_file() else set())
    )


def stems(folder: Path) -> list[str]:
    """The passes of one directory as its manifest lists them; none where it cannot be read."""
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [item.removesuffix(".py") for item in listed if isinstance(item, str)] if isinstance(listed, list) else []


def survey(root: Path, report: Report) -> None:
    """Report files of the candidate that hide code, or that a Python process takes up by itself."""
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            if not path.resolve().is_relative_to(root.resolve()):
                report.add("link", name, 0, "a link that leads out of the folder")
        elif stat.S_ISREG(mode):
            _look(path, name, report)
        elif not stat.S_ISDIR(mode):
            report.add("hidden-code", name, 0, "not a plain file")


def _look(path: Path, name: str, report: Report) -> None:
    suffix = path.suffix.lower()
    if suffix == ".pyc" and path.parent.name == "__pycache__":
        source = path.parent.parent / (path.name.split(".")[0] + ".py")
        known = source.is_file() and _is_timestamped(path)
        report.add("stale-bytecode" if known else "hidden-code", name, 0, "byte code")
    elif suffix in _CODE:
        report.add("hidden-code", name, 0, f"a {suffix} file")
    elif path.name in _TAKEN_UP:
        report.add("hidden-code", name, 0, f"{path.name} is run by whoever finds it")
    elif suffix in _NATIVE:
        _screen(path, name, report)


def _is_timestamped(path: Path) -> bool:
    """Byte code that Python would check against its source's time and size."""
    with path.open("rb") as file:
        return file.read(8)[4:8] == b"\0\0\0\0"


def _screen(path: Path, name: str, report: Report) -> None:
    text = path.read_bytes()[:_LARGEST].decode("utf-8", "replace")
    for line, rule, what in native.screen(text):
        report.add(rule, name, line, what)


def load(program: Program, path: Path, root: Path, *, is_pass: bool) -> Module | None:
    """The module of ``path``, parsed on first sight; None where it cannot be."""
    path = path.absolute()
    known = program.by_path.get(path)
    if known is not None:
        return known
    name = _shown(path, program.root)
    tree = _parse(path, name, program.report)
    if tree is None:
        return None
    module = Module(len(program.modules), path, name, root, tree, Scope(None), is_pass)
    if path.stem in IMPORTABLE or path.stem in ("triton", "torch"):
        program.report.add("shadow", name, 1, f"{path.name} has a library's name")
    program.modules.append(module)
    program.by_path[path] = module
    program.changed = True
    return module


def _shown(path: Path, root: Path) -> str:
    base = root.absolute()
    return str(path.relative_to(base)) if path.is_relative_to(base) else path.name


def _parse(path: Path, name: str, report: Report) -> ast.Module | None:
    muted, report.muted = report.muted, False
    try:
        return _tree(path, name, report)
    finally:
        report.muted = muted


def _tree(path: Path, name: str, report: Report) -> ast.Module | None:
    try:
        data = path.read_bytes()
    except OSError as error:
        report.add("unreadable", name, 0, str(error))
        return None
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        if encoding not in _ENCODINGS:
            report.add("encoding", name, 1, f"encoding {encoding}")
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data, filename=name)
    except SyntaxError as error:
        report.add("syntax", name, error.lineno or 0, f"syntax error: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        report.add("unreadable", name, 0, f"{type(error).__name__} while parsing")
    return None


def shadows(folder: Path, report: Report, root: Path) -> Iterator[str]:
    """Names of files in a pass folder that would hide a library once the folder is on ``sys.path``."""
    for path in sorted(folder.glob("*")):
        name = path.stem if path.suffix == ".py" else path.name if path.is_dir() else ""
        if name in IMPORTABLE and (path.suffix == ".py" or any(path.glob("*.py"))):
            report.add("shadow", _shown(path.absolute(), root), 0, f"{path.name} has a library's name")
            yield name
