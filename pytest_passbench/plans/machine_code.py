"""A compiled Triton kernel as data: the parameters that its launch passes, and the resources that it needs."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pytest_passbench.core.typed import Data

#: Head of the compiler's answer for a launch: the bytes of the description, and of the machine code behind it.
ANSWER = struct.Struct("<II")
#: Bytes of a kernel's parameter, by its kind.
PARAMETER_BYTES = {
    **dict.fromkeys(("pointer", "i64", "u64", "fp64"), 8),
    **dict.fromkeys(("i32", "u32", "fp32"), 4),
    **dict.fromkeys(("i16", "u16", "fp16", "bf16"), 2),
    **dict.fromkeys(("i8", "u8", "u1"), 1),
}
_INTEGERS = {
    "u1": (0, 1),
    **{f"i{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Passed(Data, row=True):
    """A value that a launch passes to the kernel.

    ``path`` is the parameter's name, then the places in nested tuples. ``kind`` is a key of :data:`PARAMETER_BYTES`.
    """

    path: tuple[str | int, ...]
    kind: str


@dataclass(frozen=True)
class Binary(Data):
    """A description of a kernel's machine code, without the code itself.

    ``hidden`` is the number of pointers after the passed values: to scratch memory, then to a profiler's memory. Each
    program has ``scratch_bytes`` of scratch memory, and each block ``shared`` bytes of shared memory.
    ``cooperative`` and ``dependent`` are attributes of the launch.
    """

    name: str
    passed: tuple[Passed, ...]
    hidden: int
    shared: int
    num_warps: int
    num_ctas: int
    scratch_bytes: int
    cooperative: bool
    dependent: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of each parameter."""
        passed = tuple(PARAMETER_BYTES[parameter.kind] for parameter in self.passed)
        return passed + (PARAMETER_BYTES["pointer"],) * self.hidden


def fits(kind: str, value: object) -> bool:
    """Return True if a number can be passed as a parameter of this kind."""
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        return isinstance(value, int) and low <= value <= high
    return kind != "pointer" and isinstance(value, (int, float))
