"""What an expression may stand for: sets of atoms, joined over every way to reach it.

A value is a frozenset of atoms; the empty set is "nothing reaches here yet". Containers, functions, classes
and instances are atoms that point into :class:`~.program.Program`'s tables by the place they were made, so
the lattice is finite and the fixpoint ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Mark(Enum):
    """Runtime values of which only the kind is known."""

    TENSOR = "a tensor"
    SCALAR = "a number, shape, dtype, device, stream or other metadata"
    ADDRESS = "an address or identity of a tensor, beside the number that it is"
    TEXT = "a string that cannot be folded to a constant"
    MAYBE = "anything"
    NATIVE = "a library of the candidate's own C++ kernels, or one of its functions"
    KERNEL = "a Triton kernel"
    LAUNCH = "a Triton kernel with its grid"


@dataclass(frozen=True, slots=True)
class Const:
    """A literal, or what folding made of literals."""

    value: object


@dataclass(frozen=True, slots=True)
class Template:
    """A string constant whose holes are numbers: enough to read generated C++, not to look up a name."""

    text: str


@dataclass(frozen=True, slots=True)
class Ext:
    """Something of an imported library or of builtins, by its dotted path."""

    path: str


@dataclass(frozen=True, slots=True)
class OwnPath:
    """A path derived from ``__file__``: inside or around the candidate's own folder."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """A Python file of the candidate."""

    index: int


@dataclass(frozen=True, slots=True)
class FuncRef:
    """A function or lambda of the candidate."""

    key: int


@dataclass(frozen=True, slots=True)
class ClassRef:
    """A class of the candidate."""

    key: int


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a class of the candidate; all instances of a class are one."""

    key: int


@dataclass(frozen=True, slots=True)
class Box:
    """A tuple, list, set or dict, by where it was made."""

    site: tuple[int, str]


@dataclass(frozen=True, slots=True)
class Partial:
    """``functools.partial(f, ...)``; its parts are in the box of the same site."""

    site: tuple[int, str]


@dataclass(frozen=True, slots=True)
class Method:
    """A method taken from a value: ``x.view``, ``items.append``, ``text.format``."""

    owner: Const | Template | Mark | Box | OwnPath | Ext
    name: str


@dataclass(frozen=True, slots=True)
class Bound:
    """A candidate's own method with its instance."""

    func: FuncRef
    owner: Instance | ClassRef


Atom = (
    Mark | Const | Template | Ext | OwnPath | ModuleRef | FuncRef | ClassRef | Instance | Box | Partial | Method
    | Bound
)  # fmt: skip
Value = frozenset[Atom]

NOTHING: Value = frozenset()
TENSOR: Value = frozenset({Mark.TENSOR})
SCALAR: Value = frozenset({Mark.SCALAR})
TEXT: Value = frozenset({Mark.TEXT})
MAYBE: Value = frozenset({Mark.MAYBE})

_MANY = 48


def const(value: object) -> Value:
    """The value of one constant; NaN, which equals nothing, is just a number."""
    return SCALAR if value != value else frozenset({Const(value)})


def join(values: Iterable[Value]) -> Value:
    """Everything that any of ``values`` may be; too many constants become their kind."""
    out: Value = frozenset().union(*values)
    return out if len(out) <= _MANY else _widen(out)


def _widen(value: Value) -> Value:
    kept = {atom for atom in value if not isinstance(atom, Const | Template)}
    texts = any(isinstance(a, Template) or (isinstance(a, Const) and isinstance(a.value, str)) for a in value)
    return frozenset(kept | {Mark.SCALAR} | ({Mark.TEXT} if texts else set()))


def constants(value: Value) -> list[object] | None:
    """The constants that ``value`` may be, or None where it may be something else."""
    if value and all(isinstance(atom, Const) for atom in value):
        return [atom.value for atom in value if isinstance(atom, Const)]
    return None
