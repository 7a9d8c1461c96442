"""Eager's time by operator: each call of a graph is timed. It is no careful measurement."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.suite import batching
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs
from pytest_passbench.suite.opnames import op_name

SECONDS, LEAST_RUNS, MOST_RUNS = 3.0, 3, 50
"""The time to spend on runs of the graph, and the bounds of their number."""


def operator_times(task: Task, subgraph: Subgraph) -> dict[str, tuple[str, float]]:
    """Return for each variable of a graph's text its operator, and the least seconds that the call took."""
    module = build_graph(task.graphs[subgraph.graph], str(task.path))
    inputs = list(example_inputs(subgraph))
    least: dict[str, float] = {}
    runs, end = 0, time.perf_counter() + SECONDS
    while runs < LEAST_RUNS or (time.perf_counter() < end and runs < MOST_RUNS):
        timer = _CallTimer(module)
        with torch.no_grad(), batching.closing():
            timer.run(*(value.clone() for value in inputs))
        for name, seconds in timer.seconds.items():
            least[name] = min(seconds, least.get(name, seconds))
        runs += 1
    return {node.name: (op_name(node), least[node.name]) for node in module.graph.nodes if node.name in least}


class _CallTimer(fx.Interpreter):
    """An interpreter that notes the seconds of each call, without its own work around it."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=True)
        self.seconds: dict[str, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op not in ("call_function", "call_method"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        call = getattr(self, n.op)
        start = time.perf_counter()
        value = call(n.target, args, kwargs)
        self.seconds[n.name] = time.perf_counter() - start
        return value
