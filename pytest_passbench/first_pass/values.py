"""The forms of tensors: those of a graph's values as each subgraph has them, and those of a wrapper's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Interpreter

from pytest_passbench.core.task import Subgraph
from pytest_passbench.suite import batching
from pytest_passbench.suite.instantiate import example_inputs
from pytest_passbench.suite.limits import limited_memory


@dataclass(frozen=True)
class TensorForm:
    """The form of a tensor. Strides count elements."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def dense(self, order: Sequence[int]) -> bool:
        """Return True if the elements lie in one block, with the dimensions in this order, the last one densest."""
        expected = 1
        for d in reversed(order):
            if self.sizes[d] != 1 and self.strides[d] != expected:
                return False
            expected *= self.sizes[d]
        return True


def values_of(gm: GraphModule, subgraph: Subgraph) -> dict[int, TensorForm | None]:
    """Return the forms of a graph's nodes on a subgraph's inputs, by place; None for a value that is no tensor.

    Fake tensors carry no data. The graph runs on example inputs instead if a shape depends on values, or if it has a
    convolution, whose strides fake tensors get wrong.
    """
    with torch.no_grad(), batching.closing():
        if not any("conv" in str(node.target) for node in gm.graph.nodes):
            try:
                with FakeTensorMode(allow_non_fake_inputs=True):
                    inputs = [torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in subgraph.inputs]
                    return _ValueRecorder(gm).values(inputs)
            except Exception:  # a shape that depends on values, or an operator without a fake implementation
                pass
        with limited_memory():
            return _ValueRecorder(gm).values(example_inputs(subgraph))


class _ValueRecorder(Interpreter):
    """An interpreter that notes the form of each value."""

    def values(self, inputs: list[Any]) -> dict[int, TensorForm | None]:
        values: dict[int, TensorForm | None] = {}
        self.args_iter = iter(inputs)
        for place, node in enumerate(self.module.graph.nodes):
            self.env[node] = value = self.run_node(node)
            values[place] = _form(value)
        return values


def _form(value: Any) -> TensorForm | None:
    if isinstance(value, torch.Tensor):
        return TensorForm(value.dtype, tuple(value.shape), tuple(value.stride()))
    return None
