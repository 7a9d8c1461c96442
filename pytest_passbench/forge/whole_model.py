"""A whole model as a task, a subgraph for each size with the weights as inputs, and eager's time for each call."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.forge.capture import Captured, capture, dtype_name
from pytest_passbench.forge.clean import clean, lift
from pytest_passbench.forge.decompose import readable
from pytest_passbench.forge.input_records import widen
from pytest_passbench.forge.models import ModelCase
from pytest_passbench.forge.user_model import as_user_error
from pytest_passbench.suite import batching
from pytest_passbench.suite.build import build_graph, check_graphs
from pytest_passbench.suite.instantiate import example_inputs
from pytest_passbench.suite.opnames import is_random, op_name, operator_sequence
from pytest_passbench.suite.printing import to_source
from pytest_passbench.suite.published import identifier

PARTS = "mend the breaks, or judge passes on the model's parts: `passbench forge` makes tasks of them"
SECONDS, LEAST_RUNS, MOST_RUNS = 3.0, 3, 50
"""The time to spend on runs of the graph, and the bounds of their number."""


def whole_model(case: ModelCase, remedy: str | None = None) -> tuple[Task, list[str]]:
    """Return a model as a task, with a subgraph for each of its sizes, and the operators that no task can have.

    The results of those operators are inputs instead.
    Inputs and weights have the statistics of one forward pass, and a spread if they had none. Raises UserError,
    with ``remedy``, for a model that fails, and for one that ``torch.compile`` captures in several graphs or none.
    """
    torch._dynamo.utils.counters.clear()
    with as_user_error(case, remedy):
        model = case.build()
        captures = [_only(case, capture(model, case.inputs(model, size))) for size in case.variants]
    left_out = dict.fromkeys(name for captured in captures for name in _cleaned(captured))
    drawn = next((node for captured in captures for node in captured.module.graph.nodes if is_random(node)), None)
    if drawn is not None:
        what = f"it draws random numbers ({op_name(drawn)}), so no two answers agree"
        raise UserError(what, where=case.name, remedy="give the random values to forward as an argument")
    return _task(case, captures), list(left_out)


def _only(case: ModelCase, captures: list[Captured]) -> Captured:
    """Return the one graph of a model. Raises UserError if there are several or none, or if it lacks a part."""
    breaks = torch._dynamo.utils.counters["graph_break"]
    if not any(node.op.startswith("call_") for captured in captures for node in captured.module.graph.nodes):
        remedy = "name a module that computes with tensors, and without torch.compiler.disable"
        raise UserError("torch.compile captures no operator of it", where=case.name, remedy=remedy)
    if len(captures) == 1 and not breaks:
        return captures[0]
    why = line(next(iter(breaks), "").partition("\n")[0], 200)
    parts = "does not capture all of it" if len(captures) == 1 else f"breaks it into {len(captures)} graphs"
    raise UserError(
        f"torch.compile {parts}: {why}" if why else f"torch.compile {parts}", where=case.name, remedy=PARTS
    )


def _cleaned(captured: Captured) -> list[str]:
    """Clean a graph in place. Return the names of the operators whose results became inputs."""
    clean(captured.module)
    before = {node.name: op_name(node) for node in captured.module.graph.nodes if node.op.startswith("call_")}
    lift(captured)
    clean(captured.module)
    for node in captured.module.graph.find_nodes(op="placeholder"):
        if not node.users:
            captured.module.graph.erase_node(node)
    lifted = [node.name.removesuffix("_value") for node in captured.module.graph.find_nodes(op="placeholder")]
    return [before[name] for name in lifted if name in before]


def _task(case: ModelCase, captures: list[Captured]) -> Task:
    sources = [to_source(captured.module) for captured in captures]
    graphs = {source: f"g{number}" for number, source in enumerate(dict.fromkeys(sources))}
    subgraphs = tuple(
        _subgraph(case, number, captured, graphs[source])
        for number, (captured, source) in enumerate(zip(captures, sources, strict=True))
    )
    header = TaskHeader(
        id=identifier(case.name),
        ops=operator_sequence(captures[0].module.graph.nodes),
        sources=(case.name,),
        tags=(),
        subgraphs=len(subgraphs),
        modality=case.modality,
    )
    task = Task(header, Path(case.name), {key: source for source, key in graphs.items()}, subgraphs)
    check_graphs(task)
    return task


def _subgraph(case: ModelCase, number: int, captured: Captured, graph: str) -> Subgraph:
    nodes = captured.module.graph.find_nodes(op="placeholder")
    inputs = tuple(_spec(f"in_{place}", node, captured) for place, node in enumerate(nodes))
    sizes: dict[str, int] = {}
    for spec in inputs:
        sizes[spec.dtype] = sizes.get(spec.dtype, 0) + math.prod(spec.shape)
    floats = {dtype: size for dtype, size in sizes.items() if "float" in dtype} or sizes
    dtype = max(floats, key=floats.__getitem__, default="float32")
    return Subgraph(case.variants[number].label, graph, dtype, inputs, case.note)


def _spec(name: str, node: fx.Node, captured: Captured) -> TensorSpec:
    """Return an input as the judge draws it. A single number, such as an epsilon, keeps its value."""
    value = captured.values.get(node.name)
    if value is None:
        example = node.meta["example_value"]
        value = TensorSpec(name, tuple(example.shape), dtype_name(example))
    spec = replace(value, name=name, original_name=readable(node.name, node.op))
    if math.prod(spec.shape) == 1 and spec.mean is not None and math.isfinite(spec.mean):
        return replace(spec, mean=None, std=None, min=None, max=None, data=(spec.mean,))
    return widen(spec)


def operator_times(task: Task, subgraph: Subgraph) -> dict[str, tuple[str, float]]:
    """Return for each variable of a graph's text its operator, and the least seconds that eager's call took.

    The seconds show which operators take most of a model's time. They are no careful measurement.
    """
    module = build_graph(task.graphs[subgraph.graph], str(task.path))
    inputs = example_inputs(subgraph)
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
