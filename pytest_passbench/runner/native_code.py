"""Launch plans as words for the engine (``native/engine.cpp``), which executes their steps without Python."""

from __future__ import annotations

import ctypes
import itertools
import platform
import struct
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch

from pytest_passbench.kernels.cpp import DType
from pytest_passbench.plans.launch import Allocate, Copy, Fill, Form, Launch, LaunchPlan, Operand, operands_in
from pytest_passbench.runner.engine import Engine, PlanFields

ALLOCATE, RELEASE, FILL, COPY, LAUNCH, DESCRIBE = range(6)
#: Numbers of registers for floating-point arguments, and for all others (``INTEGERS`` in the engine). Further
#: arguments are on the stack, in order, in 8 bytes each.
FLOAT_REGISTERS, INTEGER_REGISTERS = 8, 8 if platform.machine() == "aarch64" else 6
MAX_WORDS = 64  # of a launch: registers for integers, and words on the stack
DTYPE_CODES = {getattr(torch, name): code for code, name in enumerate(DType.names)}
_WORD = 8  # bytes
#: The class of the functions of all libraries that ctypes loads.
CppFunction: type = type(ctypes.CDLL(None).mprotect).__mro__[1]


class NotNative(Exception):
    """A plan or a graph with a step that the engine cannot execute. Python executes all of it."""


class Address(NamedTuple):
    """A place in memory: ``offset`` bytes behind the address in a register of the engine."""

    register: int
    offset: int = 0


#: The places of a plan's arguments, buffers and tables, by source and index. Buffers are added as they are allocated.
Places = dict[tuple[str, int], Address]


def place_of(operand: Operand, places: Places) -> Address:
    """Return the place of an operand."""
    base = places[operand.source, operand.index]
    return Address(base.register, base.offset + operand.offset)


class Assembler:
    """The words of a plan or a block that is being written.

    ``functions`` has the index of the word with each launched function's address. ``constants`` has the registers
    whose contents never change. ``copies`` has the index of the word with the size of each copy from a buffer.
    """

    def __init__(self, lasting: Collection[int] = ()) -> None:
        """Begin without words. ``lasting`` has the registers of returned buffers, which later blocks use again."""
        self.words: list[int] = []
        self.functions: list[int] = []
        self.copies: list[int] = []
        self.constants: dict[int, int] = {0: 0}
        self.registers = 1
        self.lasting = frozenset(lasting)

    def register(self, constant: int | None = None) -> int:
        """Return a new register. It holds ``constant`` for good, unless that is None."""
        self.registers += 1
        if constant is not None:
            self.constants[self.registers - 1] = constant
        return self.registers - 1

    def allocate(self, form: Form) -> int:
        """Allocate memory for a tensor, and return its register."""
        register = self.register()
        self._step(ALLOCATE, register, form.nbytes, int(register in self.lasting))
        return register

    def release(self, register: int) -> None:
        """Release an allocation that is not lasting."""
        self._step(RELEASE, register)

    def describe(self, place: Address, form: int) -> None:
        """Describe an output: its place, and the index of its form."""
        self._step(DESCRIBE, *place, form)

    def fill(self, place: Address, form: Form, value: Any) -> None:
        """Write a value into each element of a tensor. Raises NotNative if there are bytes between the elements."""
        _require_dense(form)
        pattern = torch.full((), value, dtype=getattr(torch, form.dtype)).reshape(1).view(torch.uint8)
        data = bytes(pattern.tolist())
        words = struct.unpack(f"<{-(-len(data) // _WORD)}q", data + bytes(-len(data) % _WORD))
        if form.nbytes:
            self._step(FILL, *place, form.nbytes, len(data), *words)

    def copy(self, target: Address, form: Form, origin: Address, origin_form: Form) -> None:
        """Copy a tensor to another one. Raises NotNative unless both are dense and have the same form."""
        _require_dense(form)
        if form != origin_form:
            raise NotNative("copies between tensors of different strides")
        if form.nbytes:
            self._step(COPY, *target, *origin, form.nbytes)

    def launch(self, function: Any, arguments: Sequence[Any]) -> None:
        """Call a C++ kernel. ``arguments`` are places, numbers, dtypes and None.

        Raises NotNative for too many arguments, and for an argument that the engine cannot pass.
        """
        integers, floats, stacked = list[Sequence[int]](), list[int](), list[Sequence[int]]()
        for kind, value in zip(function.argtypes, arguments, strict=True):
            is_float = kind in (ctypes.c_float, ctypes.c_double)
            word = value if isinstance(value, Address) else (0, (_bits if is_float else _integer)(kind, value))
            if is_float and len(floats) < FLOAT_REGISTERS:
                floats.append(word[1])
            elif not is_float and len(integers) < INTEGER_REGISTERS:
                integers.append(word)
            else:
                stacked.append(word)
        if stacked:
            integers += [(0, 0)] * (INTEGER_REGISTERS - len(integers)) + stacked
        if len(integers) > MAX_WORDS:
            raise NotNative("launches a kernel with more arguments than the engine passes")
        self.functions.append(len(self.words) + 2)
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        self._step(LAUNCH, address, len(integers), len(floats), *itertools.chain(*integers), *floats)

    def _step(self, kind: int, *words: int) -> None:
        self.words += (kind, len(words), *words)

    def plan(self, plan: LaunchPlan, kernels: Sequence[Any], places: Places, returned: Collection[int] = ()) -> None:
        """Add the steps of a plan. ``places`` has its arguments, its tables, and the buffers allocated elsewhere.

        The steps release the buffers that they allocate, except those in ``returned``. Raises NotNative.
        """
        buffer, scratch = 0, list[int]()
        for step in plan.steps:
            if not isinstance(step, Allocate):
                self._other(step, kernels, places)
                continue
            key = ("buffer", buffer)
            if key not in places:
                places[key] = Address(self.allocate(step.form))
                if buffer not in returned:
                    scratch.append(places[key].register)
            if step.fill is not None:
                self.fill(places[key], step.form, step.fill)
            buffer += 1
        for register in scratch:
            self.release(register)

    def _other(self, step: Any, kernels: Sequence[Any], places: Places) -> None:
        if isinstance(step, Fill):
            self.fill(place_of(step.target, places), step.target.form, step.value)
        elif isinstance(step, Copy):
            target, origin = step.target, step.origin
            self.copy(place_of(target, places), target.form, place_of(origin, places), origin.form)
            if origin.source == "buffer" and origin.form.nbytes:
                self.copies.append(len(self.words) - 1)
        elif isinstance(step, Launch) and isinstance(kernels[step.kernel], CppFunction):
            arguments = [place_of(item, places) if isinstance(item, Operand) else item for item in step.arguments]
            self.launch(kernels[step.kernel], arguments)
        else:
            raise NotNative("has a step that the engine does not know")


