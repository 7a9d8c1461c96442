"""What a user did wrong, said in one line."""

from __future__ import annotations

from pathlib import Path


class UserError(Exception):
    """A mistake in what the user gave us; shown as one message, never as a traceback.

    ``where`` names the file (with ``:line`` where known) or the option, ``remedy`` says what to do.
    """

    def __init__(self, what: str, *, where: str | Path | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        place = f"{where}: " if where is not None else ""
        super().__init__(f"{place}{what}" + (f" ({remedy})" if remedy else ""))
