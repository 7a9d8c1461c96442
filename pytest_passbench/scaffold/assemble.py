"""The text of a pass's file, from a run of calls and its lowering."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_passbench.scaffold.emitter import template, wrapped_call
from pytest_passbench.scaffold.helpers import TEXTS
from pytest_passbench.scaffold.parts import Part
from pytest_passbench.scaffold.text import Python

HEAD = '#include "passbench.h"\n#include <algorithm>\n#include <cmath>\n\n'


def cpp_pass(part: Part, stem: str, doc: str) -> str:
    """Return the file of a pass with C++ kernels."""
    lowered = part.lowered
    kernels = "\n".join(template(kernel, lowered.types) for kernel in lowered.kernels)
    before = "".join(text for name, text in FUNCTIONS.items() if f"{name}<" in kernels)
    source = f"{HEAD}{before}{kernels}"
    pieces = [
        f'"""{doc}"""\n\nimport torch\n\nfrom pytest_passbench.kernels import cpp\n\n'
        f'lib = cpp.load("""\n{source}""", flags=("-ffp-contract=off",))\n',
        pattern(part),
        *(TEXTS[name] for name in lowered.helpers),
        wrapper(part, stem),
        f"def replacement_func():\n    return {stem}\n",
    ]
    if any("operator." in piece for piece in pieces[1:]):
        pieces[0] = pieces[0].replace("import torch\n", "import operator\n\nimport torch\n", 1)
    return "\n\n".join(pieces)


FUNCTIONS = {
    "cube": """\
// Eager cubes bfloat16 in two rounded steps, other types in one.
template <class T> float cube(float x, float square) {
  return std::is_same_v<T, pb::bf16> ? square * x : x * x * x;
}

""",
    "batch_norm": """\
// Batch norm with eager's roundings. Faster: scale and offset are the same for all of a channel.
template <class T> float batch_norm(float x, float mean, float variance, float weight, float bias, float eps) {
  float scale = 1 / std::sqrt(variance + eps) * weight;
  float offset = std::is_same_v<T, pb::f16> ? bias - mean * scale : std::fma(-mean, scale, bias);
  return std::fma(x, scale, offset);
}

""",
}
"""C++ functions that a loop may call, by name."""


def pattern(part: Part) -> str:
    """Return ``pattern`` and ``replacement_args``."""
    names, texts = part.names, Python(part.names)
    arguments = [names[value] for value in part.arguments]
    lines = []
    for node in part.nodes:
        lines.append(f"{names[node]} = {texts.statement(node)}")
    returned = ", ".join(names[node] for node in part.returned)
    body = "".join(f"    {line}\n" for line in lines)
    handed = ", ".join(arguments) + ("," if len(arguments) == 1 else "")
    head = wrapped_call("def pattern", arguments, 0) + ":"
    args = wrapped_call("def replacement_args", arguments, 0) + ":"
    return f"{head}\n{body}    return {returned}\n\n\n{args}\n    return ({handed})\n"


def wrapper(part: Part, stem: str) -> str:
    """Return the wrapper: a check of its arguments' dtypes, and the launches."""
    lowered = part.lowered
    arguments = [part.names[value] for value in part.arguments]
    head = wrapped_call(f"def {stem}", arguments, 0) + ":"
    lines = [*check(part, stem), *lowered.lines]
    return f"{head}\n" + "".join(f"    {line}\n" for line in lines)


def check(part: Part, stem: str) -> list[str]:
    """Return a guard: the kernels read what they are given as the dtypes that the task has."""
    if not part.refused:
        return []
    (actual, expected), *more = part.refused
    actuals, other = (", ".join(side) for side in zip(*part.refused, strict=True))
    condition = f"if ({actuals}) != ({other}):" if more else f"if {actual} != {expected}:"
    return [condition, f'    raise ValueError(f"{stem}: no kernel for {{{actual}}}")']


def stem_of(ops: Sequence[str]) -> str:
    """Return a file name for a pass that does these operators."""
    words = [re.sub(r"\W", "_", op) for op in ops]
    return "_".join(words[:4]) or "first"
