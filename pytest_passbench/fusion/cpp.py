"""The printer for C++: nests of loops as one function on the registers of passbench.h."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_passbench.fusion.ir import C_TYPES, Access, Buffer, Expression, Kind, Nest, Store, below, size_text
from pytest_passbench.fusion.prelude import PRELUDE

LITERAL = 8
"""The greatest size that the text has as a literal: what is so short is unrolled."""
LONGEST_ROW = 1 << 15
"""The floats of a row's values that may be held from one sweep to the next."""

REDUCERS = {"sum": "Sum", "greatest": "Greatest"}


class Printer:
    """The text of one nest. ``names`` are the parameters of the buffers."""

    def __init__(self, nest: Nest, names: dict[Buffer, str]) -> None:
        self.nest, self.names = nest, names
        self.nodes = below(tuple(_unrounded(store) for store in nest.stores))
        self.stores = [_unrounded(store) for store in nest.stores]
        self.last = max(x.depth for x in self.nodes)
        self.saved: dict[Expression, int] = {}
        self.computed: set[Expression] = set()

    def text(self) -> list[str]:
        """Return the lines of the nest."""
        nest = self.nest
        loops = [d for d in nest.rows if d != nest.lane] if nest.vertical else nest.rows
        body = [line for depth in range(self.last + 1) for line in self._stage(depth)]
        if nest.vertical:
            body = self._lanes(nest.lane, body)
        slots = math.prod(nest.sizes[d] for d in nest.sweep)
        size = f"{size_text(slots)} * pb::L" if nest.vertical else f"{size_text(slots)} + pb::L"
        held = [f"pb::buffer row{number}({size});" for number in self.saved.values()]
        return _block([*held, *self._loops(loops, body)])

    # -- stages

    def _stage(self, depth: int) -> list[str]:
        """Return what is done once a row, then a sweep, at a depth of reduction."""
        lanes, lines = "lanes" if self.nest.vertical else "1", []
        for x in self.nodes:
            if x.depth == depth and not (self._full(x) or x.constant or x.reduces):
                lines.append(self._define(x, lanes))
        at_depth = [store for store in self.stores if store.value.depth == depth]
        lines += [self._put(store, lanes) for store in at_depth if not self._swept(store.access)]
        reductions = [x for x in self.nodes if x.reduces and x.operands[0].depth == depth]
        full = [store for store in at_depth if self._swept(store.access)]
        if reductions or full:
            body = self._sweep_body(reductions, full)
            lines += [f"{REDUCERS[x.text]}<{x.kind}> r{x.number};" for x in reductions]
            lines += [f"Running<{x.kind}> {_name(x)}_{depth};" for x in self.nodes if x.text == "running"]
            lines += self._sweep([line.replace("{depth}", str(depth)) for line in body])
            row = "lanes" if self.nest.vertical else "row"
            lines += [f"{x.kind} {_name(x)} = r{x.number}.{row}();" for x in reductions]
        return lines

    def _sweep_body(self, reductions: Sequence[Expression], stores: Sequence[Store]) -> list[str]:
        lines: dict[Expression, list[str]] = {}
        for x in (*(r.operands[0] for r in reductions), *(store.value for store in stores)):
            self._need(x, lines)
        self.computed |= lines.keys()
        body = [line for part in lines.values() for line in part]
        lanes = "" if self.nest.vertical else ", lanes"
        body += [f"r{x.number}.add({_name(x.operands[0])}{lanes});" for x in reductions]
        return body + [self._put(store, "lanes") for store in stores]

    def _need(self, x: Expression, lines: dict[Expression, list[str]]) -> None:
        """Add the lines that compute an expression in a sweep. What is costly is held in the row for later sweeps."""
        if x in lines or x.constant or not self._full(x):
            return
        slots = math.prod(self.nest.sizes[d] for d in self.nest.sweep) * (16 if self.nest.vertical else 1)
        costly = (
            x.access is None
            and x.text != "running"
            and x.kind == Kind.REAL
            and "(" in x.text
            and slots <= LONGEST_ROW
        )
        if costly and x in self.computed and x in self.saved:
            lines[x] = [f"vec {_name(x)} = pb::load(row{self.saved[x]}.data + {self._slot()});"]
            return
        for operand in x.operands:
            self._need(operand, lines)
        lines[x] = [self._define(x, "lanes")]
        if costly and x not in self.computed and self._used_later(x):
            self.saved[x] = len(self.saved)
            lines[x].append(f"pb::store(row{self.saved[x]}.data + {self._slot()}, {_name(x)});")

    def _used_later(self, x: Expression) -> bool:
        """Return True if a later sweep needs an expression too."""
        return any(x in user.operands and self._full(user) and user.depth > x.depth for user in self.nodes)

    # -- statements

    def _define(self, x: Expression, lanes: str) -> str:
        text = self._load(x, x.access, lanes) if x.access else x.text.format(*map(_name, x.operands))
        if x.text == "running":
            text = f"{_name(x)}_{{depth}}.add({_name(x.operands[0])}{'' if self.nest.vertical else ', lanes'})"
        return f"{x.kind} {_name(x)} = {text};"

    def _load(self, x: Expression, access: Access, lanes: str) -> str:
        step = 0 if lanes == "1" else access.at.steps[self.nest.lane]
        if access.buffer is None:
            return f"line({self._terms(access)}, {size_text(step)})"
        lookups = list(zip(x.operands, access.strides, strict=True))
        spread = [(y, stride) for y, stride in lookups if lanes != "1" and y.varies & self.nest.laned]
        place = self._address(access) + "".join(
            f" + {_name(y)}[0] * {size_text(stride)}" for y, stride in lookups if (y, stride) not in spread
        )
        if spread:
            at = " + ".join(f"{_name(y)} * {size_text(stride)}" for y, stride in spread)
            return f"pick({place}, {at}{f' + line(0, {size_text(step)})' if step else ''}, {lanes})"
        if not step:
            return f"spread({place})"
        return f"read({place}, {lanes})" if step == 1 else f"gather({place}, {size_text(step)}, {lanes})"

    def _put(self, store: Store, lanes: str) -> str:
        place, step = self._address(store.access), store.access.at.steps[self.nest.lane]
        if step in (0, 1) or lanes == "1":
            return f"write({place}, {_name(store.value)}, {lanes if step else 'int64_t(1)'});"
        return f"scatter({place}, {size_text(step)}, {_name(store.value)}, {lanes});"

    def _address(self, access: Access) -> str:
        assert access.buffer is not None
        terms = self._terms(access)
        return self.names[access.buffer] + (f" + {terms}" if terms != "0" else "")

    def _terms(self, access: Access) -> str:
        """Return where an access lies in its buffer, for the first lane."""
        loops = {*self.nest.rows, *self.nest.sweep, self.nest.lane}
        terms = [size_text(access.at.offset)] if access.at.offset else []
        terms += [_times(d, step) for d, step in enumerate(access.at.steps) if step and d in loops]
        return " + ".join(terms) or "0"

    def _full(self, x: Expression) -> bool:
        return bool(x.varies & self.nest.swept)

    def _swept(self, access: Access) -> bool:
        return any(access.at.steps[d] for d in self.nest.sweep)

    # -- loops

    def _loops(self, dims: Iterable[int], body: list[str]) -> list[str]:
        for d in reversed(list(dims)):
            size = size_text(self.nest.sizes[d], d not in self.nest.sweep)
            body = [f"for (int64_t i{d} = 0; i{d} < {size}; i{d}++) {{", *_indented(body), "}"]
        return body

    def _sweep(self, body: list[str]) -> list[str]:
        if self.nest.vertical:
            return self._loops(self.nest.sweep, body)
        return self._loops(self._outside(), self._lanes(self.nest.lane, body))

    def _outside(self) -> list[int]:
        return [d for d in self.nest.sweep if d != self.nest.lane]

    def _lanes(self, d: int, body: list[str]) -> list[str]:
        """Return a loop over registers: a body that is printed once, for whole registers and for the last."""
        size = size_text(self.nest.sizes[d])
        return _block([
            f"auto step = [&](int64_t i{d}, auto lanes) __attribute__((always_inline)) {{", *_indented(body), "};",
            "int64_t i = 0;",
            f"for (; i + pb::L <= {size}; i += pb::L) step(i, All{{}});",
            f"if (i < {size}) step(i, {size} - i);",
        ])  # fmt: skip

    def _slot(self) -> str:
        """Return the place of a value in the floats that are held of a row."""
        place, size = [], 1
        for d in reversed(self.nest.sweep):
            place.append(_times(d, size))
            size *= self.nest.sizes[d]
        return f"({' + '.join(place)}) * pb::L" if self.nest.vertical else " + ".join(place)


