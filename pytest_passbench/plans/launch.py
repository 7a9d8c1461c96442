"""Launch plans: a kernel wrapper's call for arguments of known shapes, as straight-line data.

A plan allocates, fills, copies, launches and returns. It has no branch, no loop and no view. An :class:`Operand`
names memory: an argument, a buffer or a table, and an offset from its first element. Executing a plan needs nothing
of the candidate but its kernels. So a plan that differs from its wrapper gives a wrong answer at worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch

from pytest_passbench.core.schema import Text, Whole, Word
from pytest_passbench.core.typed import Data, Most
from pytest_passbench.plans.values import ConstantSchema, Identifier, Scalar
from pytest_passbench.protocol import DTYPES

VERSION = 1
ALIGNMENT_BYTES = 16  # a wrapper may ask whether an address is a multiple of this
MAX_STEPS = 512
MAX_CHOICES = 256  # configurations of a tuned launch
MAX_KERNELS = 32  # each needs a descriptor beside the message (``protocol.MAX_DESCRIPTORS``)
MAX_ARGUMENTS = 256  # of a launch; also of tensors, results and named values
MAX_DIMENSIONS = 12
MAX_CALL_BYTES = 8 << 30  # that one call may allocate
MAX_TABLE_BYTES = 512 << 10  # of all constant tables: all values of a 16-bit type in float32, twice
MAX_SOURCE_CHARACTERS = 512 << 10  # of a kernel's text
MAX_EXTENT = 1 << 40  # a size, a stride, an offset, or the bytes of a tensor
MAX_NAME_CHARACTERS = 200  # of a pass, an operator, or a compiler flag
MAX_TUNED_STEPS = 8  # of one configuration
MAX_FLAGS = 64  # of a C++ kernel's compilation
MAX_GRAPH_CHARACTERS = 1 << 20  # of a graph's text

ITEM_BYTES = {name: int(getattr(torch, name).itemsize) for name in DTYPES}
Source = Literal["argument", "buffer", "table"]
Size = Annotated[int, Whole(0, MAX_EXTENT)]
Sizes = Annotated[tuple[Size, ...], Most(MAX_DIMENSIONS)]
DType = Annotated[str, Word(*ITEM_BYTES)]
Name = Annotated[str, Text(MAX_NAME_CHARACTERS)]
KernelText = Annotated[str, Text(MAX_SOURCE_CHARACTERS)]
KernelIndex = Annotated[int, Whole(0, MAX_KERNELS)]
GridSize = Annotated[int, Whole(0, 1 << 31)]


@dataclass(frozen=True)
class Form(Data, row=True):
    """Layout of a tensor in memory: dtype by torch's name, shape, and strides in elements."""

    dtype: DType
    shape: Sizes
    strides: Sizes

    @property
    def nbytes(self) -> int:
        """The bytes from the first element to the end of the last one."""
        if 0 in self.shape:
            return 0
        steps = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (1 + steps) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Argument(Data):
    """A tensor argument of the wrapper. ``misaligned`` is its address modulo :data:`ALIGNMENT_BYTES`."""

    form: Form
    device: Annotated[str, Text(20)] = "cpu"
    misaligned: Annotated[int, Whole(0, ALIGNMENT_BYTES)] = 0


@dataclass(frozen=True)
class Result(Data, row=True):
    """A value that the operators of a match give: dtype by torch's name, and shape."""

    dtype: DType
    shape: Sizes

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


@dataclass(frozen=True)
class Request(Data):
    """A match that needs a plan.

    ``arguments`` are the wrapper's, encoded as in :mod:`pytest_passbench.plans.values`. ``{"tensor": i}`` stands for
    ``tensors[i]``. A value of the graph that is passed twice is one tensor. Two tensors are taken to share no memory
    (``docs/launch-plans.md``). ``outputs`` is the number of values that the pattern returns. ``sequence`` is True if
    it returns a tuple or list of them. ``results`` are what the replaced operators give for these values. An item is
    None if nothing uses the value, or if it may be of any form. ``results`` is empty if no value's form is known.
    ``region`` is the text of a region's graph (:mod:`pytest_passbench.plans.regions`), and empty for a pattern.
    """

    name: Name
    arguments: tuple[Any, ...]
    tensors: Annotated[tuple[Argument, ...], Most(MAX_ARGUMENTS)]
    outputs: Annotated[int, Whole(0, MAX_ARGUMENTS)] = 1
    sequence: bool = False
    results: Annotated[tuple[Result | None, ...], Most(MAX_ARGUMENTS)] = ()
    region: Annotated[str, Text(MAX_GRAPH_CHARACTERS)] = ""

    def values(self, result: Any) -> tuple[Any, ...] | None:
        """Return the values in what a wrapper returned, or None if it returned another number of them."""
        if not self.sequence or (self.outputs == 1 and isinstance(result, torch.Tensor)):
            return (result,)
        fits = isinstance(result, (tuple, list)) and len(result) == self.outputs
        return tuple(result) if fits else None


@dataclass(frozen=True)
class Operand(Data, tag="operand"):
    """A tensor that a step works on: a form, ``offset`` bytes into an argument, a buffer or a table."""

    source: Source
    index: Size
    offset: Size
    form: Form


@dataclass(frozen=True)
class TritonType(Data, tag="tl"):
    """A dtype of Triton's (``tl.float32``), as a kernel's argument."""

    name: Identifier


