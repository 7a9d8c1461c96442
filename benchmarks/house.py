"""Figures of the project: how large it is, what its names say, and how its prose reads.

    python benchmarks/house.py                 # each figure with its limit, and a table of the rooms
    python benchmarks/house.py --check         # the figures alone; exit code 1 if one is beyond its limit
    python benchmarks/house.py --list judge    # also every place in judge/ that a rule of style is about

The limits lie in benchmarks/house.toml. They are lowered as the project gets better. A commit that raises
one says why.

A name is *vague* if it says how a value came (``found``, ``kept``) in place of what the value is. All names that are
bound count: variables, attributes, parameters, functions and classes.

Docstrings: ``wh`` open with What, Which, Who, Whose, Where, When, Whether, How or Why; ``bare`` with Of, Those, None,
and the like. Sentences count as long above 25 words. ``Any`` is the share of annotations that are or contain it.
``room`` is a folder of the package.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bindings import Names, bound_names
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "pytest_passbench"
LIMITS = Path(__file__).with_name("house.toml")
WH = ("what", "which", "who", "whose", "whom", "where", "when", "whether", "how", "why")
BARE = (
    "of", "those", "none", "one", "as", "to", "in", "by", "for", "from", "at", "on", "nothing", "no", "all", "every",
)  # fmt: skip
LONG = 25  # words of a sentence
DIALECT = ("where there is none", "where there are none", "is none", "that is no ", "whoever", "is no length")


@dataclass
class House:
    """The counts of some files."""

    files: list[int] = field(default_factory=list)  # lines of each
    functions: list[int] = field(default_factory=list)  # lines of each
    private: int = 0
    opened: dict[str, int] = field(default_factory=dict)  # docstrings by how they open
    sentences: list[int] = field(default_factory=list)  # words of each
    annotations: int = 0
    any: int = 0
    places: list[str] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """Return the figures, by heading."""
        docstrings = sum(self.opened.values())
        return {
            "files": len(self.files),
            "lines": sum(self.files),
            "longest": max(self.files),
            "functions": len(self.functions),
            "median": statistics.median(self.functions) if self.functions else 0,
            "p95": sorted(self.functions)[int(0.95 * len(self.functions))] if self.functions else 0,
            "private %": _share(self.private, len(self.functions)),
            "docstrings": docstrings,
            "wh %": _share(self.opened.get("wh", 0), docstrings),
            "bare %": _share(self.opened.get("bare", 0), docstrings),
            "long sentences %": _share(sum(words > LONG for words in self.sentences), len(self.sentences)),
            "Any %": _share(self.any, self.annotations),
        }


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def count(paths: list[Path]) -> House:
    """Return the figures of these Python files."""
    house = House()
    for path in paths:
        text = path.read_text()
        house.files.append(text.count("\n"))
        where = path.relative_to(PACKAGE)
        for node, docstring in _docstrings(ast.parse(text)):
            line = getattr(node, "lineno", 1)
            _prose(house, docstring, f"{where}:{line}")
        _comments(house, text, where)
        _functions(house, ast.parse(text))
    return house


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node, docstring


def _prose(house: House, docstring: str, place: str) -> None:
    words = re.findall(r"[A-Za-z']+", docstring)
    first = words[0].lower() if words else ""
    kind = "wh" if first in WH else "bare" if first in BARE else "other"
    house.opened[kind] = house.opened.get(kind, 0) + 1
    if kind != "other":
        house.places.append(f"{place}: opens with {first!r}: {docstring.splitlines()[0][:80]}")
    _sentences(house, docstring, place)


def _sentences(house: House, text: str, place: str) -> None:
    prose = re.sub(r"\n\s*\n", ". ", re.sub(r"(?m)^ {4,}.*$", "", text))  # without indented examples
    for sentence in re.split(r"(?<=[.!?;:])\s+", prose):
        length = len(sentence.split())
        if length:
            house.sentences.append(length)
        if length > LONG:
            house.places.append(f"{place}: {length} words: {' '.join(sentence.split())[:80]}")
    house.places += [f"{place}: dialect: {phrase!r}" for phrase in DIALECT if phrase in " ".join(text.split())]


def _comments(house: House, text: str, where: Path) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.search(r"(?:^|\s)#:? (.*)$", line)
        if comment and not re.match(r"(noqa|fmt|type|ruff)\b", comment.group(1)):
            _sentences(house, comment.group(1), f"{where}:{number}")


def _functions(house: House, tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            house.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
            house.private += node.name.startswith("_") and not node.name.startswith("__")
            for annotation in [*(a.annotation for a in node.args.args + node.args.kwonlyargs), node.returns]:
                if annotation is not None:
                    house.annotations += 1
                    house.any += any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(annotation))


def figures(files: list[Path], names: Names, house: House) -> dict[str, float]:
    """Return the figures that may have a limit, by name; those of the repository only for its own package."""
    sizes: dict[str, float] = {
        "package lines": sum(house.files),
        "package modules": len(files),
        "longest module": max(house.files),
        "longest function": max(house.functions, default=0),
        "vague names %": round(names.share, 2),
        "class names for two things": len(names.twice),
    }
    if PACKAGE.parent == ROOT:
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
        pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md"]
        sizes["docs words"] = sum(len(page.read_text().split()) for page in pages)
        sizes["tracked files"] = len(tracked.stdout.splitlines())  # 0 in a copy without git
    return sizes


def rooms_table(files: list[Path]) -> str:
    """Return a table with a row for each room, and a row for all of them."""
    rooms: dict[str, list[Path]] = {}
    for path in files:
        parts = path.relative_to(PACKAGE).parts
        depth = 2 if parts[0] == "judge" and len(parts) > 2 else 1
        rooms.setdefault("/".join(parts[:depth]) if len(parts) > 1 else ".", []).append(path)
    rows = [{"room": room, **_row(paths)} for room, paths in [*rooms.items(), ("all", files)]]
    return tabulate(rows, headers="keys")


def _row(paths: list[Path]) -> dict[str, object]:
    return {**count(paths).row(), "vague %": round(bound_names(PACKAGE, paths).share, 1)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--package", type=Path, default=PACKAGE, metavar="DIR", help="the package to look at")
    parser.add_argument("--limits", type=Path, default=LIMITS, metavar="FILE", help="the limits")
    parser.add_argument("--check", action="store_true", help="print the figures alone; exit code 1 beyond a limit")
    parser.add_argument("--list", metavar="ROOM", help="print the places in a room (a folder, or . for all)")
    return parser.parse_args()


def main() -> int:
    """Print the figures and a row per room. Return 1 with ``--check`` if a figure is beyond its limit."""
    arguments = _arguments()
    globals()["PACKAGE"] = arguments.package.resolve()
    files = sorted(path for path in PACKAGE.rglob("*.py") if "tasks" not in path.relative_to(PACKAGE).parts)
    names = bound_names(PACKAGE, files)
    limits = tomllib.loads(arguments.limits.read_text())["limits"]
    sizes = figures(files, names, count(files))
    print(tabulate([(name, size, limits.get(name, "")) for name, size in sizes.items()], ["figure", "now", "limit"]))
    broken = [name for name, size in sizes.items() if size > limits.get(name, size)]
    if not arguments.check:
        print("", rooms_table(files), "", sep="\n")
        print("vague names:", ", ".join(f"{name} {number}" for name, number in names.vague.most_common()))
        print("class names for two things:", ", ".join(f"{name} {number}" for name, number in names.twice.items()))
    if arguments.list:
        listed = [path for path in files if arguments.list == "." or path.is_relative_to(PACKAGE / arguments.list)]
        print(*count(listed).places, *bound_names(PACKAGE, listed).places, sep="\n")
    for name in broken:
        print(f"{name}: {sizes[name]} is beyond the limit of {limits[name]} ({arguments.limits})", file=sys.stderr)
    return int(arguments.check and bool(broken))


if __name__ == "__main__":
    sys.exit(main())
