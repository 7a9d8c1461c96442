"""The texts of a plan's Triton kernels, taken from the candidate's files and checked."""

from __future__ import annotations

from pathlib import Path

from pytest_passbench.candidate.triton import KernelReference, KernelText, check_options, kernel_text
from pytest_passbench.core.rejected import plan_refused
from pytest_passbench.plans.launch import LaunchPlan, TritonKernel


def checked_text(kernel: TritonKernel, plan: LaunchPlan, number: int, root: Path) -> KernelText:
    """Return the checked text of a plan's kernel number ``number``. ``root`` is the pass directory.

    Raises Rejected if the text breaks a rule or is not there, and if a launch of the plan does not fit it.
    """
    text = kernel_text(root, KernelReference.read(kernel.reference))
    for launch in plan.triton_launches:
        if launch.kernel != number:
            continue
        unknown = [name for name, _value in launch.arguments if name not in text.parameters]
        if unknown:
            raise plan_refused("argument", f"launches {text.name} with {unknown[0]}, which is none of its parameters")
        try:
            check_options(dict(launch.options))
        except ValueError as error:
            raise plan_refused(
                "option", f"launches {text.name} with an option that it may not have: {error}"
            ) from error
    return text
