"""The printer for C++: nests of loops as one function on the registers of passbench.h."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_passbench.fusion.ir import C_TYPES, Access, Buffer, Expression, Nest, Store, below

LONGEST_ROW = 1 << 15
"""The floats of a row's values that may be held from one sweep to the next."""

PRELUDE = """\
#include "passbench.h"
using pb::vec; using pb::ivec;

// Registers are read and written whole (All) or up to a number of lanes.
struct All { operator int64_t() const { return pb::L; } };
inline ivec mask(bool x) { return ivec{} - int32_t(x); }
template <class T> inline vec read(const T* p, All) { return pb::load(p); }
template <class T> inline vec read(const T* p, int64_t lanes) { return pb::load(p, lanes); }
template <class T> inline vec spread(const T* p) { return pb::all(pb::get(p)); }
inline ivec spread(const bool* p) { return mask(*p); }
template <class T> inline vec gather(const T* p, int64_t step, int64_t lanes) {
  vec x{};
  for (int64_t i = 0; i < lanes; i++) x[i] = pb::get(p + i * step);
  return x;
}
inline ivec gather(const bool* p, int64_t step, int64_t lanes) {
  ivec x{};
  for (int64_t i = 0; i < lanes; i++) x[i] = -int32_t(p[i * step]);
  return x;
}
inline ivec read(const bool* p, int64_t lanes) { return gather(p, 1, lanes); }
inline ivec read(const bool* p, All) { return gather(p, 1, pb::L); }
template <class T> inline void write(T* p, vec x, All) { pb::store(p, x); }
template <class T> inline void write(T* p, vec x, int64_t lanes) { pb::store(p, x, lanes); }
template <class T> inline void scatter(T* p, int64_t step, vec x, int64_t lanes) {
  for (int64_t i = 0; i < lanes; i++) pb::put(p + i * step, x[i]);
}
inline void scatter(bool* p, int64_t step, ivec x, int64_t lanes) {
  for (int64_t i = 0; i < lanes; i++) p[i * step] = x[i] != 0;
}
inline void write(bool* p, ivec x, int64_t lanes) { scatter(p, 1, x, lanes); }
inline void write(bool* p, ivec x, All) { scatter(p, 1, x, pb::L); }

inline vec greater(vec a, vec b) { return ((a != a) | (a > b)) ? a : b; }  // NaN, if one of them is
inline vec lesser(vec a, vec b) { return ((a != a) | (a < b)) ? a : b; }
inline vec fused(vec a, vec b, vec c) {  // a * b + c, rounded once
  for (int i = 0; i < pb::L; i++) a[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return a;
}

// Joins the values of a row. A sum adds 64 values at a time, so that long rows lose no accuracy.
struct Sum {
  vec all{}, part{};
  int count = 0;
  void add(vec x) {
    part += x;
    if (++count == 64) { all += part; part = vec{}; count = 0; }
  }
  void add(vec x, All) { add(x); }
  void add(vec x, int64_t lanes) { add(pb::first(lanes, x, vec{})); }
  vec lanes() const { return all + part; }
  vec row() const { return pb::all(pb::total(lanes())); }
};
struct Greatest {
  vec all = pb::all(-__builtin_inff());
  void add(vec x) { all = greater(x, all); }
  void add(vec x, All) { add(x); }
  void add(vec x, int64_t lanes) { add(pb::first(lanes, x, all)); }
  vec lanes() const { return all; }
  vec row() const {
    vec x = all;
    for (int i = 1; i < pb::L; i++) x = greater(x, pb::all(x[i]));
    return pb::all(x[0]);
  }
};
"""
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
        size = f"{slots} * pb::L" if nest.vertical else f"{slots} + pb::L"
        held = [f"float row{number}[{size}];" for number in self.saved.values()]
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
            lines += [f"{REDUCERS[x.text]} r{x.number};" for x in reductions]
            lines += self._sweep(self._sweep_body(reductions, full))
            row = "lanes" if self.nest.vertical else "row"
            lines += [f"vec {_name(x)} = r{x.number}.{row}();" for x in reductions]
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
        costly = x.access is None and not x.mask and "(" in x.text and slots <= LONGEST_ROW
        if costly and x in self.computed and x in self.saved:
            lines[x] = [f"vec {_name(x)} = pb::load(row{self.saved[x]} + {self._slot()});"]
            return
        for operand in x.operands:
            self._need(operand, lines)
        lines[x] = [self._define(x, "lanes")]
        if costly and x not in self.computed and self._used_later(x):
            self.saved[x] = len(self.saved)
            lines[x].append(f"pb::store(row{self.saved[x]} + {self._slot()}, {_name(x)});")

    def _used_later(self, x: Expression) -> bool:
        """Return True if a later sweep needs an expression too."""
        return any(x in user.operands and self._full(user) and user.depth > x.depth for user in self.nodes)

    # -- statements

    def _define(self, x: Expression, lanes: str) -> str:
        kind = "ivec" if x.mask else "vec"
        if x.access is None:
            return f"{kind} {_name(x)} = {x.text.format(*map(_name, x.operands))};"
        return f"{kind} {_name(x)} = {self._load(x.access, lanes)};"

    def _load(self, access: Access, lanes: str) -> str:
        place, step = self._address(access), access.at.steps[self.nest.lane]
        if not step or lanes == "1":
            return f"spread({place})"
        return f"read({place}, {lanes})" if step == 1 else f"gather({place}, {step}, {lanes})"

    def _put(self, store: Store, lanes: str) -> str:
        place, step = self._address(store.access), store.access.at.steps[self.nest.lane]
        if step in (0, 1) or lanes == "1":
            return f"write({place}, {_name(store.value)}, {lanes if step else 'int64_t(1)'});"
        return f"scatter({place}, {step}, {_name(store.value)}, {lanes});"

    def _address(self, access: Access) -> str:
        loops = {*self.nest.rows, *self.nest.sweep, self.nest.lane}
        terms = [self.names[access.buffer], *([str(access.at.offset)] if access.at.offset else [])]
        terms += [_times(d, step) for d, step in enumerate(access.at.steps) if step and d in loops]
        return " + ".join(terms)

    def _full(self, x: Expression) -> bool:
        return bool(x.varies & self.nest.swept)

    def _swept(self, access: Access) -> bool:
        return any(access.at.steps[d] for d in self.nest.sweep)

    # -- loops

    def _loops(self, dims: Iterable[int], body: list[str]) -> list[str]:
        for d in reversed(list(dims)):
            body = [f"for (int64_t i{d} = 0; i{d} < {self.nest.sizes[d]}; i{d}++) {{", *_indented(body), "}"]
        return body

    def _sweep(self, body: list[str]) -> list[str]:
        if self.nest.vertical:
            return self._loops(self.nest.sweep, body)
        return self._loops(self._outside(), self._lanes(self.nest.lane, body))

    def _outside(self) -> list[int]:
        return [d for d in self.nest.sweep if d != self.nest.lane]

    def _lanes(self, d: int, body: list[str]) -> list[str]:
        """Return a loop over registers: a body that is printed once, for whole registers and for the last."""
        size = self.nest.sizes[d]
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
    rounding = f"pb::round<{C_TYPES[store.access.buffer.dtype]}>({{0}})"
    return Store(store.access, store.value.operands[0]) if store.value.text == rounding else store


