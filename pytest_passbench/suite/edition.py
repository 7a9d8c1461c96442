"""The edition of a suite. Tasks change from one edition to the next, so their results are not to be mixed.

It stands in one place: the file ``EDITION`` in the suite's folder.
"""

from __future__ import annotations

import functools
from pathlib import Path

from pytest_passbench.core.files import kind_of

FILE = "EDITION"
MAX_CHARACTERS = 40
MAX_FOLDERS_UP = 4
"""How far above a task's file the suite's folder may be."""


def edition_of(path: Path) -> str:
    """Return the edition of the suite that the task at ``path`` belongs to, or "" if it belongs to none."""
    return _edition(path.absolute().parent)


@functools.lru_cache(maxsize=1024)
def _edition(folder: Path) -> str:
    for place in (folder, *folder.parents[:MAX_FOLDERS_UP]):
        if kind_of(place / FILE) == "file":
            with (place / FILE).open(encoding="utf-8", errors="replace") as file:
                return file.read(MAX_CHARACTERS).strip()
    return ""
