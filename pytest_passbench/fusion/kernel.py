"""A computation as one fused kernel: its C++ text, what it is called with, and its launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from pytest_passbench.fusion.function import source
from pytest_passbench.fusion.ir import Buffer, Trace
from pytest_passbench.fusion.schedule import schedule
from pytest_passbench.fusion.trace import trace
from pytest_passbench.kernels import cpp
from pytest_passbench.plans.values import tensors_in

FLAGS = ("-ffp-contract=off",)
"""The compiler's flags: a fused multiplication is written where eager has one."""


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
    def _function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(cpp.load(self.source, flags=FLAGS), self.name)
        return function

    def build(self) -> None:
        """Compile the kernel now. Raises CompileError."""
        cpp.load(self.source, flags=FLAGS).build()

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
    in its result alone. Raises Unsupported, with the operator that has no rule, if there is none.
    """
    recorded = trace(function, inputs, overwrite)
    printed = source(name, schedule(recorded))
    return Kernel(printed.text, name, printed.buffers, printed.sizes, recorded)
