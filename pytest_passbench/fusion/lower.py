"""From calls to expressions: the value of a buffer at an index, by the rule of the call that makes it.

If an expression cannot be computed without a buffer in memory, :class:`Needed` is raised: the buffer is stored, and
scheduling begins again.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from pytest_passbench.fusion.columns import SizedNumber
from pytest_passbench.fusion.ir import (
    C_TYPES,
    HALVES,
    INTEGERS,
    TO_DOUBLES,
    Access,
    Affine,
    Buffer,
    Call,
    Expression,
    Index,
    Kind,
    Loops,
    Unsupported,
    Value,
    c_type,
    kind_of,
    number_text,
    size_text,
)

LONGEST = 2_000
"""The most expressions of a nest."""
EXACT = 1 << 24
"""Up to this number, float32 holds every whole number exactly."""
UNSUPPORTED_DOUBLES = "float64 in a computation of floats"


_MASK, _REAL, _DOUBLE, _WHOLE = Kind.MASK, Kind.REAL, Kind.DOUBLE, Kind.WHOLE
_CASTS = {
    (_MASK, _REAL): "({0} ? pb::all(1) : pb::vec{{}})",
    (_WHOLE, _REAL): "__builtin_convertvector({0}, vec)",
    (_MASK, _WHOLE): "-__builtin_convertvector({0}, whole)",
    (_REAL, _WHOLE): "__builtin_convertvector({0}, whole)",
    (_REAL, _MASK): "({0} != 0)",
    (_WHOLE, _MASK): "~equal({0}, every(0))",
    (_MASK, _DOUBLE): "-__builtin_convertvector({0}, doubles)",
    (_WHOLE, _DOUBLE): "__builtin_convertvector({0}, doubles)",
    (_REAL, _DOUBLE): TO_DOUBLES,
    (_DOUBLE, _REAL): "__builtin_convertvector({0}, vec)",
    (_DOUBLE, _WHOLE): "__builtin_convertvector({0}, whole)",
    (_DOUBLE, _MASK): "__builtin_convertvector({0} != 0, ivec)",
}
_WHOLE_COMPARISONS = {
    "==": "equal({0}, {1})", "!=": "~equal({0}, {1})", "<": "below({0}, {1})", ">": "below({1}, {0})",
    "<=": "~below({1}, {0})", ">=": "~below({0}, {1})",
}  # fmt: skip


class Needed(Exception):
    """The error that a buffer has to be in memory before an expression can read it."""

    def __init__(self, buffer: Buffer) -> None:
        super().__init__(buffer)
        self.buffer = buffer


Element: TypeAlias = "Callable[[Lowering, Call, Index], Expression]"
"""The expression of an element of a call's result."""


@dataclass(frozen=True)
class Rule:
    """A rule for an operator: the expression of an element of its result.

    ``loops`` gives the domain of an operator that reduces. ``exact``: each element is an operand's element
    or a constant that the result's dtype can hold, so nothing is rounded.
    """

    element: Element
    loops: Callable[[Call], Loops] | None = None
    exact: bool = False


RULES: dict[str, Rule] = {}
"""The rules by the operator's name. Importing a module of rules enters them."""


def rule(
    *names: str, loops: Callable[[Call], Loops] | None = None, exact: bool = False
) -> Callable[[Element], Element]:
    """Return a decorator that makes a function the rule of the operators with these names."""

    def enter(element: Element) -> Element:
        RULES.update(dict.fromkeys(names, Rule(element, loops, exact)))
        return element

    return enter


