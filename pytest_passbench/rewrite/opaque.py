"""Make kernel calls opaque to a compiler: each becomes a custom operator whose outputs' metadata is known.

TorchInductor then plans around the call without looking into it. The outputs have the shapes, dtypes and strides of
the replaced operators. Outputs of other strides are copied, and other shapes or dtypes raise RuntimeError. Outputs
that share memory with an input are copied too, because the compiler reuses memory and assumes that they share none.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import torch
from torch.fx import GraphModule, Node

from pytest_passbench.rewrite.meta import storages
from pytest_passbench.rewrite.passes import PassError

_LIBRARY = torch.library.Library("passbench_runtime", "DEF")
_COUNT = itertools.count()


def opaque(gm: GraphModule) -> GraphModule:
    """Turn each kernel call of the graph into an operator, in place, and return the graph.

    Raises PassError for an output that is not a tensor.
    """
    for node in list(gm.graph.nodes):
        if "passbench_pass" in node.meta:
            _replace(gm, node)
    gm.graph.lint()
    gm.recompile()
    return gm


def _replace(gm: GraphModule, node: Node) -> None:
    values = node.meta["passbench"]
    single = isinstance(values, torch.Tensor)
    outputs = (values,) if single else tuple(values)
    if not all(isinstance(value, torch.Tensor) for value in outputs):
        raise PassError(node.meta["passbench_pass"], "the inductor pipeline needs every output to be a tensor")
    operator = _register(node, outputs, single)
    with gm.graph.inserting_before(node):
        new = gm.graph.call_function(operator, node.args, {})
    new.meta.update({key: value for key, value in node.meta.items() if key.startswith("passbench")})
    node.replace_all_uses_with(new)
    gm.graph.erase_node(node)


def _register(node: Node, outputs: tuple[Any, ...], single: bool) -> Any:
    layouts = [(tuple(v.shape), tuple(v.stride()), v.dtype, v.device) for v in outputs]
    # Inductor's cache on disk knows an operator by its name alone, so the name has a digest of the layouts.
    name = f"call_{next(_COUNT)}_{hashlib.sha256(repr(layouts).encode()).hexdigest()[:16]}"
    inputs = ", ".join(f"Tensor a{i}" for i in range(len(node.args)))
    returned = "Tensor" if single else "(" + ", ".join("Tensor" for _ in outputs) + ")"
    # Inputs must reach the kernel with the strides that they have in the graph.
    _LIBRARY.define(f"{name}({inputs}) -> {returned}", tags=(torch.Tag.needs_exact_strides,))
    label = node.meta["passbench_pass"]
    kernel = node.target

    def run(*tensors: Any) -> Any:
        result = kernel(*tensors)
        values = (result,) if single else result
        checked = tuple(_as(v, layout, tensors, label) for v, layout in zip(values, layouts, strict=True))
        return checked[0] if single else checked

    def fake(*_: Any) -> Any:
        tensors = tuple(torch.empty_strided(s, st, dtype=dt, device=dev) for s, st, dt, dev in layouts)
        return tensors[0] if single else tensors

    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"passbench_runtime::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.passbench_runtime, name).default


def _as(value: Any, layout: tuple[Any, ...], inputs: tuple[Any, ...], label: str) -> Any:
    """Return an output in its layout and in memory of its own. Raises RuntimeError for another shape or dtype."""
    shape, stride, dtype, device = layout
    if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape or value.dtype != dtype:
        actual = f"{tuple(value.shape)} {value.dtype}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise RuntimeError(f"pass {label}: the kernel wrapper returned {actual}, the graph needs {shape} {dtype}")
    if tuple(value.stride()) == stride and not storages(value) & storages(inputs):
        return value
    return with_strides(value.to(device), stride)


def with_strides(value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """Return a copy of a tensor that has these strides."""
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)
