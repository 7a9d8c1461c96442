"""The program of an arm for a subgraph: eager, a baseline compiler, or the candidate's passes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from pytest_passbench.core.record import PassReport
from pytest_passbench.protocol import Order
from pytest_passbench.rewrite.passes import Kernels, Pass
from pytest_passbench.rewrite.pipelines import BuiltGraph, build, build_baseline
from pytest_passbench.runner.float64 import in_float64
from pytest_passbench.suite.build import build_graph


def prepare(order: Order, sample: list[torch.Tensor], kernels: Kernels) -> BuiltGraph:
    """Return the callable of this arm, captured and compiled on private sample inputs.

    Raises PassError for a fault of a pass, and passes on all other exceptions of capturing and compiling.
    """
    module = build_graph(order.source, order.origin, device=order.device)
    if order.arm == "candidate":
        passes = [Pass.from_data(item) for item in order.passes]
        return build(order.pipeline, module, passes, sample, kernels)
    if order.arm == "float64":
        return build_baseline("eager", in_float64(module, sample), sample)
    return build_baseline("eager" if order.arm == "eager" else f"{order.arm}-baseline", module, sample)


def _as_data(report: PassReport) -> dict[str, Any]:
    """Return a report as data, but for what the judge knows by itself."""
    return {name: value for name, value in asdict(report).items() if name not in ("untuned", "plan")}


def facts(built: BuiltGraph) -> dict[str, Any]:
    """Return the report of the passes, for the record, as JSON-ready data."""
    return {
        "passes": [_as_data(report) for report in built.reports],
        "operators": list(built.operators),
        "rewritten": built.rewritten,
        "working": sorted(built.working),
        "places": [[name, list(nodes)] for name, nodes in built.places],
    }
