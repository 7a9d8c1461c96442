"""The Triton kernels of a plan: their texts, taken from the candidate's files and checked, and their machine code.

Machine code is for a CUDA device. It goes to the template with a description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_passbench.candidate.triton import KernelReference, KernelText, check_options, kernel_text
from pytest_passbench.core.rejected import kernel_refused, plan_refused
from pytest_passbench.judge.builder.compile_errors import CompileFailed
from pytest_passbench.judge.builder.triton_build import CompiledLaunch, TritonBuilder, specialise
from pytest_passbench.plans.launch import LaunchPlan, TritonKernel, TritonLaunch, Tuned

MAX_SHOWN_CHARACTERS = 2000  # of the reason why a configuration was not compiled


def checked_text(kernel: TritonKernel, plan: LaunchPlan, number: int, root: Path) -> KernelText:
    """Return the checked text of a plan's kernel number ``number``. ``root`` is the pass directory.

    Raises Rejected if the text is missing or breaks a rule, or if a launch of the plan does not fit it.
    """
    text = kernel_text(root, KernelReference.read(kernel.reference))
    for launch in plan.triton_launches:
        if launch.kernel != number:
            continue
        unknown = [name for name, _value in launch.arguments if name not in text.parameters]
        if unknown:
            raise plan_refused("argument", f"launches {text.name} with {unknown[0]}, which it has no parameter for")
        try:
            check_options(dict(launch.options))
        except ValueError as error:
            raise plan_refused(
                "option", f"launches {text.name} with an option that it may not have: {error}"
            ) from error
    return text


def machine_code(
    plan: LaunchPlan,
    texts: Mapping[int, KernelText],
    builder: TritonBuilder,
    capability: int,
    patience: Callable[[], float],
) -> tuple[dict[str, Any], bytes]:
    """Compile every launch of a plan. Return a description, JSON-ready, and the machine code in one piece.

    The description's ``binaries`` give the place of each binary in that piece. Its ``launches`` have, for each launch
    of the plan, a binary's number, or why it was not compiled. ``texts`` has the Triton kernels by their numbers.

    ``patience`` returns the seconds that compiling a kernel may take now, or raises an error if none are left.

    A configuration of a tuned launch may fail if another one does not. Raises Rejected if a kernel can't be
    compiled, or if a launch does not fit its kernel.
    """
    launches = plan.triton_launches
    compiled: dict[int, CompiledLaunch | CompileFailed] = {}
    for number, text in texts.items():
        places = [place for place, launch in enumerate(launches) if launch.kernel == number]
        specialised = [specialise(text, launches[place], plan.tensors) for place in places]
        compiled.update(zip(places, builder.machines(text, specialised, capability, patience()), strict=True))
    in_order = [compiled[place] for place in range(len(launches))]
    _check_failures(plan, texts, in_order)
    return _packed(in_order)


def _check_failures(
    plan: LaunchPlan, texts: Mapping[int, KernelText], compiled: list[CompiledLaunch | CompileFailed]
) -> None:
    """Raise Rejected if no configuration of a launch could be compiled."""
    place = 0
    for step in plan.steps:
        last = step.choices[-1][-1] if isinstance(step, Tuned) else step
        if not isinstance(last, TritonLaunch):
            continue
        count = len(step.choices) if isinstance(step, Tuned) else 1
        failed = [result for result in compiled[place : place + count] if isinstance(result, CompileFailed)]
        place += count
        if len(failed) == count:
            text = texts[last.kernel]
            raise kernel_refused("", f"kernel {text.name}: {failed[-1]}", text.file, failed[-1].line or text.line)


def _packed(compiled: list[CompiledLaunch | CompileFailed]) -> tuple[dict[str, Any], bytes]:
    code, binaries, numbers = bytearray(), list[dict[str, Any]](), dict[CompiledLaunch, int]()
    launches: list[int | str] = []
    for machine in compiled:
        if isinstance(machine, CompileFailed):
            launches.append(str(machine)[-MAX_SHOWN_CHARACTERS:])
            continue
        if machine not in numbers:
            numbers[machine] = len(binaries)
            binaries.append({"binary": machine.binary.to_data(), "place": [len(code), len(machine.code)]})
            code += machine.code
        launches.append(numbers[machine])
    return {"binaries": binaries, "launches": launches}, bytes(code)
