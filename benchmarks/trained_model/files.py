"""Files that a stage writes line by line, so that it goes on after a kill where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, [] if there is no file. A last line that was not written whole is left out."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1]]


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write a file at once, so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".part")
    written.write_text("".join(json.dumps(row) + "\n" for row in rows))
    written.replace(path)


class Journal:
    """A file that grows by a line at a time. A last line that was not written whole is cut off first."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = read(path)
        if path.exists():
            text = path.read_bytes()
            os.truncate(path, text.rfind(b"\n") + 1)
        self._file = path.open("a")

    def add(self, row: dict[str, Any]) -> None:
        """Add a line."""
        self.rows.append(row)
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