class Lowering:
    """The expressions of one nest. ``in_memory`` are the buffers that other nests store."""

    def __init__(self, loops: Loops, in_memory: Set[Buffer], generic: torch.dtype | None) -> None:
        self.loops, self.in_memory, self.generic = loops, in_memory, generic
        self.zero, self.home = loops.zero, loops.home
        self._known: dict[Any, Expression] = {}
        self._elements: dict[Any, Expression] = {}

    # -- expressions

    def apply(self, text: str, *operands: Expression | float, kind: Kind = Kind.REAL) -> Expression:
        """Return an expression by its C++ text, with ``{0}``, ``{1}`` for the operands.

        Raises Unsupported if it mixes doubles and floats, unless it is a cast.
        """
        nodes = tuple(x if isinstance(x, Expression) else self.number(x) for x in operands)
        if text not in _CASTS.values() and {_DOUBLE, _REAL} <= {kind, *(x.kind for x in nodes)}:
            raise Unsupported(UNSUPPORTED_DOUBLES)
        varies = frozenset[int]().union(*(x.varies for x in nodes))
        return self._node(text, nodes, kind, None, varies, max((x.depth for x in nodes), default=0))

    def number(self, x: float) -> Expression:
        """Return a number in single precision."""
        text = number_text(x) if isinstance(x, SizedNumber) else literal(x)
        return self._node(f"pb::all({text})", (), Kind.REAL, None, frozenset(), 0)

    def double(self, x: float) -> Expression:
        """Return a number in double precision."""
        text = double_text(x) if math.isfinite(x) else literal(x)
        return self._node(f"(doubles{{}} + {text})", (), Kind.DOUBLE, None, frozenset(), 0)

    def integer(self, x: int) -> Expression:
        """Return a whole number."""
        return self._node(f"every({size_text(x)})", (), Kind.WHOLE, None, frozenset(), 0)

    def size(self, x: int) -> Expression:
        """Return a number of elements as a float."""
        return self._node(f"pb::all({size_text(x)})", (), Kind.REAL, None, frozenset(), 0)

    def truth(self, x: bool) -> Expression:
        """Return a bool."""
        return self._node(f"mask({str(x).lower()})", (), Kind.MASK, None, frozenset(), 0)

    def count(self, at: Affine, kind: Kind = Kind.WHOLE) -> Expression:
        """Return a number that depends on the loops, as a whole number or as a float."""
        varies = frozenset(d for d, step in enumerate(at.steps) if step)
        if not varies:
            return self.cast(self.integer(at.offset), kind)
        return self._node("count", (), kind, Access(None, at), varies, 0)

    def reduce(self, how: str, x: Expression, *others: Expression) -> Expression:
        """Return a reduction of an expression over the domain's reduced dimensions: ``how`` is its text.

        Over no elements it is 0, and nothing is read: an input without elements may have no memory.
        """
        if 0 in (self.loops.sizes[d] for d in self.loops.reduced):
            return self.cast(self.integer(0), x.kind)
        return self._node(how, (x, *others), x.kind, None, x.varies - self.loops.reduced, x.depth + 1)

    def running(self, x: Expression) -> Expression:
        """Return the running sum of an expression along the reduced dimension. Raises Unsupported for doubles."""
        if x.kind == Kind.DOUBLE:
            raise Unsupported(UNSUPPORTED_DOUBLES)
        loops = frozenset(d for d in self.loops.reduced if self.loops.sizes[d] > 1)
        return self._node("running", (x,), x.kind, None, x.varies | loops, x.depth) if loops else x

    def rounded(self, x: Expression, dtype: torch.dtype) -> Expression:
        """Return an expression as storing it in a tensor of a dtype rounds it."""
        if dtype in HALVES:
            return self.apply(f"pb::round<{c_type(dtype, self.generic)}>({{0}})", x)
        if dtype in INTEGERS - {torch.int64} and x.access is None:
            return self.apply(f"wrapped<{C_TYPES[dtype]}>({{0}})", x, kind=Kind.WHOLE)
        return x

    def bf16_rounded(self, x: Expression, dtype: torch.dtype) -> Expression:
        """Return an expression, rounded if the dtype is bfloat16: in that alone eager rounds between two steps."""
        if self.generic is not None and dtype == self.generic:
            return self.apply("bf16_rounded<T>({0})", x)
        return self.rounded(x, dtype) if dtype == torch.bfloat16 else x

    def cast(self, x: Expression, kind: Kind) -> Expression:
        """Return an expression as another kind: true becomes 1, and numbers other than 0 become true."""
        return x if x.kind == kind else self.apply(_CASTS[x.kind, kind], x, kind=kind)

    def converted(self, x: Expression, dtype: torch.dtype) -> Expression:
        """Return an expression as the kind of a dtype. A whole number or double that becomes a float is rounded."""
        y = self.cast(x, kind_of(dtype))
        return self.rounded(y, dtype) if x.kind in (_WHOLE, _DOUBLE) and y.kind == _REAL else y

    def real(self, x: Expression) -> Expression:
        """Return an expression as floats. Raises Unsupported for doubles."""
        if x.kind == Kind.DOUBLE:
            raise Unsupported(UNSUPPORTED_DOUBLES)
        return self.cast(x, Kind.REAL)

    def choose(self, condition: Expression, x: Expression, y: Expression) -> Expression:
        """Return one of two expressions of one kind, by lane."""
        text = "chosen({0}, {1}, {2})" if x.kind == Kind.WHOLE else "({0} ? {1} : {2})"
        if x.kind == Kind.DOUBLE:
            text = "(__builtin_convertvector({0}, whole) ? {1} : {2})"
        return self.apply(text, self.cast(condition, Kind.MASK), x, y, kind=x.kind)

    def compare(self, sign: str, x: Expression, y: Expression) -> Expression:
        """Return the comparison of two expressions of one kind."""
        text = _WHOLE_COMPARISONS[sign] if x.kind == Kind.WHOLE else f"({{0}} {sign} {{1}})"
        text = f"__builtin_convertvector({text}, ivec)" if x.kind == Kind.DOUBLE else text
        return self.apply(text, x, y, kind=Kind.MASK)

    def _node(
        self, text: str, operands: tuple[Expression, ...], kind: Kind, access: Access | None,
        varies: frozenset[int], depth: int,
    ) -> Expression:  # fmt: skip
        key = (text, operands, access)
        if key not in self._known:
            if len(self._known) >= LONGEST:
                raise Unsupported(f"more than {LONGEST} expressions in one loop")
            self._known[key] = Expression(len(self._known), text, operands, kind, access, varies, depth)
        return self._known[key]

    # -- tensors

    def operand(self, item: Any, index: Index, dtype: torch.dtype | None = None) -> Expression:
        """Return an operand, broadcast to an index. A number is rounded to ``dtype`` if one is stated."""
        if isinstance(item, Value):
            ends = zip(item.sizes, index[len(index) - len(item.sizes) :], strict=True)
            return self.read(item, tuple(self.zero if size == 1 else at for size, at in ends))
        if not isinstance(item, (int, float)):
            raise Unsupported(f"the argument {item!r}")
        if dtype is not None and kind_of(dtype) == Kind.WHOLE and isinstance(item, int):
            return self.integer(item)
        if isinstance(item, bool) and dtype in (None, torch.bool):
            return self.truth(item)
        if dtype == torch.float64:
            return self.double(item)
        if dtype is not None and (dtype == self.generic or isinstance(item, SizedNumber)):
            return self.rounded(self.number(item), dtype)
        return self.number(item if dtype is None else stored_number(item, dtype))

    def read(self, value: Value, index: Index, lookups: tuple[tuple[Expression, int], ...] = ()) -> Expression:
        """Return the element of a value at an index.

        ``lookups`` are whole numbers and their strides: each product is added to the element's place.
        """
        buffer, at = value.buffer, address(value, index, self.zero)
        if buffer.argument is not None or buffer in self.in_memory:
            if buffer.dtype not in C_TYPES:
                raise Unsupported(str(buffer.dtype).removeprefix("torch."))
            numbers = tuple(x for x, _stride in lookups)
            varies = frozenset(d for d, step in enumerate(at.steps) if step).union(*(x.varies for x in numbers))
            access = Access(buffer, at, tuple(stride for _x, stride in lookups))
            depth = max((x.depth for x in numbers), default=0)
            x = self._node("load", numbers, kind_of(buffer.dtype), access, varies, depth)
            x.name = x.name or (f"{buffer.name}_i" if buffer.name else "")
            return x
        if lookups:
            raise Needed(buffer)
        return self.element(buffer, index if value.whole else self._place(at, buffer))

    def element(self, buffer: Buffer, index: Index) -> Expression:
        """Return the element of a call's result at an index, rounded as eager stores it. Raises Unsupported."""
        call = buffer.maker
        assert call is not None
        rule = RULES.get(call.name)
        if rule is None or buffer.place or buffer.dtype not in C_TYPES:
            raise Unsupported(call.name if rule is None else f"{call.name}: result {buffer.place} of {buffer.dtype}")
        loops = rule.loops(call) if rule.loops else None
        if loops and loops.reduced and (loops != self.loops or index not in (at for _sizes, at in loops.forms())):
            raise Needed(buffer)  # the result is read elsewhere than this nest's loops compute it
        key = (buffer, index)
        if key not in self._elements:
            x = rule.element(self, call, index)
            if x.kind != kind_of(buffer.dtype):
                raise Unsupported(f"{call.name} of {buffer.dtype}".replace("torch.", ""))
            others = {torch.bool, *INTEGERS} if kind_of(buffer.dtype) == Kind.REAL else {torch.bool}
            exact = rule.exact and all(v.dtype in (buffer.dtype, *others) for v in call.values())
            x = x if exact else self.rounded(x, buffer.dtype)
            if not x.name and not x.constant and x.access is None:
                x.name, x.operator = buffer.name, call.name
            self._elements[key] = x
        return self._elements[key]

    def _place(self, at: Affine, buffer: Buffer) -> Index:
        """Return the index of a place in a buffer. Raises Needed if a step of the loops crosses its dimensions."""
        dims = sorted((d for d, size in enumerate(buffer.sizes) if size > 1), key=lambda d: -buffer.strides[d])
        steps = {d: list(self.zero.steps) for d in dims}
        offsets, rest = {}, at.offset
        for d in dims:
            offsets[d], rest = divmod(rest, buffer.strides[d])
        for loop, step in enumerate(at.steps):
            if step:
                target = next((d for d in dims if buffer.strides[d] <= step), None)
                if target is None or step % buffer.strides[target]:
                    raise Needed(buffer)
                steps[target][loop] = step // buffer.strides[target]
        for d in dims:
            last = offsets[d] + sum((n - 1) * step for n, step in zip(self.loops.sizes, steps[d], strict=True))
            if last >= buffer.sizes[d]:
                raise Needed(buffer)
        places = {d: Affine(offsets[d], tuple(steps[d])) for d in dims}
        return tuple(places.get(d, self.zero) for d in range(len(buffer.sizes)))


