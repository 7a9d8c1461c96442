"""Launch plans from data that nobody has to trust: every size, kind and range is checked."""

from __future__ import annotations

import keyword
import math
import unicodedata
from collections.abc import Callable
from typing import Any, cast

import torch

from pytest_passbench.plans import launch
from pytest_passbench.plans.launch import (
    ITEM_BYTES,
    Allocate,
    Argument,
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
    Source,
    Step,
    Table,
    TritonKernel,
    TritonLaunch,
    TritonType,
    Tuned,
)
from pytest_passbench.plans.values import ValueRefused, decode

_LARGEST = 1 << 40  # of a size, a stride, or an offset


class PlanRefused(ValueError):
    """Data that is no launch plan; the message says what is wrong with it."""


class PlanMisused(PlanRefused):
    """A launch plan that does what none may do; the message says what, as a sentence without its subject."""


def request(data: Any) -> Request:
    """Return the request that ``data`` states. Raises PlanRefused."""
    name, arguments = _field(data, "name", str), _field(data, "arguments", list)
    tensors = tuple(_argument(item) for item in _few(_field(data, "tensors", list), launch.MAX_ARGUMENTS))
    outputs, sequence = _integer(_field(data, "outputs", int), launch.MAX_ARGUMENTS), _field(data, "sequence", bool)
    if len(name) > 200:
        raise PlanRefused("a pass name of more than 200 characters")
    try:
        decode(arguments, lambda tag, content: _tensor_reference(tag, content, len(tensors)))
    except ValueRefused as error:
        raise PlanRefused(str(error)) from error
    return Request(name, tuple(arguments), tensors, outputs, sequence)


def _tensor_reference(tag: str, content: Any, count: int) -> Any:
    if tag != "tensor" or type(content) is not int or not 0 <= content < count:
        raise ValueRefused("a reference to no tensor")
    return content


def plan(data: Any, tensors: tuple[Argument, ...]) -> LaunchPlan:
    """Return the plan that ``data`` states for a call with ``tensors``. Raises PlanRefused."""
    if _field(data, "version", int) != launch.VERSION:
        raise PlanRefused("another version of launch plans")
    return _Parser(data, tensors).plan()


