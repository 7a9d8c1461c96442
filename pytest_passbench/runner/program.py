"""The program of an arm for a subgraph: eager, a baseline compiler, the candidate's passes, or the graph in float64.

The outputs in float64 show the errors of eager and of the candidate. The program ``roundings`` searches for
the cause of a wrong answer.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from pytest_passbench.core.record import PassReport
from pytest_passbench.protocol import BASELINE, Order
from pytest_passbench.rewrite.passes import Kernels, passes_of
from pytest_passbench.rewrite.pipelines import BuiltGraph, build, build_baseline
from pytest_passbench.runner.roundings import rounding_search
from pytest_passbench.suite.build import build_graph

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CASTS = ("float", "half", "bfloat16")


def prepare(order: Order, sample: list[torch.Tensor], kernels: Kernels) -> BuiltGraph:
    """Return the callable of this arm, captured and compiled on private sample inputs.

    Raises PassError for a fault of a pass, and passes on all other exceptions of capturing and compiling.
    """
    module = build_graph(order.source, order.origin, device=order.device)
    if order.arm == "candidate":
        return build(order.pipeline, module, passes_of(order.passes), sample, kernels)
    if order.arm == "roundings":
        return BuiltGraph(rounding_search(module))
    if order.arm == "float64":
        return build_baseline("eager", in_float64(module, sample), sample)
    return build_baseline("eager" if order.arm == "eager" else order.arm + BASELINE, module, sample)


def report_data(report: PassReport) -> dict[str, Any]:
    """Return a report as data, without the fields that the judge itself fills in."""
    return {name: value for name, value in asdict(report).items() if name not in ("untuned", "plan")}


def facts(built: BuiltGraph) -> dict[str, Any]:
    """Return the report of the passes, for the record, as JSON-ready data."""
    return {
        "passes": [report_data(report) for report in built.reports],
        "working": sorted(built.working),
        "places": [[name, list(nodes)] for name, nodes in built.places],
        **({} if built.generated is None else {"generated": built.generated.to_data()}),
    }


def in_float64(module: GraphModule, sample: list[torch.Tensor]) -> GraphModule:
    """Change ``module`` so that it computes in float64, and return it.

    It widens its floating-point inputs (``sample`` has their dtypes) and all casts to a narrower type.
    """
    nodes = list(module.graph.nodes)
    for node in nodes:
        node.args, node.kwargs = map_aggregate(node.args, _widen), map_aggregate(node.kwargs, _widen)
        if node.op == "call_method" and node.target in _CASTS:
            node.target = "double"
    places = [node for node in nodes if node.op == "placeholder"]
    for node, value in zip(places, sample, strict=True):
        if value.dtype in _NARROW:
            _widen_input(module, node)
    module.recompile()
    return module


def _widen_input(module: GraphModule, place: Node) -> None:
    with module.graph.inserting_after(place):
        wide = module.graph.call_method("double", (place,))
    place.replace_all_uses_with(wide, delete_user_cb=lambda user: user is not wide)


def _widen(value: Any) -> Any:
    if isinstance(value, Node):
        return value
    return torch.float64 if value in _NARROW else value
