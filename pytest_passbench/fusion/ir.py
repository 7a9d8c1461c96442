"""The values of the generator: memory and calls from a trace, expressions over loops, and nests of loops."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias

import torch

from pytest_passbench.core.grouping import reached

C_TYPES = {
    torch.float32: "float", torch.bfloat16: "pb::bf16", torch.float16: "pb::f16", torch.bool: "bool",
    torch.int64: "int64_t", torch.int32: "int32_t", torch.int16: "int16_t", torch.int8: "int8_t",
    torch.uint8: "uint8_t", torch.float64: "double",
}  # fmt: skip
"""The dtypes that kernels read and write, with the C++ types of their elements."""


def c_type(dtype: torch.dtype, generic: torch.dtype | None = None) -> str:
    """Return the C++ type of a dtype's elements: T for ``generic``, which stands for any floating dtype."""
    return "T" if dtype == generic else C_TYPES[dtype]


REGISTER = 8
"""The number of lanes of a register that schedules assume."""

LEAST_TILE = 3
"""The fewest floats in a row that are read in tiles. Two are gathered."""

TO_DOUBLES = "__builtin_convertvector({0}, doubles)"
SQUARED_DISTANCE = "({0} - {1}) * ({0} - {1})"
"""Texts of expressions that a sum of doubles computes in registers of its own."""

HALVES = frozenset({torch.bfloat16, torch.float16})
INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


class Kind(StrEnum):
    """A kind of values in a register, named by its C++ type: floats, doubles, whole numbers of 64 bits, or bools."""

    REAL = "vec"
    DOUBLE = "doubles"
    WHOLE = "whole"
    MASK = "ivec"


def kind_of(dtype: torch.dtype) -> Kind:
    """Return the kind of the registers that hold elements of a dtype."""
    kinds = {torch.bool: Kind.MASK, torch.float64: Kind.DOUBLE, **dict.fromkeys(INTEGERS, Kind.WHOLE)}
    return kinds.get(dtype, Kind.REAL)


class Unsupported(NotImplementedError):
    """A computation for which the generator has no kernel."""


@dataclass(eq=False)
class Buffer:
    """Memory of an argument, or of a call's result. ``number`` counts in the order of the computation.

    ``sizes`` and ``strides`` count elements. ``argument`` is the place among the inputs; ``maker`` is None for those.
    ``place`` is that among the results of ``maker``, ``name`` that of the value in the user's graph, if any.
    """

    number: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    argument: int | None = None
    maker: Call | None = None
    place: int = 0
    name: str = ""


@dataclass(frozen=True)
class Value:
    """A tensor: sizes and strides in a buffer, from an offset on. A view is another value of the same buffer."""

    buffer: Buffer
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the elements."""
        return self.buffer.dtype

    @property
    def whole(self) -> bool:
        """True if the value is the buffer as it was made, not a view of it."""
        return (self.sizes, self.strides, self.offset) == (self.buffer.sizes, self.buffer.strides, 0)


@dataclass(eq=False)
class Call:
    """An ATen call: its name without namespace and overload, and its arguments by the schema's names."""

    name: str
    arguments: dict[str, Any]
    results: list[Buffer] = field(default_factory=list)

    def values(self) -> Iterator[Value]:
        """Yield the tensors among the arguments."""
        for item in self.arguments.values():
            yield from (part for part in (item if isinstance(item, list) else [item]) if isinstance(part, Value))


@dataclass(frozen=True)
class Trace:
    """A computation as calls on memory. ``single``: it returns one tensor, not a tuple.

    ``generic`` is a dtype that stands for any of the floating dtypes: the kernel is a template of it.
    """

    inputs: tuple[Value, ...]
    results: tuple[Value, ...]
    single: bool
    generic: torch.dtype | None = None


@dataclass(frozen=True)
class Affine:
    """A number that depends on the loops: an offset, and a step for each dimension of the domain."""

    offset: int
    steps: tuple[int, ...]


Index: TypeAlias = tuple[Affine, ...]
"""An element of a tensor: an affine number per dimension."""


@dataclass(frozen=True)
class Loops:
    """A domain: its sizes, and the dimensions that reductions run over.

    ``parts`` has, for each loop, the dimension of tensors that it is a part of, and its step there. The dimension is
    None for a loop over no dimension, such as that over a pool's window. Without ``parts`` each loop is a dimension.
    """

    sizes: tuple[int, ...]
    reduced: frozenset[int] = frozenset()
    parts: tuple[tuple[int | None, int], ...] = ()

    def places(self) -> tuple[tuple[int | None, int], ...]:
        """Return ``parts``, or what no parts stand for: each loop as a dimension."""
        return self.parts or tuple((d, 1) for d in range(len(self.sizes)))

    def dimensions(self) -> list[tuple[int, bool]]:
        """Return the size of each dimension of tensors, and True if all of it is reduced."""
        places = self.places()
        rank = 1 + max((d for d, _step in places if d is not None), default=-1)
        loops = [[loop for loop, (d, _step) in enumerate(places) if d == place] for place in range(rank)]
        return [(math.prod(self.sizes[i] for i in items), self.reduced >= set(items)) for items in loops]

    @cached_property
    def zero(self) -> Affine:
        """The number 0."""
        return Affine(0, (0,) * len(self.sizes))

    @cached_property
    def home(self) -> Index:
        """The index of a tensor over all dimensions."""
        steps = [(d, step * (size > 1)) for (d, step), size in zip(self.places(), self.sizes, strict=True)]
        rank = len(self.dimensions())
        return tuple(Affine(0, tuple(step * (d == dim) for d, step in steps)) for dim in range(rank))

    def forms(self) -> Iterator[tuple[tuple[int, ...], Index]]:
        """Yield the sizes of tensors that fit in the domain, each with its index.

        They are over all dimensions, or over the unreduced ones, with a size of 1 or nothing for the others.
        """
        dims = list(zip(self.dimensions(), self.home, strict=True))
        every = [(size, at) for (size, _reduced), at in dims]
        with_ones = [(1, self.zero) if reduced else (size, at) for (size, reduced), at in dims]
        unreduced = [(size, at) for (size, reduced), at in dims if not reduced]
        for form in (every, with_ones, unreduced):
            yield tuple(size for size, _at in form), tuple(at for _size, at in form)
        if self == Loops((1,)):
            yield (), ()