def _name(x: Expression) -> str:
    return x.text if x.constant else f"v{x.number}"


def _times(d: int, step: int) -> str:
    return f"i{d}" if step == 1 else f"i{d} * {step}"


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _block(lines: Sequence[str]) -> list[str]:
    return ["{", *_indented(lines), "}"]


def source(name: str, nests: Sequence[Nest]) -> tuple[str, list[Buffer]]:
    """Return the C++ text of a function that runs nests, and the buffers that its parameters point to, in order."""
    written = {store.access.buffer for nest in nests for store in nest.stores}
    read = {x.access.buffer for nest in nests for x in below(nest.stores) if x.access}
    buffers = sorted(written | read, key=lambda buffer: buffer.number)
    names = {buffer: f"{'in' if buffer.argument is not None else 'out'}_{buffer.number}" for buffer in buffers}
    types = {b: C_TYPES[b.dtype] if b in written else f"const {C_TYPES[b.dtype]}" for b in buffers}
    parameters = ", ".join(f"{types[b]}* {names[b]}" for b in buffers)
    body = _indented(line for nest in nests for line in Printer(nest, names).text())
    lines = [f'extern "C" void {name}({parameters}) {{', *body, "}"]
    return f"{PRELUDE}\n" + "\n".join(lines) + "\n", buffers
