"""Tiles: what a nest reads or writes across its registers goes through squares that are transposed in registers.

A gather takes one instruction or more for each element, and a cache line for each lane. Where another loop runs along
the memory, a square of registers is read by lines and transposed: figures are in benchmarks/LOG.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_passbench.fusion.ir import REGISTER, Access, Kind, Nest, accesses, below, kind_of


def crosses(access: Access, sizes: Sequence[int], lane: int, along: int) -> bool:
    """Return True for floats apart along ``lane``, and next to each other along a loop that fills a register."""
    if access.buffer is None or access.strides or kind_of(access.buffer.dtype) != Kind.REAL:
        return False
    steps = access.at.steps
    return int(sizes[along]) >= REGISTER and bool(steps[along] == 1) and steps[lane] not in (0, 1)


def turned(nest: Nest) -> Nest:
    """Return a nest without reductions with the loop inside along which most tiles can lie, if there is one."""
    if nest.vertical or any(x.reduces or x.text == "running" for x in below(nest.stores)):
        return nest
    places = accesses(nest.stores)
    tiles = {d: sum(crosses(access, nest.sizes, nest.lane, d) for access in places) for d in nest.rows}
    along = max(tiles, key=lambda d: tiles[d], default=None)
    if along is None or not tiles[along]:
        return nest
    rows = (*(d for d in nest.rows if d != along), nest.lane)
    return replace(nest, rows=rows, sweep=(along,), swept=frozenset({along}), vertical=True)
