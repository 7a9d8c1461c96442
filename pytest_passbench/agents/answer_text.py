"""An answer in one turn: its files as text, each in a fenced block after its path, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pytest_passbench.agents.answer_files import AnswerFiles
from pytest_passbench.core.errors import UserError

ANSWER_FORM = """\
Answer with all files. Before each file stands a line with its path alone, for example fused.py; then comes its text
in a fenced block: a line ```python, the text, a line ```.
"""

_BLOCK = re.compile(
    r"^[*#` ]*(?P<path>[\w./-]+)[*`:]*\n+(?P<fence>`{3,})\w*\n(?P<text>.*?)^(?P=fence) *$", re.M | re.S
)


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
    for block in _BLOCK.finditer(text):
        files.write(block["path"], block["text"])
    if not files.texts():
        raise UserError("the answer has no file", remedy=ANSWER_FORM)
    return files.texts()
