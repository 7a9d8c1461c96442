"""The check of what launch plans return: the dtypes and shapes of the operators that they replace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_passbench.plans.launch import ITEM_BYTES, Allocate, Form, LaunchPlan, Operand, Request, Result, contiguous


@dataclass(frozen=True)
class Mismatch:
    """A plan's return of another dtype or shape than the operators that it replaces give.

    ``status`` is a record's, and ``message`` is a sentence. ``wider``: the shape is right, and the dtype has no fewer
    bytes.
    """

    status: str
    message: str
    wider: bool


def mismatch(request: Request, plan: LaunchPlan) -> Mismatch | None:
    """Return the first value of a plan that differs from what the replaced operators give, or None if none does.

    A value may be of any form if nothing uses it, and if the operators' form depends on values.
    """
    for number, (operand, expected) in enumerate(zip(plan.returns, request.results, strict=False), 1):
        actual = Result(operand.form.dtype, operand.form.shape)
        if expected is None or actual == expected:
            continue
        which = f" as value {number} of {len(plan.returns)}" if len(plan.returns) > 1 else ""
        message = f"pass {request.name} returns {actual}{which}; the operators that it replaces give {expected}"
        if actual.shape != expected.shape:
            return Mismatch("shape_mismatch", message, wider=False)
        return Mismatch("type_mismatch", message, wider=ITEM_BYTES[actual.dtype] >= ITEM_BYTES[expected.dtype])
    return None


def zeros(request: Request, plan: LaunchPlan) -> dict[str, Any]:
    """Return the message with a plan of zeros in place of ``plan``, of the forms that the replaced operators give.

    With it the operators behind the match still run, so the other matches of the graph are found.
    """
    pairs = zip(plan.returns, request.results, strict=True)
    forms = [_form(operand, expected) for operand, expected in pairs]
    returns = tuple(Operand("buffer", index, 0, form) for index, form in enumerate(forms))
    zero_plan = LaunchPlan(plan.tensors, (), (), tuple(Allocate(form, 0) for form in forms), returns)
    return {"plan": zero_plan.to_data(), "kernels": [], "written": []}


def _form(operand: Operand, expected: Result | None) -> Form:
    return operand.form if expected is None else contiguous(expected.dtype, expected.shape)