Value = Annotated[Any, ConstantSchema(Operand, TritonType)]
Values = Annotated[tuple[Value, ...], Most(MAX_ARGUMENTS)]
NamedValues = Annotated[tuple[tuple[Identifier, Value], ...], Most(MAX_ARGUMENTS)]
NamedConstants = Annotated[tuple[tuple[Identifier, Annotated[Any, ConstantSchema()]], ...], Most(MAX_ARGUMENTS)]


@dataclass(frozen=True)
class CppKernel(Data, tag="cpp"):
    """A kernel in C++: the source, compiler flags, whether it is built with OpenMP, and the function's name."""

    source: KernelText
    flags: Annotated[tuple[Name, ...], Most(MAX_FLAGS)]
    openmp: bool
    function: Identifier


@dataclass(frozen=True)
class TritonKernel(Data, tag="triton"):
    """A kernel in Triton, by the place of its text.

    ``reference`` is JSON text that only the package :mod:`pytest_passbench.candidate.triton` reads.
    """

    reference: KernelText


Kernel = CppKernel | TritonKernel


@dataclass(frozen=True)
class Allocate(Data, tag="allocate"):
    """A step that allocates the next buffer. Every element is ``fill``; with None, the contents are undefined."""

    form: Form
    fill: Scalar | None = None


@dataclass(frozen=True)
class Fill(Data, tag="fill"):
    """A step that writes one value into every element."""

    target: Operand
    value: Scalar


@dataclass(frozen=True)
class Copy(Data, tag="copy"):
    """A step that copies the elements of ``origin`` to ``target``, of the same dtype and shape."""

    target: Operand
    origin: Operand


@dataclass(frozen=True)
class Launch(Data, tag="launch"):
    """A step that calls a C++ kernel: operands, numbers, dtypes and None, by position."""

    kernel: KernelIndex
    arguments: Values


@dataclass(frozen=True)
class TritonLaunch(Data, tag="triton"):
    """A step that launches a Triton kernel. ``arguments`` and ``options`` are pairs of a name and a value."""

    kernel: KernelIndex
    grid: tuple[GridSize, GridSize, GridSize]
    arguments: NamedValues
    options: NamedConstants


@dataclass(frozen=True)
class Tuned(Data, tag="tuned"):
    """A launch in several configurations. The process that executes the plan measures them and keeps one.

    Each choice is a few steps that end with the launch. The steps before it reset memory.
    """

    choices: Annotated[tuple[Choice, ...], Most(MAX_CHOICES, least=1)]


@dataclass(frozen=True)
class Operator(Data, tag="operator"):
    """A step that calls a torch operator (``aten.mul.Tensor``). The policy ``open`` allows it.

    ``results`` are the returned tensors. A result in a buffer that no step has used before is the next buffer.
    """

    name: Name
    arguments: Values
    keywords: NamedValues
    results: Annotated[tuple[Operand, ...], Most(MAX_ARGUMENTS)]


Step = Allocate | Fill | Copy | Launch | TritonLaunch | Tuned | Operator
Choice = Annotated[tuple[Step, ...], Most(MAX_TUNED_STEPS, least=1)]


@dataclass(frozen=True)
class ConstantTable(Data, row=True):
    """Constant memory that the candidate brings. ``content`` is its bytes in hexadecimal."""

    content: Annotated[str, Text(2 * MAX_TABLE_BYTES)]

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return len(self.content) // 2


@dataclass(frozen=True)
class LaunchPlan(Data):
    """A wrapper's call as data. ``returns`` are the results, in order."""

    tensors: Annotated[tuple[Argument, ...], Most(MAX_ARGUMENTS)]
    tables: Annotated[tuple[ConstantTable, ...], Most(MAX_KERNELS)]
    kernels: Annotated[tuple[Kernel, ...], Most(MAX_KERNELS)]
    steps: Annotated[tuple[Step, ...], Most(MAX_STEPS)]
    returns: Annotated[tuple[Operand, ...], Most(MAX_ARGUMENTS)]
    version: Annotated[int, Whole(VERSION, VERSION)] = VERSION

    @property
    def launches(self) -> bool:
        """True if it launches a kernel."""
        return any(isinstance(step, (Launch, TritonLaunch, Tuned)) for step in self.steps)

    @property
    def triton_launches(self) -> tuple[TritonLaunch, ...]:
        """The launches of Triton kernels in the order of the steps, including those in configurations."""
        single = [[(step,)] if not isinstance(step, Tuned) else step.choices for step in self.steps]
        steps = [step for choices in single for choice in choices for step in choice]
        return tuple(step for step in steps if isinstance(step, TritonLaunch))

    @property
    def tunable(self) -> bool:
        """True if a launch has several configurations."""
        return any(isinstance(step, Tuned) and len(step.choices) > 1 for step in self.steps)

    @property
    def uses_triton(self) -> bool:
        """True if one of its kernels is Triton's."""
        return any(isinstance(kernel, TritonKernel) for kernel in self.kernels)


def operands_in(value: Any) -> Iterator[Operand]:
    """Yield the operands in a value of a step, also those within sequences, dicts and slices."""
    if isinstance(value, Operand):
        yield value
    elif isinstance(value, dict):
        yield from operands_in(tuple(value.values()))
    elif isinstance(value, slice):
        yield from operands_in((value.start, value.stop, value.step))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from operands_in(item)


def form_of(tensor: torch.Tensor) -> Form:
    """Return the form of a tensor."""
    return Form(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(tensor.stride()))


def contiguous(dtype: str, shape: tuple[int, ...]) -> Form:
    """Return the form of a contiguous tensor."""
    strides = tuple(math.prod(shape[index + 1 :]) for index in range(len(shape)))
    return Form(dtype, shape, strides)
