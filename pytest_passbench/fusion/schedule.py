"""From a trace to nests of loops: what is stored, what shares loops, and along which dimension registers lie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace

from pytest_passbench.fusion.ir import (
    Access,
    Affine,
    Buffer,
    Index,
    Loops,
    Nest,
    Store,
    Trace,
    Unsupported,
    below,
)
from pytest_passbench.fusion.lower import Lowering, Needed
from pytest_passbench.fusion.reductions import RULES

ROUNDS = 200
"""How often scheduling may begin again: each time one more buffer is stored, or has loops of its own."""


@dataclass
class Group:
    """Buffers that are stored in the same loops."""

    loops: Loops
    buffers: list[Buffer] = field(default_factory=list)


def schedule(trace: Trace) -> list[Nest]:
    """Return the nests that compute a trace's results, in order. Raises Unsupported for a call without a rule.

    A result that is (a view of) an input is not computed.
    """
    stored = {value.buffer for value in trace.results if value.buffer.argument is None}
    apart: set[Buffer] = set()
    for _ in range(ROUNDS):
        nests = []
        for group in _groups(stored, apart):
            lowering = Lowering(group.loops, stored, set(group.buffers), RULES)
            for buffer in group.buffers:
                try:
                    store = _store(lowering, buffer)
                except Needed as need:
                    if need.buffer not in stored:
                        stored.add(need.buffer)
                    elif buffer in apart:
                        raise Unsupported(f"{_maker(buffer)} cannot be computed in one nest of loops") from None
                    else:
                        apart.add(buffer)
                    break
                nests.append((group.loops, store, group))
            else:
                continue
            break
        else:
            return [_nest(loops, tuple(stores)) for loops, stores in _by_group(nests)]
    raise Unsupported("too many buffers in between")


def _by_group(nests: list[tuple[Loops, Store, Group]]) -> Iterator[tuple[Loops, list[Store]]]:
    groups: dict[int, tuple[Loops, list[Store]]] = {}
    for loops, store, group in nests:
        groups.setdefault(id(group), (loops, []))[1].append(store)
    yield from groups.values()


def _maker(buffer: Buffer) -> str:
    return buffer.maker.name if buffer.maker else "an input"


def _store(lowering: Lowering, buffer: Buffer) -> Store:
    index = fit(lowering.loops, buffer.sizes, lowering)
    assert index is not None
    value = lowering.element(buffer, index)
    steps, offset = list(lowering.zero), 0
    for stride, at in zip(buffer.strides, index, strict=True):
        steps = [step + stride * more for step, more in zip(steps, at.steps, strict=True)]
    return Store(Access(buffer, Affine(offset, tuple(steps))), value)


def fit(loops: Loops, sizes: tuple[int, ...], lowering: Lowering) -> Index | None:
    """Return the index of a tensor of ``sizes`` in a domain: whole, or without what is reduced. None if neither."""
    zero = Affine(0, lowering.zero)
    if sizes == loops.sizes:
        return lowering.home
    if sizes == tuple(1 if d in loops.reduced else size for d, size in enumerate(loops.sizes)):
        return tuple(zero if d in loops.reduced else at for d, at in enumerate(lowering.home))
    if sizes == tuple(size for d, size in enumerate(loops.sizes) if d not in loops.reduced):
        return tuple(at for d, at in enumerate(lowering.home) if d not in loops.reduced)
    return None


def _fits(loops: Loops, sizes: tuple[int, ...]) -> bool:
    return fit(loops, sizes, Lowering(loops, set(), set(), {})) is not None


def _groups(stored: Set[Buffer], apart: Set[Buffer]) -> list[Group]:
    """Return which buffers share loops. Buffers that come one after another do, if their domains are alike."""
    groups: list[Group] = []
    for buffer in sorted(stored, key=lambda buffer: buffer.number):
        if not math.prod(buffer.sizes):
            continue
        reductions = _reductions(buffer, stored, set())
        loops = next((loops for loops in reductions if _fits(loops, buffer.sizes)), Loops(buffer.sizes))
        last = groups[-1] if groups and buffer not in apart else None
        if last and loops.sizes == last.loops.sizes and not (loops.reduced and last.loops.reduced):
            last.loops = loops if loops.reduced else last.loops
        elif not (last and loops == last.loops):
            groups.append(Group(loops))
        groups[-1].buffers.append(buffer)
    return groups


def _reductions(buffer: Buffer, stored: Set[Buffer], known: set[Buffer]) -> Iterator[Loops]:
    """Yield the loops of the reductions that a buffer is made of, that nearest to it first."""
    if buffer in known or buffer.maker is None:
        return
    known.add(buffer)
    call = buffer.maker
    if call.name in RULES and (loops := RULES[call.name].loops):
        yield loops(call)
    for value in call.values():
        if value.buffer not in stored:
            yield from _reductions(value.buffer, stored, known)


# ---- a nest's loops


def _nest(loops: Loops, stores: tuple[Store, ...]) -> Nest:
    """Return a nest with its loops in the order of memory, neighbours made one where all accesses allow it."""
    sizes = list(loops.sizes) or [1]
    if not loops.sizes:  # a number: one turn of one loop
        loops, stores = Loops((1,)), tuple(replace(s, access=_with_dimension(s.access)) for s in stores)
    accesses = [*(store.access for store in stores), *(x.access for x in below(stores) if x.access)]
    merging = _Merging(sizes, [access.at.steps for access in accesses if len(access.at.steps) == len(sizes)])
    rows = merging.ordered([d for d in range(len(sizes)) if d not in loops.reduced])
    sweep = merging.ordered(sorted(loops.reduced))
    weights = {d: merging.weight(d, len(stores)) for d in [*rows, *sweep[-1:]]}
    lane = max(weights, key=lambda d: weights[d]) if weights else 0
    if loops.reduced:
        return Nest(tuple(sizes), tuple(rows), tuple(sweep), loops.reduced, lane, lane not in sweep, stores)
    outside = tuple(d for d in rows if d != lane)
    return Nest(tuple(sizes), outside, (lane,), frozenset(merging.members[lane]), lane, False, stores)


def _with_dimension(access: Access) -> Access:
    return Access(access.buffer, Affine(access.at.offset, (0,)))


@dataclass
class _Merging:
    """Sizes of loops that change as loops become one. ``members``: the dimensions that a loop stands for."""

    sizes: list[int]
    steps: list[tuple[int, ...]]
    members: dict[int, set[int]] = field(default_factory=dict)

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

    def weight(self, d: int, stores: int) -> float:
        """Return how well registers lie along a loop: unit steps are best, of stores above all."""
        points = [1.0 if s[d] == 1 else 0.4 if s[d] == 0 else -0.7 for s in self.steps]
        total = 2 * sum(points[:stores]) + sum(points[stores:])
        return total * min(1.0, self.sizes[d] / 8) if total > 0 else total
