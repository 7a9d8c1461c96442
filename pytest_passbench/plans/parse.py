"""Launch plans and requests from data that is not trusted. This module checks what their schemas alone cannot."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pytest_passbench.core.rejected import plan_refused
from pytest_passbench.core.schema import refusal
from pytest_passbench.plans.launch import (
    MAX_CALL_BYTES,
    MAX_EXTENT,
    MAX_TABLE_BYTES,
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
    Step,
    TritonKernel,
    TritonLaunch,
    Tuned,
    operands_in,
)
from pytest_passbench.plans.values import decode

_HEXADECIMAL = re.compile("(?:[0-9a-f]{2})*")


def request(data: Any) -> Request:
    """Return the request that ``data`` states. Raises Rejected if it states none."""
    stated = Request.from_data(data)
    if len(stated.results) not in (0, stated.outputs):
        raise refusal("states another number of results than it has outputs")
    for tensor in stated.tensors:
        bytes_of(tensor.form)

    def check_reference(tag: str, content: Any) -> None:
        if tag != "tensor" or type(content) is not int or not 0 <= content < len(stated.tensors):
            raise refusal("refers to a tensor that is not an argument")

    decode(list(stated.arguments), check_reference)
    return stated


def plan(data: Any, tensors: tuple[Argument, ...]) -> LaunchPlan:
    """Return the plan that ``data`` states for a call with ``tensors``.

    Raises Rejected, of the layer "plan" for a plan that does what no plan may do, and of "data" for malformed data.
    """
    stated = replace(LaunchPlan.from_data(data), tensors=tensors)
    _PlanChecker(stated).check()
    return stated


class _PlanChecker:
    """The check of a plan. It knows the buffers that the steps so far allocate, and which of them are written."""

    def __init__(self, stated: LaunchPlan) -> None:
        self._plan = stated
        self._buffers: list[int] = []  # bytes of each
        self._written: set[int] = set()
        self._bytes = {
            "argument": [tensor.form.nbytes for tensor in stated.tensors],
            "table": [table.nbytes for table in stated.tables],
            "buffer": self._buffers,
        }

    def check(self) -> None:
        if sum(self._bytes["table"]) > MAX_TABLE_BYTES:
            raise refusal(f"has constant tables of more than {MAX_TABLE_BYTES} bytes")
        for table in self._plan.tables:
            if not _HEXADECIMAL.fullmatch(table.content):
                raise refusal("has a constant table that is not hexadecimal")
        for step in self._plan.steps:
            self._step(step)
        for operand in self._plan.returns:
            self._operand(operand)
            if operand.source == "buffer" and operand.index not in self._written and operand.form.nbytes:
                raise plan_refused("plan", "returns memory that no step wrote")
            if operand.source == "table":  # all calls would return the same memory
                raise plan_refused("plan", "returns a tensor made outside the call")

    def _step(self, step: Step) -> None:
        match step:
            case Allocate(form, fill):
                if fill is not None:
                    self._written.add(len(self._buffers))
                self._new_buffer(form)
            case Fill(target):
                self._target(target)
            case Copy(target, origin):
                self._operand(origin)
                self._target(target)
                if (origin.form.dtype, origin.form.shape) != (target.form.dtype, target.form.shape):
                    raise refusal("has a copy between tensors of different dtypes or shapes")
            case Launch(kernel, arguments):
                self._kernel(kernel, CppKernel)
                self._values(arguments)
            case TritonLaunch(kernel, _grid, arguments, options):
                self._kernel(kernel, TritonKernel)
                _check_distinct(name for name, _value in (*arguments, *options))
                self._values(value for _name, value in arguments)
            case Tuned(choices):
                for choice in choices:
                    self._choice(choice)
            case Operator(_, arguments, keywords, results):
                _check_distinct(name for name, _value in keywords)
                self._values([*arguments, *(value for _name, value in keywords)])
                for result in results:
                    if (result.source, result.index, result.offset) == ("buffer", len(self._buffers), 0):
                        self._new_buffer(result.form)
                    self._target(result)

    def _choice(self, choice: tuple[Step, ...]) -> None:
        if not isinstance(choice[-1], TritonLaunch) or any(not isinstance(s, (Fill, Copy)) for s in choice[:-1]):
            raise refusal("has a configuration that is not fills and copies with a launch at the end")
        for step in choice:
            self._step(step)

    def _new_buffer(self, form: Form) -> None:
        self._buffers.append(bytes_of(form))
        if sum(self._buffers) > MAX_CALL_BYTES:
            raise plan_refused("plan", f"allocates more than {MAX_CALL_BYTES} bytes")

    def _kernel(self, index: int, kind: type[Kernel]) -> None:
        if index >= len(self._plan.kernels):
            raise refusal("launches a kernel that the plan does not have")
        if not isinstance(self._plan.kernels[index], kind):
            raise refusal("launches another kind of kernel")

    def _target(self, operand: Operand) -> None:
        self._operand(operand)
        if operand.source == "table":
            raise plan_refused("plan", "writes to a tensor made outside the call")
        self._wrote(operand)

    def _wrote(self, operand: Operand) -> None:
        if operand.source == "buffer":
            self._written.add(operand.index)

    def _values(self, values: Iterable[Any]) -> None:
        """Check the arguments of a launch. Memory that a kernel gets counts as written by it."""
        for operand in operands_in(tuple(values)):
            self._operand(operand)
            self._wrote(operand)

    def _operand(self, operand: Operand) -> None:
        nbytes, sizes = bytes_of(operand.form), self._bytes[operand.source]
        if operand.index >= len(sizes):
            raise refusal(f"has an operand in the {operand.source} {operand.index}, which does not exist")
        if operand.offset + nbytes > sizes[operand.index]:
            raise refusal(f"has an operand that goes beyond its {operand.source}")


def bytes_of(form: Form) -> int:
    """Return the bytes of a tensor of this form. Raises Rejected for a form that no tensor can have."""
    if len(form.shape) != len(form.strides):
        raise refusal("has a tensor without strides for all dimensions")
    nbytes = form.nbytes
    if math.prod(form.shape) > MAX_EXTENT or nbytes > MAX_EXTENT:
        raise refusal("has a tensor larger than any memory")
    return nbytes


def _check_distinct(names: Iterable[str]) -> None:
    """Raise Rejected if two names are the same. Python compares identifiers in Unicode's form NFKC."""
    plain = [unicodedata.normalize("NFKC", name) for name in names]
    if len(set(plain)) < len(plain):
        raise refusal("has two values of one name")
