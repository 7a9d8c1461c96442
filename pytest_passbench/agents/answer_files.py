"""The files of an answer: their names are checked, and their number and sizes are limited.

In one turn an answer is a text with each file in a fenced block after its path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.plurals import counted

MAX_FILES, MAX_CHARACTERS, MAX_PATH, MAX_PARTS = 32, 100_000, 200, 6
"""Bounds of an answer: its files, the characters of all of them, and the characters and the parts of a path."""

ANSWER_FORM = """\
Answer with all files. Before each file stands a line with its path alone, for example fused.py; then comes its text
in a fenced block: a line ```python, the text, a line ```.
"""

_BLOCK = re.compile(
    r"^[*#` ]*(?P<path>[\w./-]+)[*`:]*\n+(?P<fence>`{3,})[^`\n]*\n(?P<text>.*?)^(?P=fence) *$", re.M | re.S
)


class AnswerFiles:
    """The text of each file, by its path in the candidate's folder. Nothing is written to a disk."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def write(self, path: object, text: object) -> str:
        """Write a file, and return its path in plain form. Raises UserError for a bad path or text, or too much."""
        name = _checked(path)
        if not isinstance(text, str):
            raise UserError(f"text is a text, not {abbreviated(text, 60)}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{name}: the text has an unpaired surrogate, which UTF-8 cannot write") from None
        others = {other: content for other, content in self._texts.items() if other != name}
        pure = PurePosixPath(name)
        for other in map(PurePosixPath, others):
            if pure in other.parents or other in pure.parents:
                raise UserError(f"{name}: {other} is a file already, so one of them would have to be a folder")
        if len(others) >= MAX_FILES:
            raise UserError(f"there are {MAX_FILES} files already", remedy="write into one of them")
        if sum(map(len, others.values())) + len(text) > MAX_CHARACTERS:
            raise UserError(f"all files together may have {MAX_CHARACTERS:,} characters", remedy="write less")
        self._texts[name] = text
        return name

    def read(self, path: object) -> str:
        """Return a file's text. Raises UserError if there is no file of this path."""
        name = _checked(path)
        if name not in self._texts:
            raise UserError(f"there is no file {name}", remedy="list_files names those that there are")
        return self._texts[name]

    def texts(self) -> dict[str, str]:
        """Return a copy: the text of each file by its path, in the order in which they were first written."""
        return dict(self._texts)

    def __str__(self) -> str:
        """Return the files and their sizes, a line for each."""
        rows = [f"{name} ({counted(len(text), 'character')})" for name, text in self.texts().items()]
        return "\n".join(rows) or "there are no files yet"


def _checked(path: object) -> str:
    """Return a path in plain form. Raises UserError if it is no path, or leads out of the folder."""
    if not isinstance(path, str) or not path.isprintable() or len(path) > MAX_PATH:
        raise UserError(f"{abbreviated(path, 60)} is no path of a file", remedy="for example fused.py")
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not 0 < len(pure.parts) <= MAX_PARTS:
        raise UserError(f"{abbreviated(path, 60)} is no path in the answer's folder", remedy="for example fused.py")
    return str(pure)


def question(prompt: str) -> list[dict[str, str]]:
    """Return a task's prompt as a message that asks for the files in one answer."""
    return [{"role": "user", "content": f"{prompt}\n{ANSWER_FORM}"}]


def answer_text(files: Mapping[str, str]) -> str:
    """Return files as one answer."""
    return "\n\n".join(f"{path}\n{_fenced(text)}" for path, text in files.items())


def _fenced(text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}python\n{text.rstrip()}\n{fence}"


def answer_files(text: str) -> dict[str, str]:
    """Return the files of an answer. Raises UserError if it has none, or more than an answer may have."""
    files = AnswerFiles()
    for block in _BLOCK.finditer(text.replace("\r\n", "\n")):
        files.write(block["path"], block["text"])
    if not files.texts():
        raise UserError("the answer has no file", remedy=ANSWER_FORM)
    return files.texts()
