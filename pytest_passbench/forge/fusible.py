"""The number of kernels that TorchInductor would make of a graph, from its lowering and scheduler; nothing is
compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from pytest_passbench.forge.capture import ValueStats
from pytest_passbench.forge.decompose import Piece, cut


def kernel_count(module: fx.GraphModule, inputs: Sequence[ValueStats]) -> int:
    """Return the number of kernels (extern calls included) after fusion. Raises any exception of the lowering."""
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import NopKernelSchedulerNode, Scheduler
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = FakeTensorMode()
    with mode, torch.no_grad():
        values = [torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in inputs]
        lowered = make_fx(module, decomposition_table=select_decomp_table(), tracing_mode="real")(*values)
        graph: Any = GraphLowering(lowered, example_inputs=values)
        with V.set_graph_handler(graph), V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
            graph.run(*values)
            scheduler: Any = Scheduler(graph.operations)
    return sum(not isinstance(node, NopKernelSchedulerNode) for node in scheduler.nodes)


def fusible_runs(run: Sequence[fx.Node], values: dict[str, ValueStats]) -> list[tuple[int, int]]:
    """Return ranges of at least two operators of ``run`` that add no kernel, end to end.

    Each range grows until the next operator would raise the number of kernels. It is then cut back to the longest
    part that can be a graph of its own.
    """
    ranges, start = [], 0
    while start < len(run) - 1:
        end = last = start
        count: int | None = None
        while end < len(run):
            piece = cut(run[start : end + 1], values)
            wider = None if piece is None else _count(piece)
            if wider is not None and count is not None and wider > max(count, 1):
                break
            end, count = end + 1, wider if wider is not None else count
            last = end if piece is not None else last
        if last - start >= 2:
            ranges.append((start, last))
        start = max(last, start + 1)
    return ranges


def _count(piece: Piece) -> int | None:
    try:
        return kernel_count(piece.module, piece.inputs)
    except Exception:  # not every operator has a lowering on fake inputs
        return None
