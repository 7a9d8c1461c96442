"""Text that a candidate may have written, made safe to show: capped, on one line, and inert.

Messages, pass names and captured output can hold terminal escape sequences, Markdown or HTML.
"""

from __future__ import annotations

import re

# What starts code, emphasis, HTML, an entity, a mention, mathematics, a new cell, or a link's address.
_MARKDOWN = re.compile(r"[\\`*<>|~$&@]|(?<=\])\(")


def printable(text: str) -> str:
    """``text`` with every control, format and line-ending character spelt out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def line(text: str, limit: int = 200) -> str:
    """``text`` on one line of at most ``limit`` characters, every control or format character spelt out."""
    safe = printable(" ".join(text.split()))
    return safe if len(safe) <= limit else safe[: max(0, limit - 1)] + "…"


def middle(text: str, limit: int) -> str:
    """``text`` as :func:`line`, cut in the middle where over ``limit``: both ends tell ids apart."""
    safe = line(text, 10_000)
    if len(safe) <= limit:
        return safe
    tail = (limit - 1) // 2
    return safe[: limit - 1 - tail] + "…" + safe[len(safe) - tail :]


def cell(text: str, limit: int = 300) -> str:
    """``text`` as plain words in a Markdown table cell."""
    return _MARKDOWN.sub(_entity, line(text, limit))


def _entity(match: re.Match[str]) -> str:
    return f"&#{ord(match.group())};"
