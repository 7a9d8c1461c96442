"""The lines of a candidate's files that the lines of a kernel's C++ text come from.

A text may stand in a string of a Python file or in a file of its own, or be joined from several pieces. So a line is
looked for together with its neighbours, and no file is parsed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from pytest_passbench.candidate.files import files

_SUFFIXES = frozenset({".py", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".inc", ".txt"})
_MAX_FILES, _MAX_FILE_BYTES = 500, 1 << 20
_MAX_NEIGHBOURS = 200  # fewer lines than this are compared on either side
_MIN_CHARACTERS = 12  # in all lines that agree; fewer may agree by chance
_ESCAPES = str.maketrans("", "", " \t\\")


def origin(folder: Path, source: str, line: int, first: Iterable[str] = ()) -> tuple[str, int] | None:
    """Return the file (relative to ``folder``) and line that line ``line`` (from 1) of a kernel's text comes from.

    Of several such lines, it is the one with the most equal neighbours. If that leaves several, it is the first one,
    and files named in ``first`` come first. Return None if there is none, for example because the text is generated.
    """
    lines = [_plain(text) for text in source.split("\n")]
    place = line - 1
    if not (0 <= place < len(lines) and lines[place]):
        return None
    best, best_place = _MIN_CHARACTERS - 1, None
    for name, there in _texts(folder, tuple(first)):
        for at, text in enumerate(there):
            if lines[place] in text and (size := _agreement(lines, place, there, at)) > best:
                best, best_place = size, (name, at + 1)
    return best_place


def _plain(text: str) -> str:
    """Return a line without what Python may add to it in a string: escapes, double braces and other indentation."""
    return text.translate(_ESCAPES).replace("{{", "{").replace("}}", "}")


def _texts(folder: Path, first: tuple[str, ...]) -> Iterable[tuple[str, list[str]]]:
    """Yield the names and lines of the files that may hold a text, those in ``first`` before the others."""
    paths = islice((path for path in files(folder) if path.suffix in _SUFFIXES), _MAX_FILES)
    for path in sorted(paths, key=lambda path: str(path.relative_to(folder)) not in first):
        with path.open("rb") as stream:
            data = stream.read(_MAX_FILE_BYTES + 1)
        if len(data) <= _MAX_FILE_BYTES:
            text = data.decode("utf-8", "replace").replace("\r\n", "\n")
            yield str(path.relative_to(folder)), [_plain(line) for line in text.split("\n")]


def _agreement(lines: list[str], place: int, there: list[str], at: int) -> int:
    """Return the number of characters of a line and of the neighbours on either side that are equal without a gap."""
    size = len(lines[place])
    for step in (-1, 1):
        for far in range(step, step * _MAX_NEIGHBOURS, step):
            first, other = place + far, at + far
            if not (0 <= first < len(lines) and 0 <= other < len(there)) or lines[first] != there[other]:
                break
            size += len(lines[first])
    return size
