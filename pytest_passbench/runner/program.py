"""What an arm runs on one subgraph: eager, a baseline compiler, or the candidate's passes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ..protocol import Plan
from ..rewrite.load import load_passes
from ..rewrite.pipelines import Built, build, build_baseline
from ..suite.build import build_graph
from .audits import load
from .reference import in_float64


def prepare(plan: Plan, sample: list[torch.Tensor]) -> Built:
    """The callable of this arm, captured and compiled on private sample inputs.

    Raises PassError for a fault of a pass, whatever else for a fault in capturing or compiling.
    """
    module = build_graph(plan.source, plan.origin, device=plan.device)
    if plan.arm == "candidate":
        passes = load_passes(Path(plan.folder), list(plan.stems))
        load.phase("build")
        return build(plan.pipeline, module, passes, sample)
    if plan.arm == "float64":
        return build_baseline("eager", in_float64(module, sample), sample)
    return build_baseline("eager" if plan.arm == "eager" else f"{plan.arm}-baseline", module, sample)


def facts(built: Built) -> dict[str, Any]:
    """What the passes did, for the record."""
    return {
        "passes": [asdict(report) for report in built.reports],
        "operators": list(built.operators),
        "rewritten": built.rewritten,
    }
