"""Graphs as TorchInductor's own passes see them: ATen operators, after its decompositions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule


def decomposed(gm: GraphModule, example_inputs: Sequence[Any]) -> GraphModule:
    """Return a graph in TorchInductor's operators, traced on stand-ins of the example inputs."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    mode = next((value.fake_mode for value in example_inputs if isinstance(value, FakeTensor)), None)
    mode = mode or FakeTensorMode()
    inputs = [
        mode.from_tensor(value) if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) else value
        for value in example_inputs
    ]
    with mode, torch.no_grad():
        traced = traced_operators(lambda *values: gm.forward(*values), inputs)  # a method's ``self`` would be counted
    places = [node for node in traced.graph.nodes if node.op == "placeholder"]
    for node, original in zip(places, (n for n in gm.graph.nodes if n.op == "placeholder"), strict=True):
        node.target = original.target
    traced.recompile()
    return traced


def traced_operators(function: Callable[..., Any], inputs: Sequence[Any], *, symbolic: bool = False) -> GraphModule:
    """Return the graph of a function in ATen operators, after TorchInductor's decompositions.

    With ``symbolic`` the sizes of the inputs are symbols. Casts are calls of ``to``, which passes know.
    """
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = "symbolic" if symbolic else "real"
    module = make_fx(function, select_decomp_table(), tracing_mode=mode)(*inputs)
    for node in list(module.graph.nodes):
        if node.target is torch.ops.prims.convert_element_type.default:
            with module.graph.inserting_before(node):
                cast = module.graph.call_method("to", (node.args[0], node.args[1]))
            node.replace_all_uses_with(cast)
            module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module
