"""From a trace to nests of loops: what is stored, what shares loops, and along which dimension registers lie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby

import torch

from pytest_passbench.core.grouping import reached
from pytest_passbench.fusion import lookups, reductions  # noqa: F401  # they enter their rules
from pytest_passbench.fusion.ir import (
    REGISTER,
    Access,
    Buffer,
    Loops,
    Nest,
    Store,
    Trace,
    Unsupported,
    Value,
    accesses,
    below,
    crosses,
)
from pytest_passbench.fusion.lower import RULES, Lowering, Needed, address
from pytest_passbench.fusion.pieces import PIECES, Piece, cut, whole
from pytest_passbench.fusion.products import PRODUCT_RULES, Product

ROUNDS = 200
"""How often scheduling may begin again: each time one more buffer is stored, or has loops of its own."""
ROW_END = 4
"""How many lanes could be added in the time that it takes to join the lanes of a register at the end of a row."""


@dataclass
class Group:
    """Pieces that are stored in the same loops. With ``alone`` nothing joins them: part of a buffer, or a product."""

    loops: Loops
    pieces: list[Piece] = field(default_factory=list)
    alone: bool = False


def schedule(trace: Trace) -> list[Nest | Product]:
    """Return the nests and products that compute a trace's results, in order.

    A result that is (a view of) an input is not computed. Raises Unsupported for a call without a rule.
    """
    stored = {value.buffer for value in trace.results if value.buffer.argument is None}
    apart: set[Buffer] = set()
    for _ in range(ROUNDS):
        try:
            return [_step(group, stored, trace.generic) for group in _groups(stored, apart)]
        except _Unfit as cause:
            buffer, piece = cause.buffer, cause.piece
            if buffer not in stored:
                stored.add(buffer)
            elif piece.buffer in apart or piece.value is not None:
                made_by = piece.buffer.maker.name if piece.buffer.maker else "an input"
                raise Unsupported(f"{made_by} cannot be computed in one nest of loops") from None
            else:
                apart.add(piece.buffer)
    raise Unsupported("too many buffers in between")


def nests(trace: Trace) -> list[Nest]:
    """Return the nests that compute a trace's results without a product. Raises Unsupported if there is one."""
    steps = []
    for step in schedule(trace):
        if isinstance(step, Product):
            raise Unsupported(f"{step.name} stays eager's")
        steps.append(step)
    return steps


class _Unfit(Exception):
    """A piece that cannot be computed until a buffer is stored, or that needs loops of its own."""

    def __init__(self, buffer: Buffer, piece: Piece) -> None:
        super().__init__(buffer, piece)
        self.buffer, self.piece = buffer, piece


def _step(group: Group, stored: set[Buffer], generic: torch.dtype | None) -> Nest | Product:
    first = group.pieces[0]
    call = first.buffer.maker
    if call is None or call.name not in PRODUCT_RULES:
        return _nest(group.loops, _stores(group, stored, generic))
    for value in call.values():
        if value.buffer.argument is None and value.buffer not in stored:
            raise _Unfit(value.buffer, first)
    return PRODUCT_RULES[call.name](call)


def _stores(group: Group, stored: set[Buffer], generic: torch.dtype | None) -> tuple[Store, ...]:
    inside = {piece.buffer for piece in group.pieces if piece.value is None}
    lowering = Lowering(group.loops, stored - inside, generic)
    stores = []
    for piece in group.pieces:
        index = next(index for sizes, index in group.loops.forms() if sizes == piece.sizes)
        place = Value(piece.buffer, piece.sizes, piece.strides, piece.offset)
        try:
            value = piece.element(lowering, index)
        except Needed as need:
            raise _Unfit(need.buffer, piece) from None
        stores.append(Store(Access(piece.buffer, address(place, index, group.loops.zero)), value))
    return tuple(stores)


def _groups(stored: Set[Buffer], apart: Set[Buffer]) -> list[Group]:
    """Return the groups that share loops. Buffers that follow each other share them if their domains are alike."""
    groups: list[Group] = []
    for buffer in sorted(stored, key=lambda buffer: buffer.number):
        call = buffer.maker
        if not math.prod(buffer.sizes) or call is None:
            continue
        if call.name in PRODUCT_RULES:
            groups.append(Group(Loops((1,)), [whole(buffer)], alone=True))
        elif call.name in PIECES and not buffer.place:
            pieces = [piece for piece in PIECES[call.name](call, buffer) if math.prod(piece.sizes)]
            for (_sizes, loops), parts in groupby(pieces, key=lambda piece: (piece.sizes, _loops(piece, stored))):
                groups.append(Group(loops, list(parts), alone=True))
        else:
            reduces = any(_reductions(buffer, stored))
            pieces = [whole(buffer)] if reduces else cut(buffer, stored)
            for _sizes, parts in groupby(pieces, key=lambda piece: piece.sizes):
                _join(groups, list(parts), stored, buffer in apart)
    return groups


def _loops(piece: Piece, stored: Set[Buffer]) -> Loops:
    """Return the loops of a reduction that a piece is made of, if it fits into them, or else its own."""
    buffer = piece.value.buffer if isinstance(piece.value, Value) else piece.buffer
    if piece.value is not None and buffer in stored:
        return Loops(piece.sizes or (1,))
    for loops in _reductions(buffer, stored):
        if piece.sizes in (sizes for sizes, _index in loops.forms()):
            return loops
    return Loops(piece.sizes or (1,))


