"""From an operator sequence to a task file: its places in a corpus are drawn, checked by every rule, and written.

The corpus is one model's or that of many. A task has one operator sequence, with many sources, dtypes and shapes.
Recorded inputs are widened and scaled until they pass every rule. If a relu's input never exceeds 6, or a bias
changes no output, a weight or an activation before it is scaled.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import fx

from pytest_passbench.core.escape import line
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.task import Task, TaskHeader
from pytest_passbench.forge.corpus import Corpus
from pytest_passbench.forge.decompose import calls, cut
from pytest_passbench.forge.input_records import condition, is_float, scaled, with_statistics
from pytest_passbench.forge.instances import DTYPES, Instance, instances
from pytest_passbench.forge.normal_form import digest
from pytest_passbench.forge.probe import (
    MAX_EXCESS_SECONDS,
    MAX_SECONDS,
    MIN_SECONDS,
    Probe,
    eager_seconds,
    suits,
    too_long,
)
from pytest_passbench.forge.rules import complaints
from pytest_passbench.forge.windows import Ops, Window, matching, siblings
from pytest_passbench.suite.published import distinct, write_sample
from pytest_passbench.suite.taskfile import write_task

MIN_ELEMENTS, MAX_ELEMENTS = 64, 3_000_000
"""Bounds of a subgraph's input elements."""
MAX_WINDOWS = 40
"""The most places of a sequence from which subgraphs are drawn."""
KNOWN_DTYPES = {"float32", "float64", "int64", "int32", "bool", "uint8", "int16", "int8"}
REPAIRABLE = ("idle_inputs", "flat_clamps", "idle_activations", "removable", "null_answers")
ACTIVATION_FACTORS = (1.0, 8.0)
"""Factors for all activations, tried in turn until no null answer passes below t = 0."""
FACTORS = (2.0, 4.0, 16.0, 0.25, 64.0)
"""The factors by which a single input is scaled, in the order in which they are tried."""
MAX_STEPS = 5
"""The most inputs that are scaled for one subgraph."""
MAX_MAGNITUDE = 1e4
"""Means and standard deviations are scaled to less than this: float16 has no number above 65,504."""


@dataclass(frozen=True)
class CuratedInstances:
    """The instances of a task, why others were refused (``rule: text``), and how often the sequence occurs."""

    instances: list[Instance]
    refusals: list[str]
    places: int = 0


def curated_instances(ops: Ops, corpus: Corpus, quota: int) -> CuratedInstances:
    """Return the instances of a sequence from all places of a corpus, at most ``quota``."""
    windows = [window for graphs in corpus.values() for window in matching(graphs, {ops})]
    return dataclasses.replace(choose(draw(_few(windows), corpus), quota), places=len(windows))


def _few(windows: Sequence[Window]) -> list[Window]:
    """Return at most ``MAX_WINDOWS`` of the places; the first ones of every architecture come first."""
    groups = grouped(windows, lambda window: window.case)
    order = [(rank, digest([case]), window) for case, same in groups.items() for rank, window in enumerate(same)]
    return [window for _, _, window in sorted(order, key=lambda item: item[:2])][:MAX_WINDOWS]


def draw(windows: Sequence[Window], corpus: Corpus) -> list[Instance]:
    """Return every distinct instance of the windows, in all sizes and dtypes, without running any."""
    by_key: dict[str, Instance] = {}
    for window in windows:
        for graph in siblings(corpus[window.case], window):
            piece = cut(calls(graph.graph)[window.start : window.end], graph.captured.values)
            if piece is None or any(s.dtype not in KNOWN_DTYPES for s in piece.inputs):
                continue
            for instance in instances(graph, piece):
                if instance.ops == window.ops:
                    by_key.setdefault(instance.key, instance)
    return list(by_key.values())


