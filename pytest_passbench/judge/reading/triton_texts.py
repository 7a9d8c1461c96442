"""The texts of a plan's Triton kernels, taken from the candidate's files and checked."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_passbench.candidate.triton import KernelReference, KernelRefusal, KernelText, check_options, kernel_text
from pytest_passbench.judge.reading.reader import Refusal
from pytest_passbench.plans.launch import LaunchPlan, TritonKernel


class TextRefused(Exception):
    """A kernel's text breaks ``rule``. If ``rule`` is None, the text can't be read or compiled."""

    def __init__(self, rule: str | None, message: str, file: str = "", line: int = 0) -> None:
        self.rule, self.message, self.file, self.line = rule, message, file, line
        super().__init__(f"{file}:{line}: {message}" if file else message)


def checked_text(kernel: TritonKernel, plan: LaunchPlan, number: int, root: Path) -> KernelText:
    """Return the checked text of a plan's kernel number ``number``. ``root`` is the pass directory.

    Raises TextRefused if the text breaks a rule, Refusal if a launch of the plan does not fit it.
    """
    try:
        reference = KernelReference.from_json(json.loads(kernel.reference))
    except (ValueError, RecursionError) as error:
        raise Refusal("plan", f"names a Triton kernel in a form that is none: {error}") from error
    try:
        text = kernel_text(root, reference)
    except KernelRefusal as error:
        raise TextRefused(error.rule, error.message, error.file, error.line) from error
    for launch in plan.triton_launches:
        if launch.kernel != number:
            continue
        unknown = [name for name, _value in launch.arguments if name not in text.parameters]
        if unknown:
            raise Refusal("argument", f"launches {text.name} with {unknown[0]}, which is none of its parameters")
        try:
            check_options(dict(launch.options))
        except ValueError as error:
            raise Refusal("option", f"launches {text.name} with an option that it may not have: {error}") from error
    return text
