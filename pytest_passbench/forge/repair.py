"""The inputs of an instance that pass every rule: some of those that were recorded are widened, and made larger.

A relu that never sees 6, or a bias that moves nothing, is reached by scaling a weight or an activation before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from torch import fx

from pytest_passbench.core.task import TensorSpec
from pytest_passbench.forge.input_records import condition, is_float, scaled
from pytest_passbench.forge.instances import Instance
from pytest_passbench.forge.probe import Probe
from pytest_passbench.forge.rules import complaints

REPAIRABLE = ("idle_inputs", "flat_clamps", "idle_activations", "removable", "null_answers")
ACTIVATION_FACTORS = (1.0, 8.0)
"""Factors for all activations, tried in turn until no null answer passes below t = 0."""
FACTORS = (2.0, 4.0, 16.0, 0.25, 64.0)
"""By how much a single input is scaled, in the order in which it is tried."""
MAX_STEPS = 5
"""The most inputs that are scaled for one subgraph."""
MAX_MAGNITUDE = 1e4
"""No mean or deviation is scaled beyond this: float16 has no larger squares."""


def curated(instance: Instance) -> tuple[Instance | None, list[str]]:
    """Return the instance with inputs that pass every rule, or None and the last complaints."""
    best, last = None, ["runs: nothing was tried"]
    for factor in ACTIVATION_FACTORS:
        inputs, changed = condition(instance.inputs, factor)
        meta = (("widened", True),) if changed else ()
        attempt = replace(instance, inputs=inputs, meta=meta)
        probe = attempt.probe()
        last = complaints(probe)
        if any(not text.startswith(REPAIRABLE) for text in last):
            return best, last
        if not last:
            attempt = replace(attempt, meta=(*meta, ("null_from", probe.null_from)))
            if probe.null_from >= 0:
                return attempt, []
            best = best or attempt
    return (best, last) if best is not None else repaired(instance)


def repaired(instance: Instance) -> tuple[Instance | None, list[str]]:
    """Return the instance with single inputs scaled until it passes every rule, or None and the first complaints."""
    trial = replace(instance, inputs=condition(instance.inputs)[0], meta=())
    left = first = complaints(trial.probe())
    for _ in range(MAX_STEPS):
        if not left or not all(text.startswith(REPAIRABLE) for text in left):
            break
        trials = (with_scaled(trial, *change) for change in candidates(trial.probe(), left[0]))
        judged = ((other, complaints(other.probe())) for other in trials)
        better = next((pair for pair in judged if len(pair[1]) < len(left)), None)
        if better is None:
            return None, first
        trial, left = better
    if left:
        return None, first
    return replace(trial, meta=(("widened", True), ("null_from", trial.probe().null_from))), []


def with_scaled(instance: Instance, place: int, factor: float) -> Instance:
    """Return the instance with an input scaled."""
    inputs = list(instance.inputs)
    inputs[place] = rounded(scaled(inputs[place], factor))
    return replace(instance, inputs=tuple(inputs))


def rounded(spec: TensorSpec) -> TensorSpec:
    """Return the input with statistics of six digits."""
    numbers = (spec.mean, spec.std, spec.min, spec.max)
    mean, std, low, high = (None if number is None else float(f"{number:.6g}") for number in numbers)
    return replace(spec, mean=mean, std=std, min=low, max=high)


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
