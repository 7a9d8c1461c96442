"""The interface of generators of values, and the choice of one: compiled code, or numpy if there is no compiler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Protocol

from pytest_passbench.judge.inputs.distribution import Draw


class Writer(Protocol):
    """A writer of the inputs that :class:`Generator` was given. The same numbers give the same values."""

    def block(self, block: int, calls: int, address: int, offsets: Sequence[int], stride: int) -> None:
        """Write the inputs of calls 0, 1, ... of a block, ``stride`` bytes apart from ``address`` on."""

    def single(self, block: int, call: int, index: int, address: int) -> None:
        """Write one input of one call to ``address``."""


class Generator(Protocol):
    """A source of keyed random values. ``name`` stands in the record of a run."""

    name: str

    def writer(self, key: bytes, draws: Sequence[Draw | None]) -> Writer:
        """Return a writer of these inputs. It leaves inputs out that are None in ``draws``."""


@cache
def default() -> Generator:
    """Return the generator of this machine. It is chosen once per process."""
    return best()


def best() -> Generator:
    """Return the fastest generator that works here."""
    from pytest_passbench.judge.inputs.compiled import Native
    from pytest_passbench.judge.inputs.portable import Portable
    from pytest_passbench.judge.native_library import NoLibrary

    try:
        return Native()
    except NoLibrary as error:
        return Portable(str(error))
