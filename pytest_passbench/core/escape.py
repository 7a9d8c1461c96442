"""Text that a candidate may have written, made safe to show: inert, and if wanted capped and on one line.

Messages, pass names and captured output can hold terminal escape sequences, Markdown or HTML. Everything that is
shown to a user goes through this module.
"""

from __future__ import annotations

import re

# The characters that start code, emphasis, HTML, an entity, a mention, mathematics, a new cell, or a link's URL.
_MARKDOWN = re.compile(r"[\\`*<>|~$&@]|(?<=\])\(")


LINES = "\n\t"
"""The characters that text of several lines keeps."""


MAX_SHOWN_BITS = 256
"""The size of the longest integer that is written out. Python refuses to write more than 4,300 digits."""


def printable(text: str, keep: str = "") -> str:
    """Return ``text`` with every character that is not printable spelt out as a Python escape, except ``keep``.

    No control, format (bidirectional too), surrogate, private or unassigned character survives, and no space but the
    ordinary one: nothing steers a terminal, or hides or reorders what is shown.
    """
    if text.isprintable():  # most texts are, and this is a hundred times faster
        return text
    characters = (
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )
    return "".join(characters)


def line(text: str, limit: int = 200) -> str:
    """Return ``text``, made :func:`printable`, on one line of at most ``limit`` characters."""
    safe = printable(" ".join(text.split()))
    return safe if len(safe) <= limit else safe[: max(0, limit - 1)] + "…"


def middle(text: str, limit: int) -> str:
    """Return ``text`` as :func:`line` does, but cut in the middle if over ``limit``: both ends tell ids apart."""
    safe = line(text, 10_000)
    if len(safe) <= limit:
        return safe
    tail = (limit - 1) // 2
    return safe[: limit - 1 - tail] + "…" + safe[len(safe) - tail :]


def cell(text: str, limit: int = 300) -> str:
    """Return ``text`` as plain words for a Markdown table cell, cut to ``limit`` characters before escaping."""
    return _MARKDOWN.sub(lambda match: f"&#{ord(match.group())};", line(text, limit))


def abbreviated(value: object, limit: int = 200) -> str:
    """Return a value from a file as Python writes it, on one line of at most ``limit`` characters.

    A very long integer is described, since Python may refuse to write it.
    """
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN_BITS:
        return f"an integer of more than {MAX_SHOWN_BITS} bits"
    return line(repr(value), limit)
