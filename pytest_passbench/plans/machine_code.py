"""A compiled Triton kernel as data: what its launch passes, and what it needs. Both sides share it."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from typing import Any

#: Before what the compiler's process says of a launch: bytes of the description, and of the machine code behind it.
ANSWER = struct.Struct("<II")
#: How many bytes a kernel's parameter has, by its kind.
BYTES = {
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
class Passed:
    """A value that a launch hands to the kernel: the parameter's name, then places in tuples; and its kind."""

    path: tuple[str | int, ...]
    kind: str


@dataclass(frozen=True)
class Binary:
    """A kernel's machine code, but for the bytes.

    ``hidden`` are pointers behind what a launch passes: to scratch memory of which each program has
    ``scratch_bytes``, then to a profiler's. ``cooperative`` and ``dependent`` are attributes of the launch.
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
        """Return the bytes of each parameter."""
        return (*(BYTES[passed.kind] for passed in self.passed), *[BYTES["pointer"]] * self.hidden)

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return asdict(self) | {"passed": [[list(passed.path), passed.kind] for passed in self.passed]}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Binary:
        """Return what :meth:`to_data` wrote."""
        passed = tuple(Passed(tuple(path), kind) for path, kind in data["passed"])
        return cls(**{**data, "passed": passed})


def fits(kind: str, value: object) -> bool:
    """Return whether a number can be passed as a parameter of this kind."""
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        return isinstance(value, int) and low <= value <= high
    return kind != "pointer" and isinstance(value, (int, float))
