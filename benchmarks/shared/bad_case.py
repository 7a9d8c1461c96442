"""A bad input and the list of all: how each is written, and what its one message has to contain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """One bad input: how it is written, and what has to be said about it."""

    name: str
    write: Callable[[Path], list[str]]
    says: str
    code: int = 1


CASES: list[Case] = []


def add(name: str, write: Callable[[Path], list[str]], says: str, code: int = 1) -> None:
    """Add a case to the list."""
    CASES.append(Case(name, write, says, code))


def words(*argv: str) -> Callable[[Path], list[str]]:
    """Return what writes a case that needs no files: its command line alone."""
    return lambda _folder: list(argv)


def sparse(path: Path) -> None:
    """Make a file of 2 GiB that takes no room."""
    with path.open("wb") as file:
        file.truncate(2 << 30)