class Executable:
    """The words of :class:`Assembler` in memory, with the registers that they work on. ``fields`` points to both."""

    def __init__(self, code: Assembler, engine: Engine, fields: PlanFields, calls: int = 0) -> None:
        self._words = (ctypes.c_int64 * len(code.words))(*code.words)
        self._awake = {place: code.words[place] for place in code.functions}
        self._resting, self._copies = engine.nothing, tuple(code.copies)
        self._registers = (ctypes.c_void_p * code.registers)()
        self._lasting = (ctypes.c_void_p * max(1, calls * len(code.lasting)))()
        self._contents: Any = None
        for register, address in code.constants.items():
            self._registers[register] = address
        start = ctypes.addressof(self._words)
        self._fields = fields
        fields.steps, fields.end = start, start + _WORD * len(code.words)
        fields.registers = ctypes.addressof(self._registers)
        fields.lasting = ctypes.addressof(self._lasting)

    def rest(self) -> None:
        """Launch nothing from now on, and allocate memory full of zeros."""
        for place in self._awake:
            self._words[place] = self._resting
        self.fill_memory(b"\0")

    def wake(self) -> None:
        """Launch the kernels from now on, and leave the contents of fresh memory as they are."""
        for place, address in self._awake.items():
            self._words[place] = address
        self.fill_memory(None)

    def idle(self) -> None:
        """Make a plan at rest idle for good: also copy nothing that a kernel would have written, and fill no memory.

        Without its kernels, a plan has nothing but uninitialised memory to copy.
        """
        for place in self._copies:
            self._words[place] = 0
        self.fill_memory(None)

    def fill_memory(self, contents: bytes | None) -> None:
        """Fill fresh memory with copies of ``contents`` from now on; with None, leave it as it is."""
        self._contents = None if contents is None else ctypes.create_string_buffer(contents, len(contents))
        self._fields.contents = None if contents is None else ctypes.addressof(self._contents)
        self._fields.contents_size = 0 if contents is None else len(contents)


class NativePlan(Executable):
    """A plan as a function of the addresses of ``inputs`` (arguments, then returned buffers). Raises NotNative."""

    def __init__(
        self, plan: LaunchPlan, kernels: Sequence[Any], tables: Sequence[torch.Tensor], engine: Engine
    ) -> None:
        code = Assembler()
        self.inputs = [("argument", index) for index in _used(plan)]
        self.inputs += [("buffer", index) for index in sorted(returned_buffers(plan))]
        places: Places = {key: Address(code.register()) for key in self.inputs}
        places |= {("table", index): Address(code.register(table.data_ptr())) for index, table in enumerate(tables)}
        code.plan(plan, kernels, places)
        self._plan = PlanFields()
        super().__init__(code, engine, self._plan)
        self.call = engine.function(self._plan)


def returned_buffers(plan: LaunchPlan) -> set[int]:
    """Return the buffers that a plan returns, whole or in part."""
    return {operand.index for operand in plan.returns if operand.source == "buffer"}


def _used(plan: LaunchPlan) -> list[int]:
    """Return the arguments whose memory a step works on."""
    operands = operands_in([vars(step) for step in plan.steps])
    return sorted({operand.index for operand in operands if operand.source == "argument"})


def _require_dense(form: Form) -> None:
    """Raise NotNative unless the elements lie side by side, in any order of dimensions."""
    expected, dimensions = 1, zip(form.strides, form.shape, strict=True)
    for stride, size in sorted((stride, size) for stride, size in dimensions if size > 1):
        if stride != expected:
            raise NotNative("fills or copies a tensor with gaps")
        expected *= size


def _bits(kind: Any, value: float) -> int:
    """Return the contents of a floating-point register that holds ``value``."""
    return int.from_bytes(bytes(kind(value)), "little", signed=True)


def _integer(kind: Any, value: Any) -> int:
    """Return an argument of a C type as 64 bits. None is a null pointer. Raises NotNative for another value."""
    if value is None:
        return 0
    if isinstance(value, torch.dtype):
        if value not in DTYPE_CODES:
            raise NotNative(f"passbench.h has no dtype {value}")
        return DTYPE_CODES[value]
    if kind is ctypes.c_void_p or not isinstance(value, int):
        raise NotNative("launches a kernel with an argument that is not a number")
    return int(kind(value).value)