def _unrounded(store: Store) -> Store:
    """Return a store without the rounding that storing does anyway."""
    assert store.access.buffer is not None
    c_type = C_TYPES[store.access.buffer.dtype]
    rounding = f"pb::round<{c_type}>({{0}})", f"wrapped<{c_type}>({{0}})"
    return Store(store.access, store.value.operands[0]) if store.value.text in rounding else store


def _name(x: Expression) -> str:
    return x.text if x.constant else f"v{x.number}"


def _times(d: int, step: int) -> str:
    return f"i{d}" if step == 1 else f"i{d} * {size_text(step)}"


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _block(lines: Sequence[str]) -> list[str]:
    return ["{", *_indented(lines), "}"]


@dataclass(frozen=True)
class Source:
    """The text of a C++ function. Its parameters point to ``buffers``; then come ``sizes``, as numbers."""

    text: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[int, ...]


def source(name: str, nests: Sequence[Nest]) -> Source:
    """Return the C++ text of a function that runs nests. Nests that differ in sizes alone have the same text."""
    written = {store.access.buffer for nest in nests for store in nest.stores}
    read = {x.access.buffer for nest in nests for x in below(nest.stores) if x.access}
    buffers = sorted((buffer for buffer in written | read if buffer), key=lambda buffer: buffer.number)
    names = {buffer: f"{'in' if buffer.argument is not None else 'out'}_{buffer.number}" for buffer in buffers}
    types = {b: C_TYPES[b.dtype] if b in written else f"const {C_TYPES[b.dtype]}" for b in buffers}
    body, sizes = _with_parameters(
        "\n".join(_indented(line for nest in nests for line in Printer(nest, names).text()))
    )
    parameters = [*(f"{types[b]}* {names[b]}" for b in buffers), *(f"int64_t n{k}" for k in range(len(sizes)))]
    lines = [f'extern "C" void {name}({", ".join(parameters)}) {{', body, "}"]
    return Source(f"{PRELUDE}\n" + "\n".join(lines) + "\n", tuple(buffers), sizes)


def _with_parameters(text: str) -> tuple[str, tuple[int, ...]]:
    """Return a text with parameters n0, n1, ... in place of sizes, and the sizes. Small ones become literals."""
    sizes: dict[int, str] = {}

    def name(mark: re.Match[str]) -> str:
        size = int(mark[1])
        return mark[1] if abs(size) <= LITERAL and not mark[2] else sizes.setdefault(size, f"n{len(sizes)}")

    return re.sub(r"@(-?\d+)(!?)@", name, text), tuple(sizes)
