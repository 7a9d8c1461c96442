"""The printer for C++: nests of loops as one function on the registers of passbench.h.

A nest reads and writes elements that lie apart along its registers through tiles. A gather takes one instruction or
more for each element, and a cache line for each lane. If another loop runs along the memory, a square of registers is
read line by line and transposed instead (figures: benchmarks/LOG.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from pytest_passbench.fusion.ir import (
    HALVES,
    REGISTER,
    SQUARED_DISTANCE,
    TO_DOUBLES,
    Access,
    Buffer,
    Expression,
    Kind,
    Nest,
    Store,
    accesses,
    below,
    c_type,
    crosses,
    place_text,
    size_text,
    times_text,
)
from pytest_passbench.fusion.prelude import PARTS
from pytest_passbench.fusion.triton_text import HELPERS

LONGEST_ROW = 1 << 15
"""The most floats of a row that a kernel keeps in a buffer from one sweep to the next."""

RESERVED = frozenset({
    "i", "n", "t", "step", "lanes", "dtype", "tile", "height", *" ".join(PARTS).split(),
    "at", "inside", "row", "first", "tl", "triton", "T", "BLOCK", "HEIGHT", *HELPERS,
})  # fmt: skip
"""Names that registers and pointers cannot have, in C++ or in Triton."""
REDUCERS = {"sum": "Sum", "total": "Sum", "chain": "Chain", "greatest": "Greatest"}


class Printer:
    """The text of one nest. ``names`` are the parameters of the buffers."""

    def __init__(self, nest: Nest, names: dict[Buffer, str], generic: torch.dtype | None = None) -> None:
        self.nest, self.names = turned(nest), names
        loops = dict.fromkeys((*self.nest.rows, *self.nest.sweep, self.nest.lane))
        self.generic = generic
        #: The names of loops' counters. Numbered names let nests over other dimensions have the same text.
        self.counters = {d: f"i{place}" for place, d in enumerate(loops)}
        self.tiles: list[tuple[bool, str]] = []  # of the sweep being printed: True if written, and its line
        self.stores = [_unrounded(store, generic) for store in nest.stores]
        self.nodes = below(tuple(self.stores))
        self.registers = registers(self.nodes, names)
        self.last = max(x.depth for x in self.nodes)
        self.saved: dict[Expression, int] = {}
        self.costs: dict[Expression, bool] = {}
        self.computed: dict[Expression, None] = {}
        self.explained: set[Expression] = set()

    def text(self) -> list[str]:
        """Return the lines of the nest."""
        nest = self.nest
        loops = [d for d in nest.rows if d != nest.lane] if nest.vertical else nest.rows
        body = [line for depth in range(self.last + 1) for line in self._stage(depth)]
        if nest.vertical:
            body = self._lanes(nest.lane, body)
        slots = math.prod(nest.sizes[d] for d in nest.sweep)
        size = f"{size_text(slots)} * pb::L" if nest.vertical else f"{size_text(slots)} + pb::L"
        buffers = [f"pb::buffer row{number}({size});" for number in self.saved.values()]
        buffers += [f"pb::buffer terms{x.number}({size});" for x in self.nodes if self._ordered(x)]
        return _block([*buffers, *self._loops(loops, body)])

    # -- stages

    def _stage(self, depth: int) -> list[str]:
        """Return the lines for a depth of reduction: those that run once for a row, then a sweep over it."""
        lanes, lines = "lanes" if self.nest.vertical else "1", []
        for x in self.nodes:
            if x.depth == depth and not (self._full(x) or x.constant or x.reduces):
                lines.append(self._define(x, lanes))
        at_depth = [store for store in self.stores if store.value.depth == depth]
        lines += [self._put(store, lanes) for store in at_depth if not self._swept(store.access)]
        at_end = [x for x in self.nodes if x.reduces and x.operands[0].depth == depth]
        reductions = [x for x in at_end if x.text != "squares"]  # the mean's reducer computes those
        full = [store for store in at_depth if self._swept(store.access)]
        if reductions or full:
            body = self._sweep_body(depth, reductions, full)
            lines += self._comment(reductions)
            lines += [self._reducer(x) for x in reductions]
            lines += [f"Running<{x.kind}> {self._name(x)}_{depth};" for x in self.nodes if x.text == "running"]
            lines += self._sweep([line.replace("{depth}", str(depth)) for line in body])
            row = "lanes" if self.nest.vertical else "row"
            lines += [f"{x.kind} {self._name(x)} = r{x.number}.{row}();" for x in reductions]
        squares = (x for x in at_end if x.text == "squares")
        return lines + [f"vec {self._name(x)} = r{x.operands[1].number}.squares();" for x in squares]

    def _ordered(self, x: Expression) -> bool:
        """Return True for a sum that can be in the order of torch.sum: the loop over lanes runs over a whole row."""
        nest = self.nest
        row = math.prod(nest.sizes[d] for d in nest.sweep)
        return x.text == "total" and nest.sweep == (nest.lane,) and not nest.vertical and row <= LONGEST_ROW

    def _floats(self, x: Expression) -> Expression | None:
        """Return the floats that a sum adds as doubles, or adds the squared distances of; None for other sums."""
        first, *mean = x.operands[0].operands if x.operands[0].text == SQUARED_DISTANCE else x.operands[:1]
        if x.text != "sum" or first.text != TO_DOUBLES or any(map(self._full, mean)):
            return None
        return first.operands[0] if first.operands[0].kind == Kind.REAL else None  # whole numbers have the same cast

    def _reducer(self, x: Expression) -> str:
        if self._floats(x):
            _first, *mean = x.operands[0].operands
            return f"InDoubles<{'true' if mean else 'false'}> r{x.number}{{{', '.join(map(self._name, mean))}}};"
        if self._ordered(x):
            return f"Ordered r{x.number}{{terms{x.number}.data}};"
        if x.text == "total" and self.nest.vertical and len(self.nest.sweep) == 1:
            return f"Cascade<{x.kind}> r{x.number};"
        if x.text.startswith("lanes "):
            apart = "!std::is_same_v<T, float>" if x.text == "lanes T" else x.text.split()[1]
            return f"{'LanesOfRows' if self.nest.vertical else 'Lanes'}<{apart}> r{x.number};"
        if x.text == "chain T":
            return f"std::conditional_t<std::is_same_v<T, pb::f16>, Chain<{x.kind}>, Sum<{x.kind}>> r{x.number};"
        if x.text == "greatest number":
            return f"GreatestOf<pb::max> r{x.number};"
        if x.text.startswith("mean "):
            return f"Moments<{'vec' if self.nest.vertical else 'float'}, {x.text.split()[1]}> r{x.number};"
        return f"{REDUCERS[x.text]}<{x.kind}> r{x.number};"

    def _comment(self, reductions: Sequence[Expression]) -> list[str]:
        """Return a comment on a sweep: the operators that are new in it."""
        operators = [x.operator for x in (*self.computed, *reductions) if x.operator and x not in self.explained]
        self.explained.update(self.computed, reductions)
        return [f"// {', '.join(dict.fromkeys(operators))}"] if operators else []

    def _sweep_body(self, depth: int, reductions: Sequence[Expression], stores: Sequence[Store]) -> list[str]:
        lines: dict[Expression, list[str]] = {}
        computed = [store.value for store in stores if not self._moved(store)]
        terms = [self._floats(x) or x.operands[0] for x in reductions]
        for x in (*terms, *computed):
            self._need(x, depth, lines)
        self.computed |= dict.fromkeys(lines)
        body = [line for part in lines.values() for line in part]
        lanes = "" if self.nest.vertical else ", lanes"
        body += [f"r{x.number}.add({self._name(y)}{lanes});" for x, y in zip(reductions, terms, strict=True)]
        return body + [self._put(store, "lanes") for store in stores]

    def _need(self, x: Expression, depth: int, lines: dict[Expression, list[str]]) -> None:
        """Add the lines that compute an expression in a sweep. A costly one is kept in a buffer for later sweeps."""
        if x in lines or x.constant or not self._full(x):
            return
        slots = math.prod(self.nest.sizes[d] for d in self.nest.sweep) * (16 if self.nest.vertical else 1)
        costly = slots <= LONGEST_ROW and self._costly(x)
        if costly and x in self.computed and x in self.saved:
            lines[x] = [f"vec {self._name(x)} = pb::load(row{self.saved[x]}.data + {self._slot()});"]
            return
        for operand in x.operands:
            self._need(operand, depth, lines)
        lines[x] = [self._define(x, "lanes")]
        if costly and x not in self.computed and self._used_later(x, depth):
            self.saved[x] = len(self.saved)
            lines[x].append(f"pb::store(row{self.saved[x]}.data + {self._slot()}, {self._name(x)});")

    def _costly(self, x: Expression) -> bool:
        """Return True if an expression takes longer than a buffer: a function, or two reads across the registers."""
        if x not in self.costs:
            apart = x.access is not None or x.text == "running" or x.kind != Kind.REAL or not self._full(x)
            across = [y for y in x.operands if y.access is not None and self._tiled(y.access)]
            self.costs[x] = not apart and ("(" in x.text or len(across) > 1 or any(map(self._costly, x.operands)))
        return self.costs[x]

    def _used_later(self, x: Expression, depth: int) -> bool:
        """Return True if a later sweep than the one at ``depth`` needs an expression too."""
        return any(x in user.operands and self._full(user) and user.depth > depth for user in self.nodes)

    # -- statements

    def _name(self, x: Expression) -> str:
        return x.text if x.constant else self.registers[x]

    def _define(self, x: Expression, lanes: str) -> str:
        text = self._load(x, x.access, lanes) if x.access else x.text.format(*map(self._name, x.operands))
        if x.text == "running":
            text = (
                f"{self._name(x)}_{{depth}}.add({self._name(x.operands[0])}{'' if self.nest.vertical else ', lanes'})"
            )
        return f"{x.kind} {self._name(x)} = {text};"

    def _load(self, x: Expression, access: Access, lanes: str) -> str:
        step = 0 if lanes == "1" else access.at.steps[self.nest.lane]
        if lanes != "1" and self._tiled(access):
            return self._tile(access, written=False)
        if access.buffer is None:
            function = "line" if x.kind == Kind.WHOLE else "ramp"
            return f"{function}({place_text(access, self.counters)}, {size_text(step)})"
        lookups = list(zip(x.operands, access.strides, strict=True))
        spread = [(y, stride) for y, stride in lookups if lanes != "1" and y.varies & self.nest.laned]
        place = self._address(access) + "".join(
            f" + {self._name(y)}[0] * {size_text(stride)}" for y, stride in lookups if (y, stride) not in spread
        )
        if spread:
            at = " + ".join(f"{self._name(y)} * {size_text(stride)}" for y, stride in spread)
            return f"pick({place}, {at}{f' + line(0, {size_text(step)})' if step else ''}, {lanes})"
        real = x.kind == Kind.REAL
        if not step:
            return f"pb::all(pb::get({place}))" if real else f"spread({place})"
        return (
            f"{'pb::load' if real else 'read'}({place}, {lanes})"
            if step == 1
            else f"gather({place}, {size_text(step)}, {lanes})"
        )

    def _moved(self, store: Store) -> bool:
        """Return True for halves that are stored as they are read, without a float in between."""
        source, buffer = store.value.access, store.access.buffer
        return (
            source is not None
            and not store.value.operands
            and source.buffer is not None
            and buffer is not None
            and source.buffer.dtype == buffer.dtype
            and buffer.dtype in HALVES
            and store.access.at.steps[self.nest.lane] == source.at.steps[self.nest.lane] == 1
        )

    def _put(self, store: Store, lanes: str) -> str:
        place, step = self._address(store.access), store.access.at.steps[self.nest.lane]
        if lanes != "1" and self._moved(store):
            assert store.value.access is not None
            return f"move({place}, {self._address(store.value.access)}, {lanes});"
        fills = int(self.nest.sizes[self.nest.sweep[-1]]) >= REGISTER  # a part of a register is slower than a scatter
        if lanes != "1" and fills and self._tiled(store.access):
            return f"{self._tile(store.access, written=True)} = {self._name(store.value)};"
        if step in (0, 1) or lanes == "1":
            write = "pb::store" if store.value.kind == Kind.REAL else "write"
            return f"{write}({place}, {self._name(store.value)}, {lanes if step else 1});"
        return f"scatter({place}, {size_text(step)}, {self._name(store.value)}, {lanes});"

    def _tiled(self, access: Access) -> bool:
        nest = self.nest
        return nest.vertical and crosses(access, nest.sizes, nest.lane, nest.sweep[-1])

    def _tile(self, access: Access, written: bool) -> str:
        """Return the register of a tile that an iteration of the loop along the tile reads or writes."""
        rows, function = f"rows{len(self.tiles)}", "put_transposed" if written else "get_transposed"
        turn = self.counters[self.nest.sweep[-1]]
        place = re.sub(rf"\b{turn}\b", "tile", self._address(access))
        step = size_text(access.at.steps[self.nest.lane])
        self.tiles.append((written, f"{function}({rows}, {place}, {step}, lanes, height);"))
        return f"{rows}[{turn} - tile]"

    def _address(self, access: Access) -> str:
        assert access.buffer is not None
        terms = place_text(access, self.counters)
        return self.names[access.buffer] + (f" + {terms}" if terms != "0" else "")

    def _full(self, x: Expression) -> bool:
        return bool(x.varies & self.nest.swept)

    def _swept(self, access: Access) -> bool:
        return any(access.at.steps[d] for d in self.nest.sweep)

    # -- loops

    def _loops(self, dims: Iterable[int], body: list[str]) -> list[str]:
        for d in reversed(list(dims)):
            i, size = self.counters[d], size_text(self.nest.sizes[d], d not in self.nest.sweep)
            body = [f"for (int64_t {i} = 0; {i} < {size}; {i}++) {{", *_indented(body), "}"]
        return body

    def _sweep(self, body: list[str]) -> list[str]:
        if self.tiles:
            return self._loops(self.nest.sweep[:-1], self._along_tiles(body))
        if self.nest.vertical:
            return self._loops(self.nest.sweep, body)
        outside = [d for d in self.nest.sweep if d != self.nest.lane]
        return self._loops(outside, self._lanes(self.nest.lane, body))

    def _along_tiles(self, body: list[str]) -> list[str]:
        """Return the innermost loop, in steps of a tile's height."""
        tiles, self.tiles, d = self.tiles, [], self.nest.sweep[-1]
        i, size = self.counters[d], size_text(self.nest.sizes[d])
        return [
            f"for (int64_t tile = 0; tile < {size}; tile += pb::L) {{",
            f"  int64_t height = {size} - tile < pb::L ? {size} - tile : pb::L;",
            *(f"  vec rows{number}[pb::L]{{}};" for number in range(len(tiles))),
            *(f"  {line}" for written, line in tiles if not written),
            f"  for (int64_t {i} = tile; {i} < tile + height; {i}++) {{", *_indented(_indented(body)), "  }",
            *(f"  {line}" for written, line in tiles if written),
            "}",
        ]  # fmt: skip

    def _lanes(self, d: int, body: list[str]) -> list[str]:
        """Return a loop over registers: a body that is printed once, for whole registers and for the last."""
        i, size = self.counters[d], size_text(self.nest.sizes[d])
        return _block([
            f"auto step = [&](int64_t {i}, auto lanes) __attribute__((always_inline)) {{", *_indented(body), "};",
            "int64_t i = 0;",
            f"for (; i + pb::L <= {size}; i += pb::L) step(i, All{{}});",
            f"if (i < {size}) step(i, {size} - i);",
        ])  # fmt: skip

    def _slot(self) -> str:
        """Return the index of a value in the buffer that keeps a row."""
        place, size = [], 1
        for d in reversed(self.nest.sweep):
            place.append(times_text(self.counters[d], size))
            size *= self.nest.sizes[d]
        return f"({' + '.join(place)}) * pb::L" if self.nest.vertical else " + ".join(place)


