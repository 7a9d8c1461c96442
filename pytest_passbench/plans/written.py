"""The argument tensors that a launch plan writes to, according to its steps and its kernels' declarations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pytest_passbench.plans.launch import Copy, Fill, Launch, LaunchPlan, Operand, Operator, Step, TritonLaunch, Tuned
from pytest_passbench.suite.allowlist import resolve


def written(plan: LaunchPlan, parameters: Sequence[frozenset[int | str]]) -> frozenset[int]:
    """Return the numbers of the argument tensors that a plan writes to.

    ``parameters`` has, for each kernel, the parameters through which it writes: positions in C++, names in Triton.
    """
    targets = [value for step in plan.steps for value in _targets(step, parameters)]
    return frozenset(
        operand.index for value in targets for operand in _operands(value) if operand.source == "argument"
    )


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


def _operands(value: Any) -> Iterator[Operand]:
    if isinstance(value, Operand):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _operands(item)
