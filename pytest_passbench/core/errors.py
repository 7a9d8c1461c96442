"""The error that stands for a mistake of the user, said in one line."""

from __future__ import annotations

from pathlib import Path


class UserError(Exception):
    """A mistake in the user's input, shown as one message and never as a traceback.

    ``where`` names the file (with ``:line`` if known) or the option, ``remedy`` says what to do.
    """

    def __init__(self, what: str, *, where: str | Path | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        place = f"{where}: " if where is not None else ""
        super().__init__(f"{place}{what}" + (f" ({remedy})" if remedy else ""))