def choose(pool: Sequence[Instance], quota: int, patience: int = 8) -> CuratedInstances:
    """Return up to ``quota`` instances that pass every rule, of many dtypes, sources and sizes, with a fair time.

    Trying ends when there are ``patience`` failures more than successes.
    """
    selection: list[Instance] = []
    fit = [instance for instance in pool if MIN_ELEMENTS <= instance.elements <= MAX_ELEMENTS]
    refusals = [_misfit(instance) for instance in pool if not MIN_ELEMENTS <= instance.elements <= MAX_ELEMENTS]
    failures: Counter[tuple[str, str]] = Counter()
    hopeless: set[tuple[str, str]] = set()  # with the dtype: rounding alone may make an operator idle
    for attempt in spread(fit, 4 * quota):
        if len(selection) >= quota or sum(failures.values()) >= patience + len(selection):
            break
        failed = failures[attempt.origin, attempt.dtype] >= 2 or (attempt.source, attempt.dtype) in hopeless
        full = sum(instance.dtype == attempt.dtype for instance in selection) >= -(-quota // len(DTYPES)) + 1
        if failed or full:
            continue
        curated_instance, refusal = measured(attempt)
        if curated_instance is None:
            failures[attempt.origin, attempt.dtype] += 1
            hopeless.add((attempt.source, attempt.dtype))
            refusals.append(refusal)
        else:
            selection.append(curated_instance)
    return CuratedInstances(selection, refusals)


def _misfit(instance: Instance) -> str:
    return f"elements: {instance.elements:,} input elements; {MIN_ELEMENTS} to {MAX_ELEMENTS:,} are allowed"


def measured(instance: Instance) -> tuple[Instance | None, str]:
    """Return the curated instance with its eager time in microseconds; or None, and the rule that excludes it."""
    try:
        long = too_long(dataclasses.replace(instance, inputs=condition(instance.inputs)).probe())
    except Exception as error:  # a dtype or shape that these operators do not take
        return None, f"runs: {line(f'{type(error).__name__}: {error}')}"
    if long:
        return None, f"eager_time: more than {MAX_SECONDS * 1e3:g} ms"
    instance_or_none, refusal = curated(instance)
    if instance_or_none is None:
        return None, refusal[0]
    seconds = eager_seconds(instance_or_none.probe())
    if not suits(seconds - MAX_EXCESS_SECONDS):
        least = MIN_SECONDS + MAX_EXCESS_SECONDS
        allowed = f"{least * 1e6:g} us to {MAX_SECONDS * 1e3:g} ms are allowed"
        return None, f"eager_time: {seconds * 1e6:.1f} us; {allowed}"
    meta = (*instance_or_none.meta, ("eager_us", round(seconds * 1e6, 1)))
    return dataclasses.replace(instance_or_none, meta=meta), ""


def curated(instance: Instance) -> tuple[Instance | None, list[str]]:
    """Return the instance with inputs that pass every rule, or None and complaints about its inputs."""
    best, last = None, ["runs: nothing was tried"]
    for factor in ACTIVATION_FACTORS:
        inputs = condition(instance.inputs, factor)
        meta = (("widened", True),) if inputs != instance.inputs else ()
        attempt = dataclasses.replace(instance, inputs=inputs, meta=meta)
        probe = attempt.probe()
        last = complaints(probe)
        if any(not text.startswith(REPAIRABLE) for text in last):
            return best, last
        if not last:
            attempt = dataclasses.replace(attempt, meta=(*meta, ("null_from", probe.null_from)))
            if probe.null_from >= 0:
                return attempt, []
            best = best or attempt
    return (best, last) if best is not None else repaired(instance)


def repaired(instance: Instance) -> tuple[Instance | None, list[str]]:
    """Return the instance with single inputs scaled until it passes every rule, or None and the first complaints."""
    trial = dataclasses.replace(instance, inputs=condition(instance.inputs), meta=())
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
    return dataclasses.replace(trial, meta=(("widened", True), ("null_from", trial.probe().null_from))), []


def with_scaled(instance: Instance, place: int, factor: float) -> Instance:
    """Return the instance with an input scaled, whose statistics then have six digits."""
    inputs = list(instance.inputs)
    inputs[place] = with_statistics(scaled(inputs[place], factor), lambda number: float(f"{number:.6g}"))
    return dataclasses.replace(instance, inputs=tuple(inputs))


def candidates(probe: Probe, complaint: str) -> Iterator[tuple[int, float]]:
    """Yield the place of an input and a factor: weights first, then those nearest to the node of the complaint."""
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
    if start[0].op == "placeholder":  # another input may be so much larger or smaller that this one goes unnoticed
        order += [node for node in probe.pure.graph.nodes if node.op == "placeholder" and node not in order]
    return order


def spread(instances: Sequence[Instance], limit: int) -> list[Instance]:
    """Return at most ``limit`` instances: one of the least represented dtype, architecture and size comes next."""
    left, selection = list(instances), list[Instance]()
    counters: dict[str, Counter[object]] = {name: Counter() for name in ("dtype", "origin", "variant", "source")}
    while left and len(selection) < limit:
        best = min(left, key=lambda item: sum(counts[getattr(item, name)] for name, counts in counters.items()))
        left.remove(best)
        selection.append(best)
        for name, counts in counters.items():
            counts[getattr(best, name)] += 1
    return selection


def task_id(ops: Sequence[str]) -> str:
    """Return a task's id, such as ``gelu-add-layer_norm-3f2a``: the first four operators and a hash of all."""
    return "-".join([*ops[:4], digest(ops, 4)])


def make_task(instances: Sequence[Instance], tags: Sequence[str] = ()) -> Task:
    """Return the task of instances that share one operator sequence, ordered by source, dtype and size."""
    ordered = sorted(instances, key=lambda item: (item.origin, item.dtype, item.elements, item.key))
    ops = ordered[0].ops
    graphs = {text: f"g{i}" for i, text in enumerate(dict.fromkeys(instance.source for instance in ordered))}
    names: list[str] = []
    for item in ordered:
        names.append(distinct("-".join((item.origin.rpartition("/")[2], item.dtype, item.variant)), names))
    subgraphs = tuple(
        instance.subgraph(name, graphs[instance.source]) for name, instance in zip(names, ordered, strict=True)
    )
    modality = Counter(instance.modality for instance in ordered).most_common(1)[0][0]
    sources = tuple(sorted({instance.origin for instance in ordered}))
    header = TaskHeader(task_id(ops), tuple(ops), sources, tuple(tags), len(subgraphs), modality)
    path = Path(modality) / f"{header.id}.task.yaml"
    return Task(header, path, {key: text for text, key in graphs.items()}, subgraphs)


def write_tasks(tasks: Iterable[Task], out: Path, layout: str = "task") -> list[Path]:
    """Write the tasks below ``out``, as task files or as folders in the published layout, and return their paths."""
    paths = []
    for task in tasks:
        folder = out / ("train" if "train" in task.header.tags else task.header.modality)
        path = folder / (task.id if layout == "published" else f"{task.id}.task.yaml")
        if layout == "published":
            write_sample(task, path)
        else:
            write_task(task, path)
        paths.append(path)
    return paths
