"""The types, constants and alignments that a Triton launch is compiled for, as Triton's own launcher finds them.

Triton compiles the number 1 as a constant, and makes use of addresses and numbers that are multiples of 16. A launch
plan holds all of this: its numbers are exact, and replay refuses an argument with another alignment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_passbench.candidate.triton import KernelText, check_options
from pytest_passbench.core.rejected import plan_refused
from pytest_passbench.plans.launch import Argument, Operand, TritonLaunch, TritonType
from pytest_passbench.plans.machine_code import PARAMETER_BYTES, Passed, fits

_MULTIPLE = 16  # bytes of an address, or a divisor of a number
_SHORT = {
    "int1": "u1",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}
_POINTED = {**_SHORT, "bool": "i1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"}


def specialise(text: KernelText, launch: TritonLaunch, tensors: Sequence[Argument]) -> Specialised:
    """Return ``launch`` in the compiler's form. ``tensors`` are its plan's arguments. Raises Rejected."""
    values = dict(launch.arguments)
    for name in text.parameters:
        if name not in values:
            raise plan_refused("argument", f"launches {text.name} without its parameter {name}")
    specialised = Specialised(text, tensors, check_options(dict(launch.options)))
    for number, name in enumerate(text.parameters):
        specialised.add(number, name, values[name])
    return specialised


@dataclass
class Specialised:
    """A launch of ``text`` in the form that the compiler takes. ``passed`` are the values to launch it with.

    ``signature`` has a type for each parameter, ``"constexpr"``, or a list of these for a tuple. The paths of
    ``constants`` and of ``multiples`` of 16 begin with the parameter's number.
    """

    text: KernelText
    tensors: Sequence[Argument]
    options: dict[str, int | bool]
    signature: list[tuple[str, Any]] = field(default_factory=list)
    constants: list[tuple[list[int], Any]] = field(default_factory=list)
    multiples: list[list[int]] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)

    def to_data(self) -> dict[str, Any]:
        """Return the compiler's part as JSON-ready data."""
        return {
            "signature": [[name, kind] for name, kind in self.signature],
            "constants": [[path, value] for path, value in self.constants],
            "multiples": self.multiples,
            "options": self.options,
        }

    def add(self, number: int, name: str, value: Any) -> None:
        """Add the value of a parameter, in order. Raises Rejected."""
        if name in self.text.constexprs:
            kind: Any = self._constant([number], name, value)
        elif name in self.text.types:
            kind = self._typed(number, name, value)
        else:
            free = not self._listed("do_not_specialize", number, name)
            aligned = free and not self._listed("do_not_specialize_on_alignment", number, name)
            kind = self._kind([number], (name,), value, free, aligned)
        self.signature.append((name, kind))

    def _listed(self, option: str, number: int, name: str) -> bool:
        listed = self.text.options.get(option, ())
        return name in listed or number in listed

    def _typed(self, number: int, name: str, value: Any) -> str:
        """Return the type in the parameter's annotation. Raises Rejected if the value does not fit it."""
        stated = self.text.types[name]
        kind = _SHORT.get(stated, stated)
        if kind not in PARAMETER_BYTES or not fits(kind, value):
            raise plan_refused("argument", f"launches {self.text.name} with a wrong argument {name}: no tl.{stated}")
        plain = kind == "u1" or kind.startswith(("fp", "bf"))
        skipped = any(
            self._listed(option, number, name) for option in ("do_not_specialize", "do_not_specialize_on_alignment")
        )
        if not plain and not skipped and value % _MULTIPLE == 0:
            self.multiples.append([number])
        self.passed.append(Passed((name,), kind))
        return kind

    def _kind(self, path: list[int], names: tuple[str | int, ...], value: Any, free: bool, aligned: bool) -> Any:
        if isinstance(value, tuple):
            return [
                self._kind([*path, place], (*names, place), item, free, aligned) for place, item in enumerate(value)
            ]
        if isinstance(value, Operand):
            begins = self.tensors[value.index].misaligned if value.source == "argument" else 0  # others are aligned
            kind, passed, multiple = self._pointer(names, value), "pointer", (begins + value.offset) % _MULTIPLE == 0
        elif isinstance(value, bool):
            kind, passed, multiple = "u1", "u1", False
        elif isinstance(value, int) and not (free and value == 1):
            kind = passed = next(kind for kind in ("i32", "i64", "u64") if fits(kind, value))
            multiple = value % _MULTIPLE == 0
        elif isinstance(value, float):
            kind, passed, multiple = "fp32", "fp32", False
        else:
            return self._constant(path, str(names[0]), value)
        if multiple and aligned:
            self.multiples.append(path)
        self.passed.append(Passed(names, passed))
        return kind

    def _pointer(self, names: tuple[str | int, ...], operand: Operand) -> str:
        pointed = _POINTED.get(operand.form.dtype)
        if pointed is None:
            start = f"launches {self.text.name} with a wrong argument {names[0]}"
            raise plan_refused("argument", f"{start}: Triton has no pointer to {operand.form.dtype}")
        return f"*{pointed}"

    def _constant(self, path: list[int], name: str, value: Any) -> str:
        try:
            self.constants.append((path, _literal(value)))
        except ValueError as error:
            start = f"launches {self.text.name} with a wrong argument {name}"
            raise plan_refused("argument", f"{start}: {error} is no constant of a Triton kernel") from None
        return "constexpr"


def _literal(value: Any) -> Any:
    """Return a constant as JSON-ready data. Raises ValueError naming its type."""
    if isinstance(value, (tuple, list)):
        return [_literal(item) for item in value]
    if isinstance(value, TritonType):
        return {"tl": value.name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(type(value).__name__)
