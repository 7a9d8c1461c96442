"""Numbers with their nouns, and the words of a text."""

from __future__ import annotations


def counted(number: int, singular: str, many: str = "") -> str:
    """Return a number and its noun: ``1 task``, ``2 tasks``, ``0 passes``.

    ``many`` is the plural. If it is empty, the plural is the singular with "s", or with "es" after an "s".
    """
    plural = many or singular + ("es" if singular.endswith("s") else "s")
    return f"{number} {singular if number == 1 else plural}"


def words(text: str) -> frozenset[str]:
    """Return the words of a text, which are separated by blanks and line breaks."""
    return frozenset(text.split())
