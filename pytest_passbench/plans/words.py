"""Launch plans in words: a line per step, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted

MAX_STEPS_SHOWN = 40
MAX_STEP_CHARACTERS = 200


def steps(plan: Mapping[str, Any]) -> list[str]:
    """Return the steps of a plan (its JSON-ready data) in words, a line of at most 200 characters each.

    ``a0`` is the first argument, ``b0`` the plan's first buffer, ``t0`` its first constant table.
    ``a0+64`` begins 64 bytes into the argument. After 40 steps, a last line has the number of the others.
    """
    texts, buffers = [], 0
    for step in plan["steps"]:
        ((kind, content),) = step.items()
        if kind == "allocate":
            dtype, shape, _, fill = content
            ending = "" if fill is None else f", filled with {value(fill)}"
            texts.append(f"allocate b{buffers}: {dtype} {shape}{ending}")
            buffers += 1
        else:
            results = _new_buffers(content[3], buffers) if kind == "operator" else []
            texts.append(f"{', '.join(results)}{' = ' * bool(results)}{_step(kind, content, plan['kernels'])}")
            buffers += len(results)
    over = len(texts) - MAX_STEPS_SHOWN
    lines = [line(text, MAX_STEP_CHARACTERS) for text in texts[:MAX_STEPS_SHOWN]]
    return [*lines, f"and {counted(over, 'more step')}"] if over > 0 else lines


def _new_buffers(results: Sequence[Mapping[str, Any]], buffers: int) -> list[str]:
    """Return the names of the new buffers among an operator's results. ``buffers`` is the number of earlier ones."""
    numbers = {index for source, index, *_ in (item["operand"] for item in results) if source == "buffer"}
    return [f"b{index}" for index in sorted(numbers) if index >= buffers]


def _step(kind: str, content: Any, kernels: Sequence[Mapping[str, Any]]) -> str:
    """Return a step that allocates nothing."""
    match kind:
        case "launch":
            return f"launch {kernel_name(kernels[content[0]])}({', '.join(map(value, content[1]))})"
        case "triton":
            number, grid, arguments, options = content
            named = ", ".join(f"{name}={value(item)}" for name, item in [*arguments, *options])
            return f"launch {kernel_name(kernels[number])}({named}) on a grid of {' x '.join(map(str, grid))}"
        case "tuned":
            ((launch, launch_text),) = content[0][-1].items()
            return f"{_step(launch, launch_text, kernels)}, the first of {len(content)} configurations"
        case "fill":
            return f"fill {value(content[0])} with {value(content[1])}"
        case "copy":
            return f"copy {value(content[1])} to {value(content[0])}"
        case _:
            name, arguments, keywords, _ = content
            argument_texts = [*map(value, arguments), *(f"{key}={value(item)}" for key, item in keywords)]
            return f"call {name}({', '.join(argument_texts)})"


def kernel_name(kernel: Mapping[str, Any]) -> str:
    """Return the name of a kernel of a plan, by its JSON-ready data."""
    return str(kernel["cpp"][3] if "cpp" in kernel else json.loads(kernel["triton"])["name"])


def place(operand: Sequence[Any]) -> str:
    """Return the place of an operand: ``b0+64`` for 64 bytes into the first buffer."""
    source, index, offset = operand[:3]
    return f"{source[0]}{index}" + (f"+{offset}" if offset else "")


def value(data: Any) -> str:
    """Return an argument of a step: an operand by its place, a constant as Python has it."""
    if isinstance(data, dict) and len(data) == 1:
        ((tag, content),) = data.items()
        if tag == "operand":
            return place(content)
        return str(content)
    if isinstance(data, list):
        return f"[{', '.join(map(value, data))}]"
    return repr(data)
