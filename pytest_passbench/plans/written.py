"""The memory that a launch plan writes to, according to its steps and its kernels' declarations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_passbench.plans.launch import (
    ITEM_BYTES,
    Copy,
    Fill,
    Launch,
    LaunchPlan,
    Operand,
    Operator,
    Step,
    TritonLaunch,
    Tuned,
    operands_in,
)
from pytest_passbench.suite.allowlist import resolve


def written(plan: LaunchPlan, parameters: Sequence[frozenset[int | str]]) -> frozenset[int]:
    """Return the numbers of the argument tensors that a plan writes to.

    ``parameters`` has, for each kernel, the parameters through which it writes: positions in C++, names in Triton.
    """
    targets = [value for step in plan.steps for value in _targets(step, parameters)]
    return frozenset(operand.index for operand in operands_in(targets) if operand.source == "argument")


def returns_written(plan: LaunchPlan, parameters: Sequence[frozenset[int | str]]) -> bool:
    """Return True if a kernel, or an operator, writes bytes that the plan returns, also if a copy passes them on.

    A fill or copy before a tuned launch counts as the kernel's. ``parameters`` are those of :func:`written`.
    """
    pieces: list[Piece] = []
    for step in plan.steps:
        if isinstance(step, (Fill, Copy)):
            passed_on = isinstance(step, Copy) and _meet(step.origin, pieces)
            pieces = [*pieces, _piece(step.target)] if passed_on else _without(pieces, step.target)
        else:
            values = [*_targets(step, parameters), *(step.results if isinstance(step, Operator) else ())]
            pieces += [_piece(operand) for operand in operands_in(values)]
    return any(_meet(operand, pieces) for operand in plan.returns)


#: A piece of a plan's memory: source, index, and the offsets of its first byte and of its end.
Piece = tuple[str, int, int, int]


def _piece(operand: Operand) -> Piece:
    return operand.source, operand.index, operand.offset, operand.offset + operand.form.nbytes


def _meet(operand: Operand, pieces: Sequence[Piece]) -> bool:
    """Return True if the operand's memory and one of the pieces have a byte in common."""
    source, index, start, end = _piece(operand)
    return any(piece[:2] == (source, index) and piece[2] < end and start < piece[3] for piece in pieces)


def _without(pieces: Sequence[Piece], target: Operand) -> list[Piece]:
    """Return the pieces without the memory that a step overwrites, if its target has no gaps."""
    if math.prod(target.form.shape) * ITEM_BYTES[target.form.dtype] != target.form.nbytes:
        return list(pieces)
    source, index, start, end = _piece(target)
    rest: list[Piece] = []
    for piece in pieces:
        inside = piece[:2] == (source, index)
        parts = [(piece[2], min(piece[3], start)), (max(piece[2], end), piece[3])] if inside else [piece[2:]]
        rest += [(*piece[:2], first, last) for first, last in parts if first < last]
    return rest


def _targets(step: Step, parameters: Sequence[frozenset[int | str]]) -> Iterator[Any]:
    """Yield the values that a step writes to: operands, or sequences that hold some."""
    if isinstance(step, (Fill, Copy)):
        yield step.target
    elif isinstance(step, Launch):
        yield from (value for at, value in enumerate(step.arguments) if at in parameters[step.kernel])
    elif isinstance(step, TritonLaunch):
        yield from (value for name, value in step.arguments if name in parameters[step.kernel])
    elif isinstance(step, Tuned):
        for choice in step.choices:
            for inner in choice:
                yield from _targets(inner, parameters)
    elif isinstance(step, Operator):
        yield from _changed(step)


def _changed(step: Operator) -> Iterator[Any]:
    """Yield the arguments that an operator changes in place, according to its schema."""
    operator: Any = resolve(f"torch.ops.{step.name}")
    keywords = dict(step.keywords)
    for at, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield step.arguments[at] if at < len(step.arguments) else keywords.get(argument.name)