def _join(groups: list[Group], pieces: list[Piece], stored: Set[Buffer], apart: bool) -> None:
    """Put pieces of the same sizes into the last group, or begin another with them."""
    loops = _loops(pieces[0], stored)
    last = groups[-1] if groups and not apart and not groups[-1].alone else None
    alike = last is not None and _sizes(loops) == _sizes(last.loops)
    if last and alike and not (loops.reduced and last.loops.reduced):
        last.loops = loops if loops.reduced else last.loops
    elif not (last and loops == last.loops):
        groups.append(Group(loops))
    groups[-1].pieces += pieces


def _sizes(loops: Loops) -> list[int]:
    return [size for size, _reduced in loops.dimensions()]


def _reductions(buffer: Buffer, stored: Set[Buffer]) -> Iterator[Loops]:
    """Yield the loops of the reductions that a buffer is computed from, those of its first operand first."""

    def operands(of: Buffer) -> list[Buffer]:
        values = list(of.maker.values()) if of.maker else []
        return [value.buffer for value in reversed(values) if value.buffer not in stored]

    for call in (item.maker for item in reached([buffer], operands)):
        loops = RULES[call.name].loops if call and call.name in RULES else None
        if call and loops and loops(call).reduced:
            yield loops(call)


# ---- a nest's loops


def _nest(loops: Loops, stores: tuple[Store, ...]) -> Nest:
    """Return a nest with its loops in the order of memory. Neighbouring loops are merged if all accesses allow it."""
    sizes = list(loops.sizes)
    merging = _Merging(sizes, accesses(stores))
    rows = merging.ordered([d for d in range(len(sizes)) if d not in loops.reduced])
    sweep = merging.ordered(sorted(loops.reduced))
    ordered = any(x.text == "total" for x in below(stores))  # it has torch.sum's order only along a row
    chained = any(x.text.startswith("chain") for x in below(stores))  # it adds a register of rows as fast as one row
    lanes = rows if chained and any(sizes[d] > 1 for d in rows) else [*rows, *sweep[-1:]]
    weights = {d: merging.weight(d, len(stores), sweep, not ordered) for d in lanes}
    if _window(merging, rows, sweep) and not ordered:
        weights.pop(sweep[-1], None)
    lane = max(weights, key=lambda d: weights[d]) if weights else 0
    if not loops.reduced and int(merging.sizes[lane]) < REGISTER:
        lane = max(merging.filling(lanes), key=lambda d: weights[d], default=lane)
    laned = frozenset(merging.members.get(lane, {lane}))
    if loops.reduced:
        return Nest(tuple(sizes), tuple(rows), tuple(sweep), loops.reduced, laned, lane, lane not in sweep, stores)
    outside = tuple(d for d in rows if d != lane)
    return Nest(tuple(sizes), outside, (lane,), laned, laned, lane, False, stores)


def _window(merging: _Merging, rows: Sequence[int], sweep: Sequence[int]) -> bool:
    """Return True if the rows of a window fill at most half a register, and a loop outside of them fills one.

    It is faster to gather a register from several windows than to add half a register's lanes for each result.
    """
    short = bool(sweep) and 2 * int(merging.sizes[sweep[-1]]) <= REGISTER
    return short and any(int(merging.sizes[d]) >= REGISTER for d in rows)


@dataclass
class _Merging:
    """Sizes of loops, which change as loops are merged. ``members`` has the dimensions that a loop stands for."""

    sizes: list[int]
    accesses: list[Access]
    members: dict[int, set[int]] = field(default_factory=dict)

    @property
    def steps(self) -> list[tuple[int, ...]]:
        """The steps of the accesses."""
        return [access.at.steps for access in self.accesses]

    def ordered(self, dims: list[int]) -> list[int]:
        """Return the loops over some dimensions, the longest steps first; of dimensions of size 1 at most one."""
        loops: list[int] = []
        for d in sorted((d for d in dims if self.sizes[d] != 1), key=lambda d: -max(s[d] for s in self.steps)):
            self.members[d] = {d}
            if loops and all(s[loops[-1]] == s[d] * self.sizes[d] for s in self.steps):
                self.members[d] |= self.members[loops[-1]]
                self.sizes[d] *= self.sizes[loops.pop()]
            loops.append(d)
        for d in dims[:1] if not loops else []:
            self.members[d] = {d}
            loops.append(d)
        return loops

    def filling(self, dims: Sequence[int]) -> list[int]:
        """Return the loops that fill a register, along which all accesses have short steps, and one has unit steps.

        Storing elements that lie apart one by one is faster than storing a part of a register for each few of them.
        """
        steps = {d: [int(s[d]) for s in self.steps] for d in dims if int(self.sizes[d]) >= REGISTER}
        return [d for d in steps if 1 in steps[d] and all(0 <= step < REGISTER for step in steps[d])]

    def weight(self, d: int, stores: int, sweep: Sequence[int], tiles: bool) -> float:
        """Return how well registers lie along a loop: unit steps are best, and those of stores count double.

        An access once a row counts less than one in its ``sweep``. With ``tiles``, longer steps cost little if the
        access has unit steps along the sweep.
        """
        points = [1.0 if s[d] == 1 else 0.4 if s[d] == 0 else -0.7 for s in self.steps]
        if tiles and sweep and d not in sweep:
            across = [crosses(access, self.sizes, d, sweep[-1]) for access in self.accesses]
            points = [0.9 if crossing else point for crossing, point in zip(across, points, strict=True)]
        if sweep:
            swept = [any(s[loop] for loop in sweep) for s in self.steps]
            points = [point if often else point / 4 for point, often in zip(points, swept, strict=True)]
        total, size = 2 * sum(points[:stores]) + sum(points[stores:]), int(self.sizes[d])
        lanes = math.ceil(size / REGISTER) * REGISTER + (ROW_END if d in sweep else 0)
        return total * size / lanes if total > 0 and size else total
