"""Launch plans: a kernel wrapper's call for arguments of known shapes, as straight-line data.

A plan allocates, fills, copies, launches and returns. It has no branch, no loop and no view. An :class:`Operand`
names memory: an argument, a buffer or a table, and an offset from its first element. Executing a plan needs nothing
of the candidate but its kernels. So a plan that differs from its wrapper gives a wrong answer at worst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from pytest_passbench.plans.values import encode

VERSION = 1
ALIGNMENT_BYTES = 16  # that a wrapper may ask of an address
MAX_STEPS = 512
MAX_CHOICES = 256  # configurations of a tuned launch
MAX_KERNELS = 32  # each needs a descriptor beside the message (``protocol.MAX_DESCRIPTORS``)
MAX_ARGUMENTS = 256  # of a launch; also of tensors, results and named values
MAX_DIMENSIONS = 12
MAX_CALL_BYTES = 8 << 30  # that one call may allocate
MAX_TABLE_BYTES = 512 << 10  # of all constant tables: all values of a 16-bit type in float32, twice
MAX_SOURCE_CHARACTERS = 512 << 10  # of a kernel's text

ITEM_BYTES = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32", "complex32", "qint32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2", "quint8", "qint8"), 1),
    "complex128": 16,
}
Source = Literal["argument", "buffer", "table"]


@dataclass(frozen=True)
class Form:
    """Layout of a tensor in memory: dtype by torch's name, shape, and strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes from the first element to the end of the last one."""
        if 0 in self.shape:
            return 0
        steps = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (1 + steps) * ITEM_BYTES[self.dtype]

    def to_data(self) -> list[Any]:
        """Return it as JSON-ready data."""
        return [self.dtype, list(self.shape), list(self.strides)]


@dataclass(frozen=True)
class Argument:
    """A tensor argument of the wrapper. ``misaligned`` is its address modulo :data:`ALIGNMENT_BYTES`."""

    form: Form
    device: str = "cpu"
    misaligned: int = 0

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {"form": self.form.to_data(), "device": self.device, "misaligned": self.misaligned}


@dataclass(frozen=True)
class Result:
    """A value that the operators of a match give: dtype by torch's name, and shape."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"

    def to_data(self) -> list[Any]:
        """Return it as JSON-ready data."""
        return [self.dtype, list(self.shape)]


@dataclass(frozen=True)
class Request:
    """A match that needs a plan.

    ``arguments`` are the wrapper's, encoded as in :mod:`pytest_passbench.plans.values`. ``{"tensor": i}`` stands for
    ``tensors[i]``. A value of the graph that is passed twice is one tensor. Two tensors are taken to share no memory
    (``docs/launch-plans.md``). ``outputs`` is the number of values that the pattern returns. ``sequence`` is True if
    it returns a tuple or list of them. ``results`` are what the replaced operators give for these values. An item is
    None if nothing uses the value, or if it may be of any form. It is empty if nothing is known of any value.
    """

    name: str
    arguments: tuple[Any, ...]
    tensors: tuple[Argument, ...]
    outputs: int = 1
    sequence: bool = False
    results: tuple[Result | None, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {
            "name": self.name,
            "arguments": list(self.arguments),
            "tensors": [tensor.to_data() for tensor in self.tensors],
            "outputs": self.outputs,
            "sequence": self.sequence,
            "results": [None if result is None else result.to_data() for result in self.results],
        }


@dataclass(frozen=True)
class Operand:
    """A tensor that a step works on: a form, ``offset`` bytes into an argument, a buffer or a table."""

    source: Source
    index: int
    offset: int
    form: Form

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data, tagged so that it can stand among encoded constants."""
        return {"operand": [self.source, self.index, self.offset, *self.form.to_data()]}


@dataclass(frozen=True)
class TritonType:
    """A dtype of Triton's (``tl.float32``), as a kernel's argument."""

    name: str

    def to_data(self) -> dict[str, Any]:
        """Return it as tagged JSON-ready data."""
        return {"tl": self.name}


