"""The repair of inputs on which a graph is tested only in part: some of them are made larger.

A relu that never sees 6, or a bias that moves nothing, is reached by scaling a weight or an activation before it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from torch import fx

from pytest_passbench.core.task import Subgraph, Task, TensorSpec
from pytest_passbench.forge.input_records import is_float, scaled
from pytest_passbench.forge.probe import Probe
from pytest_passbench.forge.rules import complaints

REPAIRABLE = ("idle_inputs", "flat_clamps", "idle_activations", "removable", "null_answers")
FACTORS = (2.0, 4.0, 16.0, 0.25, 64.0)
"""By how much an input is scaled, in the order in which it is tried."""
MAX_STEPS = 5
"""The most inputs that are scaled for one subgraph."""
MAX_MAGNITUDE = 1e4
"""No mean or deviation is scaled beyond this: float16 has no larger squares."""


def repaired(task: Task, subgraph: Subgraph) -> Subgraph | None:
    """Return the subgraph with inputs that pass every rule, some of them scaled; None if no scaling does that."""
    left = complaints(Probe(task, subgraph))
    for _ in range(MAX_STEPS):
        if not left or not all(text.startswith(REPAIRABLE) for text in left):
            break
        trials = (changed(subgraph, *change) for change in candidates(Probe(task, subgraph), left[0]))
        judged = ((trial, complaints(Probe(task, trial))) for trial in trials)
        better = next((pair for pair in judged if len(pair[1]) < len(left)), None)
        if better is None:
            return None
        subgraph, left = better
    return None if left else subgraph


def changed(subgraph: Subgraph, place: int, factor: float) -> Subgraph:
    """Return the subgraph with an input scaled, marked as widened."""
    inputs = list(subgraph.inputs)
    inputs[place] = rounded(scaled(inputs[place], factor))
    return dataclasses.replace(subgraph, inputs=tuple(inputs), meta={"widened": True, **subgraph.meta})


def rounded(spec: TensorSpec) -> TensorSpec:
    """Return the input with statistics of six digits."""
    numbers = (spec.mean, spec.std, spec.min, spec.max)
    mean, std, low, high = (None if number is None else float(f"{number:.6g}") for number in numbers)
    return dataclasses.replace(spec, mean=mean, std=std, min=low, max=high)


def candidates(probe: Probe, complaint: str) -> Iterator[tuple[int, float]]:
    """Yield the number of an input and its factor: those nearest to what is complained about, weights first."""
    nodes = [node for node in probe.pure.graph.nodes if node.op == "placeholder"]
    near = [node for node in _upstream(probe, complaint) if node in nodes]
    specs = {node: probe.subgraph.inputs[place] for place, node in enumerate(nodes)}
    ranked = sorted(near, key=lambda node: not str(specs[node].original_name).endswith("weight"))
    for factor in FACTORS:
        for node in ranked:
            spec = specs[node]
            size = max(abs(spec.mean or 0.0), spec.std or 0.0) * factor
            if is_float(spec) and spec.data is None and size < MAX_MAGNITUDE:
                yield nodes.index(node), factor


def _upstream(probe: Probe, complaint: str) -> list[fx.Node]:
    """Return the node that a complaint names, and its sources, the nearest first; all inputs if it names none."""
    named = re.search(r"\b((?:tmp|in)_\d+)\b", complaint)
    start = [node for node in probe.pure.graph.nodes if named and node.name == named[1]]
    if not start:
        return [node for node in probe.pure.graph.nodes if node.op == "placeholder"]
    order = list(start)
    for node in order:
        order += [source for source in node.all_input_nodes if source not in order]
    if start[0].op == "placeholder":  # what it is swamped by, or drowned in, may be at fault as well
        order += [node for node in probe.pure.graph.nodes if node.op == "placeholder" and node not in order]
    return order
