"""Bad inputs, and the list of them: how each is written, and what the one message about it has to contain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """One bad input: how it is written, what the message has to contain, and the exit code."""

    name: str
    write: Callable[[Path], list[str]]
    says: str
    code: int = 1


CASES: list[Case] = []


def add(name: str, write: Callable[[Path], list[str]], says: str, code: int = 1) -> None:
    """Add a case to the list."""
    CASES.append(Case(name, write, says, code))


def words(*argv: str) -> Callable[[Path], list[str]]:
    """Return the ``write`` of a case that needs no files: it returns the command line alone."""
    return lambda _folder: list(argv)


def sparse(path: Path) -> None:
    """Make a file of 2 GiB that takes no room."""
    with path.open("wb") as file:
        file.truncate(2 << 30)
