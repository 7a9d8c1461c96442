"""Errors of kernels that do not compile, from a compiler's output, at the lines of the candidate's files.

They are in words for the candidate's author, with excerpts. The forms of a compiler's errors are those of GCC and
Clang with ``LC_ALL=C``. Notes, warnings and excerpts are left out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.candidate.origin import origin
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.rejected import Rejected

LIMIT = "limit"
"""The rule of a :class:`CompileFailed` for a kernel that takes more time, memory or room than a kernel may."""

MAX_ERRORS = 3  # of a kernel, that are shown
_PLACE = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?P<column>\d+): +(?P<said>.*)")
_ERROR = re.compile(r"(?:fatal )?error: (?P<message>.*)")
_LINKER = re.compile(r"undefined reference to .*|multiple definition of [^;]*")
#: The last message of a compiler's driver, which quotes nothing of the text.
_DRIVER = re.compile(r"^[^\s:<]+: (?:fatal|internal compiler) error: .*", re.M)
_TEXT = "<stdin>"
_SHORT_OF = (
    ("memory", "out of memory", "memory exhausted", "Cannot allocate memory", "bad_alloc", "MemoryError"),
    ("room", "File size limit", "No space left", "file truncated", "File too large"),
    ("time", "CPU time limit", "Terminated", "Killed"),
)
_MAX_MESSAGE_CHARACTERS, _MAX_EXCERPT_CHARACTERS = 160, 90
_INDENT = "    "
_CUT = "..."  # stands for the rest of a line


@dataclass(frozen=True)
class SourceError:
    """An error at a line and column of a kernel's text, both counted from 1. Column 0 stands for the whole line."""

    line: int
    column: int
    message: str


def source_errors(output: str) -> tuple[SourceError, ...]:
    """Return the errors in a kernel's text, in the compiler's order, at most one for each place.

    An error in a header counts only if there is no other. It then stands at the place that the header was used from.
    The first error at a place counts: a template's errors are repeated for each type.
    """
    errors = list(_errors(output.splitlines()))
    direct = [error for error, used in errors if not used]
    reported = direct or [error for error, _used in errors]
    return tuple({(error.line, error.column): error for error in reversed(reported)}.values())[::-1]


def linker_errors(output: str) -> tuple[str, ...]:
    """Return the linker's errors, each once."""
    return tuple(dict.fromkeys(match[0] for line in output.splitlines() if (match := _LINKER.search(line))))


def unshown(errors: int) -> list[str]:
    """Return the line that stands for the errors after the first :data:`MAX_ERRORS`, or nothing if there are none."""
    more = errors - MAX_ERRORS
    return [f"and {counted(more, 'more error')}"] if more > 0 else []


def _errors(lines: list[str]) -> Iterator[tuple[SourceError, bool]]:
    """Yield each error with a place in the text, and whether that place is only where a header was used."""
    used: tuple[int, int] | None = None  # GCC names the innermost place of use first, before the error
    waiting = ""  # Clang names the places of use after the error
    for line in lines:
        if ": In instantiation of " in line or ": In substitution of " in line:
            used = None
        place = _PLACE.match(line)
        if place is None:
            continue
        inside, at = place["file"] == _TEXT, (int(place["line"]), int(place["column"]))
        error = _ERROR.match(place["said"])
        if error is not None and inside:
            yield SourceError(*at, error["message"]), False
        elif error is not None and used is not None:
            yield SourceError(*used, error["message"]), True
        elif error is not None:
            waiting = error["message"]
        elif inside and used is None and "required from" in place["said"]:
            used = at
        elif inside and waiting and "in instantiation of" in place["said"]:
            yield SourceError(*at, waiting), True
            waiting = ""


class CompileFailed(Rejected):
    """A text that the compiler rejected. The message begins with its first error. It is a mistake, not a violation.

    ``errors`` are the errors that have a line of ``source``, a C++ text. ``line`` is that of a Triton kernel's file.
    """

    def __init__(
        self, message: str, source: str = "", errors: tuple[SourceError, ...] = (), rule: str = "", line: int = 0
    ) -> None:
        self.source, self.errors = source, errors
        super().__init__("compile", rule, message, line=line)


def limit_reached(output: str) -> CompileFailed | None:
    """Return the limit that a compiler's messages name, or None if they name no limit.

    Errors quote the text. So if there are any, only the last message of the compiler's driver counts.
    """
    if source_errors(output) or linker_errors(output):
        output = "\n".join(_DRIVER.findall(output))
    for what, *words in _SHORT_OF:
        if any(word in output for word in words):
            return CompileFailed(f"compiling needs more {what} than a kernel may take", rule=LIMIT)
    return None


@dataclass(frozen=True)
class Located:
    """An error of a kernel.

    For a generated text, ``file`` (within the pass directory) is empty and ``line`` is 0, and ``generated`` names the
    line of the text.
    """

    file: str
    line: int
    generated: str
    text: str
    excerpt: str


def located(failed: CompileFailed, folder: Path, loader: str) -> list[Located]:
    """Return the first errors of a kernel's C++ text, by the files in ``folder``.

    ``loader`` is the file or pass that loads the text: it is named if the text is in no file.
    """
    findings = []
    for error in failed.errors[:MAX_ERRORS]:
        place = origin(folder, failed.source, error.line, (loader, f"{loader}.py"))
        file, line = place or ("", 0)
        generated = "" if place else f"line {error.line} of the C++ text that {loader} loads: "
        text = textwrap.shorten(error.message, _MAX_MESSAGE_CHARACTERS, placeholder=" ...")
        findings.append(Located(file, line, generated, text, _excerpt(failed, error)))
    return findings


def explained(failed: CompileFailed, folder: Path, name: str) -> str:
    """Return why a kernel of the pass ``name`` does not compile, in whole lines. Places are paths of ``folder``."""
    if not failed.errors:
        return f"pass {name}: {failed}"
    lines = []
    for error in located(failed, folder, name):
        place = error.generated or f"{folder / error.file}:{error.line}: "
        lines += [f"{place}error: {error.text}", *error.excerpt.splitlines()]
    return "\n".join([*lines, *unshown(len(failed.errors))])


def _excerpt(failed: CompileFailed, error: SourceError) -> str:
    """Return the line of an error with a caret below its column, or the line alone if there is no column."""
    lines = failed.source.split("\n")
    line = lines[min(error.line, len(lines)) - 1].expandtabs(8)  # as GCC counts columns
    text = line.strip()
    at = error.column - 1 - (len(line) - len(line.lstrip()))
    start = max(0, at - _MAX_EXCERPT_CHARACTERS * 2 // 3) if len(text) > _MAX_EXCERPT_CHARACTERS else 0
    end = start + _MAX_EXCERPT_CHARACTERS
    before, after = _CUT if start else "", _CUT if end < len(text) else ""
    excerpt = [_INDENT + before + text[start:end] + after]
    if 0 <= at <= len(text):
        excerpt.append(_INDENT + " " * (len(before) + at - start) + "^")
    return "\n".join(excerpt)
