"""The file of a pass: its pattern, its kernels in C++ or Triton, and the wrapper that chooses and launches them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_passbench.first_pass.branch import Branch, Condition
from pytest_passbench.first_pass.columns import Column
from pytest_passbench.first_pass.kernels import GENERIC, FusedKernel, Traces, several
from pytest_passbench.first_pass.naming import Python
from pytest_passbench.first_pass.parts import Part
from pytest_passbench.fusion import Unsupported, triton
from pytest_passbench.fusion.kernel import FLAGS, source, wrapped
from pytest_passbench.fusion.prelude import prelude
from pytest_passbench.fusion.triton_text import helpers

WIDTH = 100
KERNEL = "kernel_without_name"
"""A placeholder for a kernel's name, until the number of kernels is known."""
NOTE = "the elements of a program; the interpreter pays per program"


@dataclass(frozen=True)
class Way:
    """A way through the wrapper: its conditions, the layouts that it requires, its lines and its kernel's text."""

    conditions: list[Condition]
    layouts: list[Condition]
    lines: list[str]
    text: str


def cpp_pass(part: Part, columns: Sequence[Column], stem: str, doc: str) -> str:
    """Return the file of a pass with kernels in C++. Raises Unsupported if a match has none."""
    ways = _named(_ways(part, columns, _cpp), stem)
    body = "\n".join(dict.fromkeys(way.text for way in ways if way.text))
    flags = ", ".join(f'"{flag}"' for flag in FLAGS)
    library = f'lib = cpp.load("""\n{prelude(body)}\n{body}""", flags=({flags},))\n'
    head = "import torch\n\nfrom pytest_passbench.kernels import cpp\n\n"
    return _file(doc, head + library, [pattern(part), *_wrappers(part, ways, stem)], stem)


def triton_pass(part: Part, columns: Sequence[Column], stem: str, doc: str) -> str:
    """Return the file of a pass with kernels in Triton. Raises Unsupported if a match has none."""
    ways = _named(_ways(part, columns, _triton), stem)
    texts = list(dict.fromkeys(way.text for way in ways if way.text))
    pieces = [*helpers("\n".join(texts)), *texts, pattern(part), *_wrappers(part, ways, stem)]
    return _file(doc, f"import torch\n{triton.HEAD}", pieces, stem)


def _file(doc: str, head: str, pieces: Sequence[str], stem: str) -> str:
    pieces = [*pieces, f"def replacement_func():\n    return {stem}\n"]
    imported = [name for name in ("math", "operator") if any(re.search(rf"\b{name}\.", piece) for piece in pieces)]
    imports = "".join(f"import {name}\n" for name in imported) + ("\n" if imported else "")
    return "\n\n".join([f'"""{doc}"""\n\n{imports}{head}', *pieces])


def pattern(part: Part) -> str:
    """Return the text of ``pattern`` and ``replacement_args``: the calls to match, and the wrapper's arguments."""
    names, printer = part.names, Python(part.names)
    arguments = [names[value] for value in part.arguments]
    body = "".join(f"    {names[node]} = {printer.call(node)}\n" for node in part.nodes)
    returned = ", ".join(names[node] for node in part.returned)
    handed = ", ".join(arguments) + ("," if len(arguments) == 1 else "")
    head, args = (wrapped_call(f"def {name}", arguments) + ":" for name in ("pattern", "replacement_args"))
    return f"{head}\n{body}    return {returned}\n\n\n{args}\n    return ({handed})\n"


def wrapped_call(head: str, items: Iterable[str]) -> str:
    """Return a call in Python on as many lines as it needs."""
    return wrapped(f"{head}(", items, ")", WIDTH)


def _ways(part: Part, columns: Sequence[Column], printed: Callable[[FusedKernel], Way]) -> list[Way]:
    """Return the ways for all matches, those with the most conditions on constants first."""
    tracer = Traces(part)

    def way(group: Sequence[Column]) -> Way:
        try:
            return printed(tracer.loops(group, other_sizes=True))
        except Unsupported:
            return printed(tracer.loops(group, other_sizes=False))

    ways = several(columns, way)
    ways = [way for place, way in enumerate(ways) if way not in ways[:place]]
    return sorted(ways, key=lambda way: -sum(condition.fixed for condition in way.conditions))


def _named(ways: Sequence[Way], stem: str) -> list[Way]:
    """Return ways with names for their kernels."""
    texts = list(dict.fromkeys(way.text for way in ways))
    result = []
    for way in ways:
        name = f"{stem}_kernel" + (f"_{texts.index(way.text) + 1}" if len(texts) > 1 else "")
        lines = [line.replace(KERNEL, name) for line in way.lines]
        result.append(replace(way, lines=lines, text=way.text.replace(KERNEL, name)))
    return result