class _Parser:
    """One plan's data; knows which memory there is so far."""

    def __init__(self, data: Any, tensors: tuple[Argument, ...]) -> None:
        self._data, self._tensors = data, tensors
        self._tables = tuple(_table(item) for item in _few(_field(data, "tables", list), launch.MAX_KERNELS))
        if sum(table.nbytes for table in self._tables) > launch.MAX_TABLES:
            raise PlanRefused(f"constant tables of more than {launch.MAX_TABLES} bytes")
        self._kernels = tuple(_kernel(item) for item in _few(_field(data, "kernels", list), launch.MAX_KERNELS))
        self._buffers: list[int] = []  # bytes of each
        self._written: set[int] = set()

    def plan(self) -> LaunchPlan:
        steps = tuple(self._step(item) for item in _few(_field(self._data, "steps", list), launch.MAX_STEPS))
        returns = tuple(
            self._operand(item) for item in _few(_field(self._data, "returns", list), launch.MAX_ARGUMENTS)
        )
        for operand in returns:
            if operand.source == "buffer" and operand.index not in self._written and operand.form.nbytes:
                raise PlanMisused("returns memory that no step wrote")
            if operand.source == "table":  # every call would return the same memory
                raise PlanMisused("returns a tensor made outside the call")
        return LaunchPlan(self._tensors, self._tables, self._kernels, steps, returns)

    def _step(self, item: Any) -> Step:
        kind, content = _tagged(item)
        if not isinstance(content, list):
            raise PlanRefused("a step without content")
        if kind == "tuned":
            choices = [self._choice(choice) for choice in _few(content, launch.MAX_CHOICES)]
            if not choices:
                raise PlanRefused("a tuned launch without a configuration")
            return Tuned(tuple(choices))
        return self._plain_step(kind, content)

    def _choice(self, steps: Any) -> tuple[Step, ...]:
        if not isinstance(steps, list) or not 1 <= len(steps) <= 8:
            raise PlanRefused("a configuration that is no short list of steps")
        found = tuple(self._plain_step(*_tagged(item)) for item in steps)
        if not isinstance(found[-1], TritonLaunch) or any(not isinstance(s, (Fill, Copy)) for s in found[:-1]):
            raise PlanRefused("a configuration that does not end with its launch")
        return found

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
            raise PlanRefused(f"a step of unknown kind {kind[:40]!r}")
        try:
            return parsers[kind](*content)
        except TypeError as error:
            raise PlanRefused(f"a step {kind!r} of another length") from error

    def _allocate(self, dtype: Any, shape: Any, strides: Any, fill: Any, /) -> Step:
        form, value = _form(dtype, shape, strides), self._constant(fill)
        if fill is not None:
            self._written.add(len(self._buffers))
            value = _number(value)
        self._new_buffer(form.nbytes)
        return Allocate(form, value)

    def _new_buffer(self, nbytes: int) -> None:
        self._buffers.append(nbytes)
        if sum(self._buffers) > launch.MAX_MEMORY:
            raise PlanMisused(f"allocates more than {launch.MAX_MEMORY} bytes")

    def _fill(self, target: Any, value: Any, /) -> Step:
        return Fill(self._target(target), _number(self._constant(value)))

    def _copy(self, target: Any, origin: Any, /) -> Step:
        source, goal = self._operand(origin), self._target(target)
        if source.form.dtype != goal.form.dtype or source.form.shape != goal.form.shape:
            raise PlanRefused("a copy between tensors of different dtypes or shapes")
        return Copy(goal, source)

    def _launch(self, kernel: Any, arguments: Any, /) -> Step:
        number = self._kernel(kernel, CppKernel)
        values = [self._value(item) for item in _few(_list(arguments), launch.MAX_ARGUMENTS)]
        return Launch(number, tuple(values))

    def _triton(self, kernel: Any, grid: Any, arguments: Any, options: Any, /) -> Step:
        number = self._kernel(kernel, TritonKernel)
        if not isinstance(grid, list) or len(grid) != 3:
            raise PlanRefused("a grid that is not three numbers")
        x, y, z = (_integer(size, 1 << 31) for size in grid)
        named = tuple((_identifier(name), self._value(value)) for name, value in _pairs(arguments))
        chosen = tuple((_identifier(name), self._constant(value)) for name, value in _pairs(options))
        _different([name for name, _value in (*named, *chosen)])
        return TritonLaunch(number, (x, y, z), named, chosen)

    def _operator(self, name: Any, arguments: Any, keywords: Any, results: Any, /) -> Step:
        values = [self._value(item) for item in _few(_list(arguments), launch.MAX_ARGUMENTS)]
        named = tuple((_identifier(key), self._value(value)) for key, value in _pairs(keywords))
        _different([key for key, _value in named])
        found = tuple(self._result(item) for item in _few(_list(results), launch.MAX_ARGUMENTS))
        return Operator(_text(name, 200), tuple(values), named, found)

    def _result(self, data: Any) -> Operand:
        """Return what an operator gives back: memory that is there, or the next buffer."""
        tag, content = _tagged(data)
        if tag == "operand" and isinstance(content, list) and content[:3] == ["buffer", len(self._buffers), 0]:
            form = _form(*content[3:]) if len(content) == 6 else _form(None, None, None)
            self._new_buffer(form.nbytes)
        return self._target(data)

    def _kernel(self, number: Any, kind: type[Kernel]) -> int:
        if type(number) is not int or not 0 <= number < len(self._kernels):
            raise PlanRefused("a launch of no kernel")
        if not isinstance(self._kernels[number], kind):
            raise PlanRefused("a launch of another kind of kernel")
        return number

    def _target(self, data: Any) -> Operand:
        operand = self._operand(data)
        if operand.source == "table":
            raise PlanMisused("writes to a tensor made outside the call")
        self._wrote(operand)
        return operand

    def _wrote(self, operand: Operand) -> None:
        if operand.source == "buffer":
            self._written.add(operand.index)

    def _value(self, data: Any) -> Any:
        """Return an argument of a launch; memory that a kernel gets counts as written by it."""

        def special(tag: str, content: Any) -> Any:
            if tag == "tl":
                return TritonType(_identifier(content))
            if tag != "operand":
                raise ValueRefused(f"a value of unknown kind {tag[:40]!r}")
            operand = self._operand({tag: content})
            self._wrote(operand)
            return operand

        return _decoded(data, special)

    @staticmethod
    def _constant(data: Any) -> Any:
        return _decoded(data, None)

    def _operand(self, data: Any) -> Operand:
        tag, content = _tagged(data)
        if tag != "operand" or not isinstance(content, list) or len(content) != 6:
            raise PlanRefused("an operand that is none")
        source, index, offset, *form = content
        sizes = self._sizes(source)
        if type(index) is not int or not 0 <= index < len(sizes):
            raise PlanRefused(f"an operand in no {str(source)[:20]} there is")
        found = Operand(cast("Source", source), index, _integer(offset), _form(*form))
        if found.offset + found.form.nbytes > sizes[index]:
            raise PlanRefused(f"an operand that goes beyond its {source}")
        return found

    def _sizes(self, source: Any) -> list[int]:
        if source == "argument":
            return [tensor.form.nbytes for tensor in self._tensors]
        if source == "table":
            return [table.nbytes for table in self._tables]
        if source == "buffer":
            return self._buffers
        raise PlanRefused("an operand of unknown kind")