@dataclass(frozen=True)
class Access:
    """A place in a buffer, in elements from its first one, that depends on the loops. Without a buffer: that number.

    The operands of a load are whole numbers. Each is multiplied by one of ``strides`` and added to the place.
    """

    buffer: Buffer | None
    at: Affine
    strides: tuple[int, ...] = ()


@dataclass(eq=False)
class Expression:
    """A node of the expression DAG.

    ``text`` is C++ with ``{0}``, ``{1}`` for the operands, or ``load``, ``sum``, ``greatest`` (NaN, if there is one),
    ``greatest number`` (without NaN). ``total`` is a sum in the order in which ``torch.sum`` adds a row, as far
    as the loops allow, and ``chain`` one that adds each term in turn (``chain T``: if T is float16). ``lanes true``
    is a sum in the order of eager's softmax of halves, ``lanes false`` of floats, ``lanes T`` of T.
    ``mean`` and a C++ type is a mean in the order of torch's norms of that type, ``squares`` the sum of its first
    operand, the squared distances from that mean. ``varies`` has the dimensions that it depends on, ``depth`` the
    number of nested reductions below it. ``name`` and ``operator`` are those in the user's graph.
    """

    number: int
    text: str
    operands: tuple[Expression, ...] = ()
    kind: Kind = Kind.REAL
    access: Access | None = None
    varies: frozenset[int] = frozenset()
    depth: int = 0
    name: str = ""
    operator: str = ""

    @property
    def reduces(self) -> bool:
        """True for a reduction."""
        return self.text.split()[0] in ("sum", "total", "chain", "lanes", "mean", "squares", "greatest")

    @property
    def constant(self) -> bool:
        """True for a number."""
        return not self.operands and self.access is None


def number_text(number: float) -> str:
    """Return a number that differs between traces as C++ text: a mark that becomes a parameter."""
    return f"#{number}#"


def size_text(size: int, outside: bool = False) -> str:
    """Return a size, a step or an offset as C++ text: a mark that becomes a parameter or a literal.

    ``outside`` is True for the number of iterations of an outer loop, which becomes a parameter even if it is small.
    """
    return f"@{size}!@" if outside else f"@{size}@"


def times_text(counter: str, step: int) -> str:
    """Return a loop's counter times a step, as text."""
    return counter if step == 1 else f"{counter} * {size_text(step)}"


def place_text(access: Access, counters: Mapping[int, str]) -> str:
    """Return where an access lies in its buffer, as text. ``counters`` has the loops' counters by dimension."""
    terms = [size_text(access.at.offset)] if access.at.offset else []
    terms += [times_text(counters[d], step) for d, step in enumerate(access.at.steps) if step and d in counters]
    return " + ".join(terms) or "0"


@dataclass(frozen=True)
class Store:
    """An expression and the place that it is stored in."""

    access: Access
    value: Expression


@dataclass(frozen=True)
class Nest:
    """Loops in the order in which they run, and what is stored in them.

    ``rows`` are the outer loops; in each iteration of them the ``sweep`` runs once per stage. ``lane`` is the
    dimension that registers lie along: the last of the sweep, or (``vertical``) a loop outside of it.
    ``swept`` has all dimensions of the domain that the sweep stands for, ``laned`` those of the lane.
    """

    sizes: tuple[int, ...]
    rows: tuple[int, ...]
    sweep: tuple[int, ...]
    swept: frozenset[int]
    laned: frozenset[int]
    lane: int
    vertical: bool
    stores: tuple[Store, ...]


def below(stores: tuple[Store, ...]) -> list[Expression]:
    """Return all expressions that stores need, operands first."""
    expressions = reached((store.value for store in stores), lambda expression: expression.operands)
    return sorted(expressions, key=lambda expression: expression.number)


def accesses(stores: tuple[Store, ...]) -> list[Access]:
    """Return what stores write, and then what they read."""
    return [*(store.access for store in stores), *(x.access for x in below(stores) if x.access)]


def crosses(access: Access, sizes: Sequence[int], lane: int, along: int) -> bool:
    """Return True for floats that lie apart along ``lane``, and in a row, which is long enough, along a loop."""
    if access.buffer is None or access.strides or kind_of(access.buffer.dtype) != Kind.REAL:
        return False
    steps = access.at.steps
    return int(sizes[along]) >= LEAST_TILE and bool(steps[along] == 1) and steps[lane] not in (0, 1)