@dataclass(frozen=True)
class CppKernel:
    """A kernel in C++: the source, compiler flags, whether it is built with OpenMP, and the function's name."""

    source: str
    flags: tuple[str, ...]
    openmp: bool
    function: str

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {"cpp": [self.source, list(self.flags), self.openmp, self.function]}


@dataclass(frozen=True)
class TritonKernel:
    """A kernel in Triton, by the place of its text.

    ``reference`` is JSON text that only the package :mod:`pytest_passbench.candidate.triton` reads.
    """

    reference: str

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {"triton": self.reference}


Kernel = CppKernel | TritonKernel


@dataclass(frozen=True)
class Allocate:
    """A step that allocates the next buffer. Every element is ``fill``; with None, the contents are undefined."""

    form: Form
    fill: float | int | bool | None = None

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {"allocate": [*self.form.to_data(), encode(self.fill)]}


@dataclass(frozen=True)
class Fill:
    """A step that writes one value into every element."""

    target: Operand
    value: float | int | bool

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {"fill": [self.target.to_data(), encode(self.value)]}


@dataclass(frozen=True)
class Copy:
    """A step that copies the elements of ``origin`` to ``target``, of the same dtype and shape."""

    target: Operand
    origin: Operand

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {"copy": [self.target.to_data(), self.origin.to_data()]}


@dataclass(frozen=True)
class Launch:
    """A step that calls a C++ kernel: operands, numbers, dtypes and None, by position."""

    kernel: int
    arguments: tuple[Any, ...]

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {"launch": [self.kernel, [_data(value) for value in self.arguments]]}


@dataclass(frozen=True)
class TritonLaunch:
    """A step that launches a Triton kernel. ``arguments`` and ``options`` are pairs of a name and a value."""

    kernel: int
    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, Any], ...]
    options: tuple[tuple[str, Any], ...]

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        arguments = [[name, _data(value)] for name, value in self.arguments]
        return {"triton": [self.kernel, list(self.grid), arguments, [[n, _data(v)] for n, v in self.options]]}


@dataclass(frozen=True)
class Tuned:
    """A launch in several configurations. The process that executes the plan measures them and keeps one.

    Each choice is a few steps that end with the launch. The steps before it reset memory.
    """

    choices: tuple[tuple[Step, ...], ...]

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {"tuned": [[step.to_data() for step in choice] for choice in self.choices]}


@dataclass(frozen=True)
class Operator:
    """A step that calls a torch operator (``aten.mul.Tensor``). The policy ``open`` allows it.

    ``results`` are the returned tensors. A result in a buffer that no step has used before is the next buffer.
    """

    name: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    results: tuple[Operand, ...]

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        keywords = [[name, _data(value)] for name, value in self.keywords]
        arguments = [_data(value) for value in self.arguments]
        return {"operator": [self.name, arguments, keywords, [result.to_data() for result in self.results]]}


Step = Allocate | Fill | Copy | Launch | TritonLaunch | Tuned | Operator


@dataclass(frozen=True)
class ConstantTable:
    """Constant memory that the candidate brings. ``content`` is its bytes in hexadecimal."""

    content: str

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return len(self.content) // 2


@dataclass(frozen=True)
class LaunchPlan:
    """A wrapper's call as data. ``returns`` are the results, in order."""

    tensors: tuple[Argument, ...]
    tables: tuple[ConstantTable, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...]
    returns: tuple[Operand, ...]

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {
            "version": VERSION,
            "tensors": [tensor.to_data() for tensor in self.tensors],
            "tables": [table.content for table in self.tables],
            "kernels": [kernel.to_data() for kernel in self.kernels],
            "steps": [step.to_data() for step in self.steps],
            "returns": [operand.to_data() for operand in self.returns],
        }

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


def _data(value: Any) -> Any:
    """Return the JSON-ready form of a step's argument: a constant, an operand or a dtype of Triton's."""
    return encode(value, lambda item: item.to_data() if isinstance(item, (Operand, TritonType)) else None)


def contiguous(dtype: str, shape: tuple[int, ...]) -> Form:
    """Return the form of a contiguous tensor."""
    strides = tuple(math.prod(shape[index + 1 :]) for index in range(len(shape)))
    return Form(dtype, shape, strides)