def address(value: Value, index: Index, zero: Affine) -> Affine:
    """Return where in its buffer an element of a value lies."""
    offset, steps = value.offset, list(zero.steps)
    for stride, at in zip(value.strides, index, strict=True):
        offset += stride * at.offset
        steps = [step + stride * more for step, more in zip(steps, at.steps, strict=True)]
    return Affine(offset, tuple(steps))


def stored_number(x: float, dtype: torch.dtype) -> float:
    """Return a number rounded as an element of a dtype. No tensor is made, which a recorder would note."""
    if dtype == torch.float16 and math.isfinite(x):
        try:
            return float(struct.unpack("e", struct.pack("e", x))[0])
        except OverflowError:
            return math.copysign(math.inf, x)
    x = single(x)
    if dtype != torch.bfloat16 or not math.isfinite(x):
        return x
    (bits,) = struct.unpack("I", struct.pack("f", x))
    return float(struct.unpack("f", struct.pack("I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0])


def single(x: float) -> float:
    """Return a number in single precision."""
    return ctypes.c_float(x).value


def double_text(x: float) -> str:
    """Return a number in double precision as C++ text."""
    return number_text(x) if isinstance(x, SizedNumber) else repr(float(x))


def literal(x: float) -> str:
    """Return a number in single precision as C++ text."""
    x = single(x)
    if math.isfinite(x):
        return f"{x!r}f"
    return '__builtin_nanf("")' if math.isnan(x) else f"{'-' if x < 0 else ''}__builtin_inff()"
