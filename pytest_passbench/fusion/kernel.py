"""A computation as one fused kernel: a C++ function from nests of loops, its arguments, and its launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from pytest_passbench.fusion.columns import Size, SizedNumber
from pytest_passbench.fusion.columns import size as size_of
from pytest_passbench.fusion.cpp import RESERVED, Printer
from pytest_passbench.fusion.ir import Buffer, Nest, Trace, below, c_type
from pytest_passbench.fusion.prelude import prelude
from pytest_passbench.fusion.products import Product
from pytest_passbench.fusion.schedule import schedule
from pytest_passbench.fusion.trace import trace
from pytest_passbench.kernels import cpp
from pytest_passbench.plans.values import tensors_in

FLAGS = ("-ffp-contract=off",)
"""The compiler's flags: a fused multiplication is written where eager has one."""
LITERAL = 8
"""The greatest size that the text has as a literal, so that the compiler unrolls short loops."""
WIDTH = 110


@dataclass(frozen=True)
class Kernel:
    """A C++ function for tensors of the shapes, strides and dtypes that it was made for.

    ``arguments`` are the buffers that its parameters point to. Those that are no inputs are results, or values in
    between. ``sizes`` are its further arguments: computations that differ in sizes alone mostly have one ``source``.
    ``trace`` says where the results lie in the buffers.
    """

    source: str
    name: str
    arguments: tuple[Buffer, ...]
    sizes: tuple[int, ...]
    trace: Trace

    @cached_property
    def _function(self) -> Any:
        return getattr(cpp.load(self.source, flags=FLAGS), self.name)

    def __call__(self, *values: Any) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Return what the computation returns, from one launch. Raises ValueError for inputs of another form."""
        inputs = tensors_in(values)
        for place, (tensor, value) in enumerate(zip(inputs, self.trace.inputs, strict=True)):
            if (tuple(tensor.shape), tensor.stride(), tensor.dtype) != (value.sizes, value.strides, value.dtype):
                raise ValueError(f"{self.name} is for input {place} of {value.sizes}, {value.strides}, {value.dtype}")
        memory = {value.buffer: tensor for value, tensor in zip(self.trace.inputs, inputs, strict=True)}
        for buffer in (*self.arguments, *(value.buffer for value in self.trace.results)):
            if buffer not in memory:
                memory[buffer] = torch.empty_strided(buffer.sizes, buffer.strides, dtype=buffer.dtype)
        if self.arguments:
            self._function(*(memory[buffer].data_ptr() for buffer in self.arguments), *self.sizes)
        results = [
            memory[v.buffer].as_strided(v.sizes, v.strides, memory[v.buffer].storage_offset() + v.offset)
            for v in self.trace.results
        ]
        return results[0] if self.trace.single else tuple(results)


def kernel(
    function: Callable[..., Any], inputs: Sequence[Any], name: str = "fused", overwrite: bool = False
) -> Kernel:
    """Return one kernel for a function or graph module on tensors like ``inputs``, whose values are not read.

    An input is a tensor, a number, or a tuple of these. With ``overwrite``, what the function writes to an input is
    in its result alone. Raises Unsupported if there is none, with the name of the operator that has no rule.
    """
    recorded = trace(function, inputs, overwrite)
    printed = source(name, schedule(recorded))
    return Kernel(printed.text, name, printed.buffers, printed.sizes, recorded)


@dataclass(frozen=True)
class Source:
    """A C++ ``function``. Its parameters point to ``buffers``; then come ``sizes``, and further ``numbers``.

    With a generic dtype, the text has a template ``NAME_loop`` of the type T, and a function NAME that calls it. The
    last argument of NAME is the ``pb::dtype``.
    """

    function: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[int, ...]
    numbers: tuple[SizedNumber, ...] = ()

    @property
    def text(self) -> str:
        """The text to compile: what the function needs, and the function."""
        return f"{prelude(self.function)}\n{self.function}"


def source(name: str, steps: Sequence[Nest | Product], generic: torch.dtype | None = None) -> Source:
    """Return the C++ text of a function that runs nests and products. One text serves for other sizes."""
    nests = [step for step in steps if isinstance(step, Nest)]
    products = [step for step in steps if isinstance(step, Product)]
    written = {store.access.buffer for nest in nests for store in nest.stores} | {each.result for each in products}
    read = {x.access.buffer for nest in nests for x in below(nest.stores) if x.access}
    read.update(buffer for each in products for buffer in each.buffers)
    buffers = sorted((buffer for buffer in written | read if buffer), key=lambda buffer: buffer.number)
    names = pointers(buffers)
    lines = [line for step in steps for line in
             ([step.line(names)] if isinstance(step, Product) else Printer(step, names, generic).text())]  # fmt: skip
    if len(steps) == len(nests) == 1:  # only one of several nests needs a block of its own
        lines = [line.removeprefix("  ") for line in lines[1:-1]]
    body, sizes, numbers = with_parameters("\n".join(f"  {line}" for line in lines))
    types = {b: f"{'' if b in written else 'const '}{c_type(b.dtype, generic)}*" for b in buffers}
    scalars = [*(f"int64_t {n}" for n in sizes.values()), *(f"double {c}" for c in numbers.values())]
    parameters = [*(f"{types[b]} {names[b]}" for b in buffers), *scalars]
    if generic is None:
        text = _function(f'extern "C" void {name}', parameters, body)
    else:
        outer = [f"{'pb::out' if b in written else 'pb::in'} {names[b]}" if b.dtype == generic else parameter
                 for b, parameter in zip(buffers, parameters, strict=False)]  # fmt: skip
        call = wrapped(f"    {name}_loop<decltype(t)>(", [*names.values(), *sizes.values(), *numbers.values()], ");")
        dispatch = f"  pb::dispatch(dtype, [&](auto t) {{\n{call}\n  }});"
        text = _function(f"template <class T> void {name}_loop", parameters, body)
        text += _function(f'extern "C" void {name}', [*outer, *scalars, "pb::dtype dtype"], dispatch)
    return Source(text, tuple(buffers), tuple(sizes), tuple(numbers))


def _function(head: str, parameters: Sequence[str], body: str) -> str:
    return f"{wrapped(f'{head}(', parameters, ') {')}\n{body}\n}}\n"


def wrapped(head: str, items: Iterable[str], tail: str, width: int = WIDTH) -> str:
    """Return a list of parameters or operands on as many lines of at most ``width`` characters as it needs."""
    texts, lines = list(items), [head]
    for place, item in enumerate(texts):
        text = item + (tail if place == len(texts) - 1 else ", ")
        if len(lines[-1] + text.rstrip()) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("    ")
        lines[-1] += text
    return "\n".join(lines) if texts else head + tail


def pointers(buffers: Sequence[Buffer]) -> dict[Buffer, str]:
    """Return a different name for each pointer: that of the graph's value if it has one."""
    result: dict[Buffer, str] = {}
    for b in buffers:
        reserved = {*result.values(), *RESERVED}
        plain = f"{'in' if b.argument is not None else 'out'}_{b.number}"
        name = f"{b.name}_out" if b.name and b.argument is None else b.name
        result[b] = name if name and name not in reserved else plain
    return result


def with_parameters(text: str) -> tuple[str, dict[int, str], dict[SizedNumber, str]]:
    """Return a text with parameters in place of its marks, and the parameters' names by size and by number.

    They are n0, n1, ... for sizes, of which small ones become literals, and c0, c1, ... for numbers that differ.
    """
    sizes, numbers = dict[int, str](), dict[SizedNumber, str]()

    def size_name(mark: re.Match[str]) -> str:
        size = size_of(list(map(int, mark[1].split("|"))))
        literal = not isinstance(size, Size) and abs(size) <= LITERAL and not mark[2]
        return mark[1] if literal else sizes.setdefault(size, f"n{len(sizes)}")

    def number_name(mark: re.Match[str]) -> str:
        return numbers.setdefault(SizedNumber(list(map(float, mark[1].split("|")))), f"c{len(numbers)}")

    text = re.sub(r"@(-?\d+(?:\|-?\d+)*)(!?)@", size_name, text)
    return re.sub(r"#([-+.\w]+(?:\|[-+.\w]+)+)#", number_name, text), sizes, numbers
