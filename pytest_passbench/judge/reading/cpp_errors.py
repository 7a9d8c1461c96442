"""The errors of a C++ kernel in words for its author: by the lines of the candidate's files, with excerpts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.candidate.origin import origin
from pytest_passbench.judge.builder.refusals import MAX_ERRORS, CompileFailed, SourceError, unshown

_MAX_MESSAGE_CHARACTERS, _MAX_EXCERPT_CHARACTERS = 160, 90
_INDENT = "    "
_CUT = "..."  # stands for the rest of a line


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
        file, line = (place.file, place.line) if place else ("", 0)
        generated = "" if place else f"line {error.line} of the C++ text that {loader} loads: "
        findings.append(Located(file, line, generated, _shortened(error.message), _excerpt(failed, error)))
    return findings


def rest(failed: CompileFailed) -> list[str]:
    """Return the line that counts the errors that :func:`located` leaves out, or nothing if there are none."""
    return unshown(len(failed.errors))


def explained(failed: CompileFailed, folder: Path, name: str) -> str:
    """Return why a kernel of the pass ``name`` does not compile, in whole lines. Places are paths of ``folder``."""
    if not failed.errors:
        return f"pass {name}: {failed}"
    lines = []
    for error in located(failed, folder, name):
        place = error.generated or f"{folder / error.file}:{error.line}: "
        lines += [f"{place}error: {error.text}", *error.excerpt.splitlines()]
    return "\n".join([*lines, *rest(failed)])


def _shortened(message: str) -> str:
    """Return a compiler's message, cut after a whole word if it is long."""
    if len(message) <= _MAX_MESSAGE_CHARACTERS:
        return message
    return message[: _MAX_MESSAGE_CHARACTERS - 4].rpartition(" ")[0] + " ..."


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