def _unrounded(store: Store, generic: torch.dtype | None) -> Store:
    """Return a store without the rounding that storing does anyway."""
    assert store.access.buffer is not None
    name = c_type(store.access.buffer.dtype, generic)
    if store.value.text not in (f"pb::round<{name}>({{0}})", f"wrapped<{name}>({{0}})"):
        return store
    bare = store.value.operands[0]
    bare.name, bare.operator = bare.name or store.value.name, bare.operator or store.value.operator
    return Store(store.access, bare)


def registers(nodes: Sequence[Expression], names: Mapping[Buffer, str]) -> dict[Expression, str]:
    """Return a different name for each register: that of the graph's value if it has one."""
    used, result = {*names.values(), *RESERVED}, {}
    for x in nodes:
        result[x] = name = x.name if x.name and x.name not in used else f"{x.name}{'_' if x.name else 'v'}{x.number}"
        used.add(name)
    return result


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _block(lines: Sequence[str]) -> list[str]:
    return ["{", *_indented(lines), "}"]


def turned(nest: Nest) -> Nest:
    """Return a nest with the loop that most tiles can lie along inside, or the nest if it reduces or has no tiles."""
    if nest.vertical or any(x.reduces or x.text == "running" for x in below(nest.stores)):
        return nest
    places = accesses(nest.stores)
    tiles = {d: sum(crosses(access, nest.sizes, nest.lane, d) for access in places) for d in nest.rows}
    along = max(tiles, key=lambda d: tiles[d], default=None)
    if along is None or not tiles[along]:
        return nest
    rows = (*(d for d in nest.rows if d != along), nest.lane)
    return replace(nest, rows=rows, sweep=(along,), swept=frozenset({along}), vertical=True)
