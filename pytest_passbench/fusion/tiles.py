"""Tiles: what a nest reads or writes across its registers goes through squares that are transposed in registers.

A gather takes one instruction or more for each element, and a cache line for each lane. Where another loop runs along
the memory, a square of registers is read by lines and transposed: figures are in benchmarks/LOG.md.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_passbench.fusion.ir import Access, Kind, Nest, below, kind_of

LEAST = 8
"""The fewest turns of a loop that tiles lie along: fewer would leave most of a square empty."""


def accesses(nest: Nest) -> list[Access]:
    """Return what a nest reads and writes."""
    reads = (x.access for x in below(nest.stores))
    return [*(store.access for store in nest.stores), *(access for access in reads if access)]


def crosses(access: Access, lane: int, along: int) -> bool:
    """Return True for floats that lie apart along ``lane`` and next to each other in the loop ``along``."""
    if access.buffer is None or access.strides or kind_of(access.buffer.dtype) != Kind.REAL:
        return False
    return access.at.steps[lane] not in (0, 1) and bool(access.at.steps[along] == 1)


def turned(nest: Nest) -> Nest:
    """Return a nest without reductions with the loop inside along which most tiles can lie, if there is one."""
    nodes = below(nest.stores)
    if nest.vertical or any(x.reduces or x.text == "running" for x in nodes):
        return nest
    loops = [d for d in nest.rows if int(nest.sizes[d]) >= LEAST]
    tiles = {d: sum(crosses(access, nest.lane, d) for access in accesses(nest)) for d in loops}
    along = max(tiles, key=lambda d: tiles[d], default=None)
    if along is None or not tiles[along]:
        return nest
    rows = (*(d for d in nest.rows if d != along), nest.lane)
    return replace(nest, rows=rows, sweep=(along,), swept=frozenset({along}), vertical=True)


def tile_loop(nest: Nest) -> int | None:
    """Return the loop along which tiles lie: the innermost of a vertical nest. None if nothing is read across."""
    if not nest.vertical or int(nest.sizes[nest.sweep[-1]]) < LEAST:
        return None
    inner = nest.sweep[-1]
    return inner if any(crosses(access, nest.lane, inner) for access in accesses(nest)) else None