def _wrappers(part: Part, ways: Sequence[Way], stem: str) -> list[str]:
    """Return the wrapper, and, if there are several ways, a function for each of them."""
    arguments = [part.names[value] for value in part.arguments]
    first = next((part.names[node] for node in part.tensors), "")
    what = f"{{{first}.dtype}} of {{tuple({first}.shape)}} with these arguments" if first else "these arguments"
    refusal = f'raise ValueError(f"{stem}: no kernel for {what}")'
    if len(ways) == 1:
        conditions = [f"{x.actual} != {x.expected}" for x in ways[0].conditions]
        guard = [*_if(conditions, "or"), f"    {refusal}"] if conditions else []
        return [_function(stem, arguments, [*guard, *ways[0].lines])]
    differing = {x for way in ways for x in way.layouts if any(x not in other.layouts for other in ways)}
    lines, functions = [], []
    for place, way in enumerate(ways, 1):
        required = [*way.conditions, *(x for x in way.layouts if x in differing)]
        texts = [x.actual if x.expected == "True" else f"{x.actual} == {x.expected}" for x in required]
        call = wrapped_call(f"return {stem}_{place}", arguments)
        lines += [*_if(texts, "and"), f"    {call}"] if texts else [call]
        functions.append(_function(f"{stem}_{place}", arguments, way.lines))
    return [_function(stem, arguments, [*lines, refusal]), *functions]


def _if(conditions: Sequence[str], word: str) -> list[str]:
    """Return a condition on one line, or on several."""
    line = f"if {f' {word} '.join(conditions)}:"
    if len(line) <= WIDTH:
        return [line]
    return ["if (", *(f"    {word + ' ' if place else ''}{text}" for place, text in enumerate(conditions)), "):"]


def _function(name: str, arguments: Sequence[str], lines: Sequence[str]) -> str:
    body = "".join(f"    {part}\n" for line in lines for part in line.split("\n"))
    return f"{wrapped_call(f'def {name}', arguments)}:\n{body}"


def _cpp(loops: FusedKernel) -> Way:
    printed = source(KERNEL, loops.nests, loops.trace.generic)
    branch = Branch(loops, printed.buffers)
    conditions = [*branch.dtypes(), *branch.literals(), *branch.shapes(printed.sizes)]
    operands = branch.operands(printed.buffers, printed.sizes, printed.numbers)
    for place, buffer in enumerate(printed.buffers):
        operands[place] += "" if branch.dense(buffer) else ".data_ptr()"
    operands += [branch.dtype(GENERIC)] if loops.trace.generic is not None else []
    launch = [wrapped_call(f"lib.{KERNEL}", operands)] if loops.nests else []
    lines = [*branch.laid_out(), *branch.allocated(), *launch, branch.returned()]
    return Way(conditions, branch.layouts(), lines, printed.function if loops.nests else "")


def _triton(loops: FusedKernel) -> Way:
    kernels = triton.triton_kernels(KERNEL, loops.nests, loops.trace.generic)
    buffers = dict.fromkeys(buffer for kernel in kernels for buffer in kernel.buffers)
    branch = Branch(loops, sorted(buffers, key=lambda buffer: buffer.number))
    like = next(iter(branch.inputs.values()), None)
    if like is None:
        raise Unsupported("a graph without a tensor argument in Triton")
    lines = [f"SPAN = 1024 if {like}.is_cuda else 1 << 16  # {NOTE}", *branch.laid_out()]
    lines += branch.allocated(f", device={like}.device")
    for kernel in kernels:
        operands = branch.operands(kernel.buffers, kernel.sizes, kernel.numbers)
        columns, blocks = branch.lengths.length(kernel.columns), ["BLOCK=SPAN"]
        grid = f"triton.cdiv({columns}, SPAN)"
        if kernel.rows is not None and kernel.long:
            grid, blocks = branch.lengths.length(kernel.rows), ["BLOCK=4 * SPAN", "HEIGHT=1"]
        elif kernel.rows is not None:
            lines += [f"width = triton.next_power_of_2({columns})", "height = max(1, SPAN // width)"]
            grid = f"triton.cdiv({branch.lengths.length(kernel.rows)}, height)"
            blocks = ["BLOCK=width", "HEIGHT=height"]
        lines.append(wrapped_call(f"{kernel.name}[({grid},)]", [*operands, *blocks]))
    sizes = [size for kernel in kernels for size in (*kernel.sizes, kernel.columns, kernel.rows or 1)]
    conditions = [*branch.dtypes(), *branch.literals(), *branch.shapes(sizes)]
    text = "\n\n".join(kernel.text for kernel in kernels)
    return Way(conditions, branch.layouts(), [*lines, branch.returned()], text)
