"""Parse launch plans from data that is not trusted: every size, kind and range is checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch

from pytest_passbench.core.rejected import plan_refused
from pytest_passbench.core.schema import refusal
from pytest_passbench.plans import launch
from pytest_passbench.plans.checks import (
    MAX_EXTENT,
    MAX_NAME_CHARACTERS,
    at_most,
    check_distinct,
    field,
    identifier,
    integer,
    listed,
    number,
    pairs,
    tagged,
    text,
)
from pytest_passbench.plans.launch import (
    ITEM_BYTES,
    Allocate,
    Argument,
    ConstantTable,
    Copy,
    CppKernel,
    Fill,
    Form,
    Kernel,
    Launch,
    LaunchPlan,
    Operand,
    Operator,
    Request,
    Result,
    Source,
    Step,
    TritonKernel,
    TritonLaunch,
    TritonType,
    Tuned,
)
from pytest_passbench.plans.values import decode

MAX_TUNED_STEPS = 8  # of one configuration
MAX_FLAGS = 64  # of a C++ kernel's compilation
MAX_DEVICE_CHARACTERS = 20


def request(data: Any) -> Request:
    """Return the request that ``data`` states. Raises Rejected if it states none."""
    name, arguments = field(data, "name", str), field(data, "arguments", list)
    tensors = tuple(_argument(item) for item in at_most(field(data, "tensors", list), launch.MAX_ARGUMENTS))
    outputs, sequence = integer(field(data, "outputs", int), launch.MAX_ARGUMENTS), field(data, "sequence", bool)
    results = tuple(_result(item) for item in at_most(field(data, "results", list), launch.MAX_ARGUMENTS))
    if len(results) not in (0, outputs):
        raise refusal("a request that tells of another number of results than it has outputs")
    if len(name) > MAX_NAME_CHARACTERS:
        raise refusal(f"a pass name of more than {MAX_NAME_CHARACTERS} characters")
    decode(arguments, lambda tag, content: _tensor_reference(tag, content, len(tensors)))
    return Request(name, tuple(arguments), tensors, outputs, sequence, results)


def _result(data: Any) -> Result | None:
    if data is None:
        return None
    if not isinstance(data, list) or len(data) != 2 or not isinstance(data[0], str) or data[0] not in ITEM_BYTES:
        raise refusal("a result that is not a dtype and a shape")
    return Result(data[0], tuple(integer(size) for size in at_most(listed(data[1]), launch.MAX_DIMENSIONS)))


def _tensor_reference(tag: str, content: Any, count: int) -> Any:
    if tag != "tensor" or type(content) is not int or not 0 <= content < count:
        raise refusal("a reference to a tensor that is not an argument")
    return content


def plan(data: Any, tensors: tuple[Argument, ...]) -> LaunchPlan:
    """Return the plan that ``data`` states for a call with ``tensors``.

    Raises Rejected, of the layer "plan" for a plan that does what no plan may do, and of "data" for other data.
    """
    if field(data, "version", int) != launch.VERSION:
        raise refusal("another version of launch plans")
    return _Parser(data, tensors).plan()


class _Parser:
    """The parser of a plan. It knows the buffers that the steps so far allocate, and which of them are written."""

    def __init__(self, data: Any, tensors: tuple[Argument, ...]) -> None:
        self._data, self._tensors = data, tensors
        self._tables = tuple(_table(item) for item in at_most(field(data, "tables", list), launch.MAX_KERNELS))
        if sum(table.nbytes for table in self._tables) > launch.MAX_TABLE_BYTES:
            raise refusal(f"constant tables of more than {launch.MAX_TABLE_BYTES} bytes")
        self._kernels = tuple(_kernel(item) for item in at_most(field(data, "kernels", list), launch.MAX_KERNELS))
        self._buffers: list[int] = []  # bytes of each
        self._written: set[int] = set()

    def plan(self) -> LaunchPlan:
        steps = tuple(self._step(item) for item in at_most(field(self._data, "steps", list), launch.MAX_STEPS))
        returns = tuple(
            self._operand(item) for item in at_most(field(self._data, "returns", list), launch.MAX_ARGUMENTS)
        )
        for operand in returns:
            if operand.source == "buffer" and operand.index not in self._written and operand.form.nbytes:
                raise plan_refused("plan", "returns memory that no step wrote")
            if operand.source == "table":  # all calls would return the same memory
                raise plan_refused("plan", "returns a tensor made outside the call")
        return LaunchPlan(self._tensors, self._tables, self._kernels, steps, returns)

    def _step(self, item: Any) -> Step:
        kind, content = tagged(item)
        if not isinstance(content, list):
            raise refusal("a step whose content is not a list")
        if kind == "tuned":
            choices = [self._choice(choice) for choice in at_most(content, launch.MAX_CHOICES)]
            if not choices:
                raise refusal("a tuned launch without a configuration")
            return Tuned(tuple(choices))
        return self._plain_step(kind, content)

    def _choice(self, steps: Any) -> tuple[Step, ...]:
        if not isinstance(steps, list) or not 1 <= len(steps) <= MAX_TUNED_STEPS:
            raise refusal(f"a configuration that is not a list of at most {MAX_TUNED_STEPS} steps")
        choice = tuple(self._plain_step(*tagged(item)) for item in steps)
        if not isinstance(choice[-1], TritonLaunch) or any(not isinstance(s, (Fill, Copy)) for s in choice[:-1]):
            raise refusal("a configuration that is not fills and copies with a launch at the end")
        return choice

    def _plain_step(self, kind: str, content: Any) -> Step:
        parsers: dict[str, Callable[..., Step]] = {
            "allocate": self._allocate,
            "fill": self._fill,
            "copy": self._copy,
            "launch": self._launch,
            "triton": self._triton,
            "operator": self._operator,
        }
        if kind not in parsers or not isinstance(content, list):
            raise refusal(f"a step of unknown kind {kind[:40]!r}")
        try:
            return parsers[kind](*content)
        except TypeError as error:
            raise refusal(f"a step {kind!r} of another length") from error

    def _allocate(self, dtype: Any, shape: Any, strides: Any, fill: Any, /) -> Step:
        form, value = _form(dtype, shape, strides), self._constant(fill)
        if fill is not None:
            self._written.add(len(self._buffers))
            value = number(value)
        self._new_buffer(form.nbytes)
        return Allocate(form, value)

    def _new_buffer(self, nbytes: int) -> None:
        self._buffers.append(nbytes)
        if sum(self._buffers) > launch.MAX_CALL_BYTES:
            raise plan_refused("plan", f"allocates more than {launch.MAX_CALL_BYTES} bytes")

    def _fill(self, target: Any, value: Any, /) -> Step:
        return Fill(self._target(target), number(self._constant(value)))

    def _copy(self, target: Any, origin: Any, /) -> Step:
        source, goal = self._operand(origin), self._target(target)
        if source.form.dtype != goal.form.dtype or source.form.shape != goal.form.shape:
            raise refusal("a copy between tensors of different dtypes or shapes")
        return Copy(goal, source)

    def _launch(self, kernel: Any, arguments: Any, /) -> Step:
        index = self._kernel(kernel, CppKernel)
        values = [self._value(item) for item in at_most(listed(arguments), launch.MAX_ARGUMENTS)]
        return Launch(index, tuple(values))

    def _triton(self, kernel: Any, grid: Any, arguments: Any, options: Any, /) -> Step:
        index = self._kernel(kernel, TritonKernel)
        if not isinstance(grid, list) or len(grid) != 3:
            raise refusal("a grid that is not three numbers")
        x, y, z = (integer(size, 1 << 31) for size in grid)
        most = launch.MAX_ARGUMENTS
        named = tuple((identifier(name), self._value(value)) for name, value in pairs(arguments, most))
        launch_options = tuple((identifier(name), self._constant(value)) for name, value in pairs(options, most))
        check_distinct([name for name, _value in (*named, *launch_options)])
        return TritonLaunch(index, (x, y, z), named, launch_options)

    def _operator(self, name: Any, arguments: Any, keywords: Any, results: Any, /) -> Step:
        values = [self._value(item) for item in at_most(listed(arguments), launch.MAX_ARGUMENTS)]
        named = tuple((identifier(key), self._value(value)) for key, value in pairs(keywords, launch.MAX_ARGUMENTS))
        check_distinct([key for key, _value in named])
        result_operands = tuple(self._result(item) for item in at_most(listed(results), launch.MAX_ARGUMENTS))
        return Operator(text(name, MAX_NAME_CHARACTERS), tuple(values), named, result_operands)

    def _result(self, data: Any) -> Operand:
        """Return a result of an operator: memory that exists already, or the next buffer."""
        tag, content = tagged(data)
        if tag == "operand" and isinstance(content, list) and content[:3] == ["buffer", len(self._buffers), 0]:
            form = _form(*content[3:]) if len(content) == 6 else _form(None, None, None)
            self._new_buffer(form.nbytes)
        return self._target(data)

    def _kernel(self, index: Any, kind: type[Kernel]) -> int:
        if type(index) is not int or not 0 <= index < len(self._kernels):
            raise refusal("a launch of a kernel that the plan does not have")
        if not isinstance(self._kernels[index], kind):
            raise refusal("a launch of another kind of kernel")
        return index

    def _target(self, data: Any) -> Operand:
        operand = self._operand(data)
        if operand.source == "table":
            raise plan_refused("plan", "writes to a tensor made outside the call")
        self._wrote(operand)
        return operand

    def _wrote(self, operand: Operand) -> None:
        if operand.source == "buffer":
            self._written.add(operand.index)

    def _value(self, data: Any) -> Any:
        """Return an argument of a launch. Memory that a kernel gets counts as written by it."""

        def special(tag: str, content: Any) -> Any:
            if tag == "tl":
                return TritonType(identifier(content))
            if tag != "operand":
                raise refusal(f"a value of unknown kind {tag[:40]!r}")
            operand = self._operand({tag: content})
            self._wrote(operand)
            return operand

        return decode(data, special)

    @staticmethod
    def _constant(data: Any) -> Any:
        return decode(data, None)

    def _operand(self, data: Any) -> Operand:
        tag, content = tagged(data)
        if tag != "operand" or not isinstance(content, list) or len(content) != 6:
            raise refusal("an operand that is not a list of source, index, offset, dtype, shape and strides")
        source, index, offset, *form = content
        sizes = self._sizes(source)
        if type(index) is not int or not 0 <= index < len(sizes):
            raise refusal(f"an operand in the {str(source)[:20]} {str(index)[:20]}, which does not exist")
        operand = Operand(cast("Source", source), index, integer(offset), _form(*form))
        if operand.offset + operand.form.nbytes > sizes[index]:
            raise refusal(f"an operand that goes beyond its {source}")
        return operand

    def _sizes(self, source: Any) -> list[int]:
        if source == "argument":
            return [tensor.form.nbytes for tensor in self._tensors]
        if source == "table":
            return [table.nbytes for table in self._tables]
        if source == "buffer":
            return self._buffers
        raise refusal("an operand of unknown kind")


def _argument(data: Any) -> Argument:
    form, device = field(data, "form", list), text(field(data, "device", str), MAX_DEVICE_CHARACTERS)
    if len(form) != 3:
        raise refusal("a tensor whose form is not dtype, shape and strides")
    return Argument(_form(*form), device, integer(field(data, "misaligned", int), launch.ALIGNMENT_BYTES))


def _form(dtype: Any, shape: Any, strides: Any) -> Form:
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES or not hasattr(torch, dtype):
        raise refusal(f"a tensor of unknown dtype {str(dtype)[:40]!r}")
    sizes, steps = listed(shape), listed(strides)
    if len(sizes) != len(steps) or len(sizes) > launch.MAX_DIMENSIONS:
        raise refusal("a tensor of too many dimensions, or without strides for all of them")
    form = Form(dtype, tuple(integer(size) for size in sizes), tuple(integer(step) for step in steps))
    if math.prod(form.shape) > MAX_EXTENT or form.nbytes > MAX_EXTENT:
        raise refusal("a tensor larger than any memory")
    return form


def _table(data: Any) -> ConstantTable:
    digits = text(data, 2 * launch.MAX_TABLE_BYTES)
    try:
        bytes.fromhex(digits)
    except ValueError as error:
        raise refusal("a constant table that is not hexadecimal") from error
    return ConstantTable(digits)


def _kernel(data: Any) -> Kernel:
    tag, content = tagged(data)
    if tag == "triton":
        return TritonKernel(text(content, launch.MAX_SOURCE_CHARACTERS))
    if tag == "cpp" and isinstance(content, list) and len(content) == 4:
        source, flags, openmp, function = content
        texts = tuple(text(flag, MAX_NAME_CHARACTERS) for flag in at_most(listed(flags), MAX_FLAGS))
        if not isinstance(openmp, bool):
            raise refusal("a kernel whose use of OpenMP is not True or False")
        return CppKernel(text(source, launch.MAX_SOURCE_CHARACTERS), texts, openmp, identifier(function))
    raise refusal("a kernel of unknown kind")
