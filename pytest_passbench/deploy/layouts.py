"""The layout of kernels' results in memory, in a graph whose later operators may read it."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

from pytest_passbench.rewrite.passes import Kernel


def keep_layouts(module: GraphModule) -> None:
    """Have each kernel of a rewritten graph give results with eager's strides.

    ``as_strided`` and ``view`` depend on them. A result that has others is copied. The graph's nodes have the values
    that :func:`~pytest_passbench.rewrite.meta.record_values` recorded.
    """
    for node in module.graph.nodes:
        if "passbench_pass" in node.meta:
            node.target = _in_layout(node.target, node.meta["passbench"])
    module.recompile()


def _in_layout(kernel: Kernel, eager: Any) -> Kernel:
    if isinstance(eager, torch.Tensor):
        layout = _layout(eager)
        return lambda *tensors: _laid_out(kernel(*tensors), layout)
    if not isinstance(eager, (tuple, list)):
        return kernel
    layouts = [_layout(value) for value in eager]
    return lambda *tensors: tuple(map(_laid_out, kernel(*tensors), layouts))


def _layout(value: Any) -> tuple[torch.Size, tuple[int, ...]] | None:
    """Return the shape and the strides of a value. Return None if a copy cannot have them.

    Such a value is no tensor, or elements of it share memory, as those of an expanded tensor do.
    """
    if not isinstance(value, torch.Tensor) or torch._debug_has_internal_overlap(value) == 1:
        return None
    return value.shape, value.stride()


def _laid_out(value: torch.Tensor, layout: tuple[torch.Size, tuple[int, ...]] | None) -> torch.Tensor:
    if layout is None or value.stride() == layout[1] or value.shape != layout[0]:
        return value
    return torch.empty_strided(*layout, dtype=value.dtype, device=value.device).copy_(value)
