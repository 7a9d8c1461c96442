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
    for number, (operand, wanted) in enumerate(zip(plan.returns, request.results, strict=False), 1):
        found = Result(operand.form.dtype, operand.form.shape)
        if wanted is None or found == wanted:
            continue
        which = f" as value {number} of {len(plan.returns)}" if len(plan.returns) > 1 else ""
        said = f"pass {request.name} returns {found}{which}; the operators that it replaces give {wanted}"
        if found.shape != wanted.shape:
            return Mismatch("shape_mismatch", said, wider=False)
        return Mismatch("type_mismatch", said, wider=ITEM_BYTES[found.dtype] >= ITEM_BYTES[wanted.dtype])
    return None


def zeros(request: Request, plan: LaunchPlan) -> dict[str, Any]:
    """Return the message with a plan of zeros in place of ``plan``, of the forms that the replaced operators give.

    With it the operators behind the match still run, so the other matches of the graph are found.
    """
    pairs = zip(plan.returns, request.results, strict=True)
    forms = [_form(operand, wanted) for operand, wanted in pairs]
    returns = tuple(Operand("buffer", index, 0, form) for index, form in enumerate(forms))
    made = LaunchPlan(plan.tensors, (), (), tuple(Allocate(form, 0) for form in forms), returns)
    return {"plan": made.to_data(), "kernels": [], "written": []}


def _form(operand: Operand, wanted: Result | None) -> Form:
    return operand.form if wanted is None else contiguous(wanted.dtype, wanted.shape)
