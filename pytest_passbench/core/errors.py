"""The error that stands for a mistake of the user, said in one line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

MAX_PART = 1_000
"""How many characters of a place, a fault or a remedy are shown."""


class UserError(Exception):
    """A mistake in the user's input, shown as one message and never as a traceback.

    ``where`` names the file (with ``:line`` if known) or the option, ``remedy`` says what to do. A very long part is
    shortened in its middle, since it may quote the input.
    """

    def __init__(self, what: str, *, where: str | Path | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = _short(what), where, remedy
        place = f"{_short(str(where))}: " if where is not None else ""
        super().__init__(f"{place}{self.what}" + (f" ({_short(remedy)})" if remedy else ""))

    def __reduce__(self) -> tuple[Callable[..., UserError], tuple[object, ...]]:
        """Return what pickle makes the same error of, in another process."""
        return partial(type(self), self.what, where=self.where, remedy=self.remedy), ()


def _short(text: str) -> str:
    half = MAX_PART // 2
    return text if len(text) <= MAX_PART else f"{text[:half]}…{text[-half:]}"
