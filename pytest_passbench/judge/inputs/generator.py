"""Who makes the values: compiled code where there is a compiler, numpy where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Protocol

from pytest_passbench.judge.inputs.distribution import Draw


class Writer(Protocol):
    """Writes a subgraph's inputs, as :class:`Generator` was given them; the same values for the same numbers."""

    def block(self, block: int, calls: int, address: int, offsets: Sequence[int], stride: int) -> None:
        """Write the inputs of calls 0, 1, ... of a block, ``stride`` bytes apart from ``address`` on."""

    def one(self, block: int, call: int, index: int, address: int) -> None:
        """Write one input of one call to ``address``."""


class Generator(Protocol):
    """A source of keyed random values. ``name`` says which, for the record of a run."""

    name: str

    def writer(self, key: bytes, draws: Sequence[Draw | None]) -> Writer:
        """A writer of these inputs; None for one that somebody else writes."""


@cache
def chosen() -> Generator:
    """The generator of this machine, found once."""
    return best()


def best() -> Generator:
    """The fastest generator that works here."""
    from pytest_passbench.judge.inputs.compiled import Native
    from pytest_passbench.judge.inputs.library import NoLibrary
    from pytest_passbench.judge.inputs.portable import Portable

    try:
        return Native()
    except NoLibrary as error:
        return Portable(str(error))