def _argument(data: Any) -> Argument:
    form, device = _field(data, "form", list), _text(_field(data, "device", str), 20)
    if len(form) != 3:
        raise PlanRefused("a tensor without a form")
    return Argument(_form(*form), device, _integer(_field(data, "misaligned", int), 16))


def _form(dtype: Any, shape: Any, strides: Any) -> Form:
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES or not hasattr(torch, dtype):
        raise PlanRefused(f"a tensor of unknown dtype {str(dtype)[:40]!r}")
    sizes, steps = _list(shape), _list(strides)
    if len(sizes) != len(steps) or len(sizes) > launch.MAX_DIMENSIONS:
        raise PlanRefused("a tensor of too many dimensions, or without strides for all of them")
    found = Form(dtype, tuple(_integer(size) for size in sizes), tuple(_integer(step) for step in steps))
    if math.prod(found.shape) > _LARGEST or found.nbytes > _LARGEST:
        raise PlanRefused("a tensor larger than any memory")
    return found


def _table(data: Any) -> Table:
    text = _text(data, 2 * launch.MAX_TABLES)
    try:
        bytes.fromhex(text)
    except ValueError as error:
        raise PlanRefused("a constant table that is not hexadecimal") from error
    return Table(text)


def _kernel(data: Any) -> Kernel:
    tag, content = _tagged(data)
    if tag == "triton":
        return TritonKernel(_text(content, launch.MAX_SOURCE))
    if tag == "cpp" and isinstance(content, list) and len(content) == 4:
        source, flags, openmp, function = content
        texts = tuple(_text(flag, 200) for flag in _few(_list(flags), 64))
        if not isinstance(openmp, bool):
            raise PlanRefused("a kernel without a word on OpenMP")
        return CppKernel(_text(source, launch.MAX_SOURCE), texts, openmp, _identifier(function))
    raise PlanRefused("a kernel of unknown kind")


def _decoded(data: Any, special: Any) -> Any:
    try:
        return decode(data, special)
    except ValueRefused as error:
        raise PlanRefused(str(error)) from error


def _tagged(data: Any) -> tuple[str, Any]:
    if not isinstance(data, dict) or len(data) != 1:
        raise PlanRefused("an entry that is not tagged with its kind")
    ((tag, content),) = data.items()
    return str(tag), content


def _field(data: Any, key: str, of: type) -> Any:
    if not isinstance(data, dict) or type(data.get(key)) is not of:
        raise PlanRefused(f"no {key}, or one of another type")
    return data[key]


def _pairs(data: Any) -> list[tuple[Any, Any]]:
    pairs = _few(_list(data), launch.MAX_ARGUMENTS)
    if any(not isinstance(pair, list) or len(pair) != 2 for pair in pairs):
        raise PlanRefused("named values that are no pairs")
    return [(name, value) for name, value in pairs]


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise PlanRefused("a list is missing")
    return data


def _few(items: list[Any], most: int) -> list[Any]:
    if len(items) > most:
        raise PlanRefused(f"more than {most} entries")
    return items


def _integer(value: Any, most: int = _LARGEST) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise PlanRefused("a number out of range")
    return value


def _number(value: Any) -> float | int | bool:
    if not isinstance(value, (bool, int, float)):
        raise PlanRefused("a fill value that is no number")
    return value


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise PlanRefused(f"a text of more than {most} characters, or none at all")
    return value


def _identifier(value: Any) -> str:
    if not isinstance(value, str) or not value.isidentifier() or keyword.iskeyword(value) or len(value) > 200:
        raise PlanRefused("a name that is no identifier")
    return value


def _different(names: list[str]) -> None:
    if len({unicodedata.normalize("NFKC", name) for name in names}) < len(names):  # as Python compares them
        raise PlanRefused("two values of one name")
