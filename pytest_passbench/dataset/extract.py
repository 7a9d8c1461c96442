"""The graphs of one architecture: captured, cut in every way, run, and made into rows; and tasks from rows."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Collection, Iterable, Iterator, Sequence

import torch
from torch import fx

from pytest_passbench.core.task import Task
from pytest_passbench.dataset.architectures import Architecture
from pytest_passbench.dataset.rows import CaseRows, GraphRow, input_data, input_spec, instance_data, text_hash
from pytest_passbench.forge import rules
from pytest_passbench.forge.corpus import Graph, capture_case
from pytest_passbench.forge.curate import make_task, measured
from pytest_passbench.forge.decompose import GraphPiece, calls, cut
from pytest_passbench.forge.input_records import condition
from pytest_passbench.forge.instances import Instance, instances
from pytest_passbench.forge.normal_form import normal_form
from pytest_passbench.forge.probe import Values
from pytest_passbench.forge.windows import RunRanges, Window, fusible, typical_windows
from pytest_passbench.plans.values import storage_of, tensors_in
from pytest_passbench.suite.opnames import is_metadata, is_random

MAX_ELEMENTS = 1 << 26
"""The most elements of a graph's inputs together, which are drawn to run it."""
MAX_MERGES = 200
"""The most merges of operators into n-grams, for the typical graphs of one architecture."""
MAX_ANCHORED = 96
"""The most anchored windows of one architecture, a random sample: there can be hundreds, and each one is run."""
REQUIRED: tuple[rules.Rule, ...] = (rules.finite, rules.nan_outputs, rules.constant_outputs)
"""Rules that every row keeps. A graph that breaks one is left out."""
MARKED: tuple[rules.Rule, ...] = (
    rules.deterministic,
    rules.degenerate_inputs,
    rules.null_answers,
    rules.dead_operators,
)
"""Rules that a row may break: it then has the rule's name among its marks."""


def extract(architecture: Architecture, known: Collection[str], ranges: RunRanges) -> CaseRows:
    """Return the rows of an architecture.

    ``known`` are ids of rows that earlier architectures gave: for these only the id is returned. ``ranges`` are the
    fusible ranges of runs that were searched before. Raises any exception of the model at its first size.
    """
    begin = time.process_time()
    result = CaseRows(architecture.case.name, architecture.library, architecture.family, architecture.position)
    graphs = capture_case(architecture.case, once=not architecture.parts)
    all_ranges = dict(ranges)
    by_id: dict[str, GraphRow] = {}
    for kind, graph, piece in pieces(graphs, all_ranges, architecture.parts):
        for instance in instances(graph, piece):
            key = text_hash(instance.source)
            if key in by_id:
                _add(by_id[key], instance)
            elif key not in result.ids:
                result.ids.append(key)
                row = None if key in known else _row(architecture, kind, key, instance, result.refused)
                if row is not None:
                    by_id[key] = row
    result.rows = list(by_id.values())
    result.ranges = {key: spans for key, spans in all_ranges.items() if key not in ranges}
    result.seconds = round(time.process_time() - begin, 2)
    return result


def pieces(graphs: Sequence[Graph], ranges: RunRanges, parts: bool) -> Iterator[tuple[str, Graph, GraphPiece]]:
    """Yield the graphs of an architecture, then if ``parts`` is true every part with its kind, operators last."""
    for graph in graphs:
        yield from _piece("whole", graph, 0, len(calls(graph.graph)))
    if not parts:
        return
    for window in _windows(graphs, ranges):
        base = graphs[window.place]
        for graph in graphs:
            if graph.index == base.index and len(calls(graph.graph)) >= window.end:
                yield from _piece(window.kind, graph, window.start, window.end)
    for graph in graphs:
        for index in range(len(calls(graph.graph))):
            yield from _piece("single", graph, index, index + 1)


def _windows(graphs: Sequence[Graph], ranges: RunRanges) -> list[Window]:
    """Return the fusible windows, a draw of the anchored ones, and the typical ones."""
    windows = fusible(graphs, ranges)
    anchored = [window for window in windows if window.kind == "anchored"]
    drawn = random.Random(graphs[0].case).sample(anchored, min(MAX_ANCHORED, len(anchored)))
    light = [window for window in windows if window.kind != "anchored"]
    return [*light, *drawn, *typical_windows({"": graphs}, MAX_MERGES)]


def _piece(kind: str, graph: Graph, start: int, end: int) -> Iterator[tuple[str, Graph, GraphPiece]]:
    nodes = calls(graph.graph)[start:end]
    if not nodes or any(map(is_random, nodes)) or all(map(is_metadata, nodes)):
        return
    piece = cut(nodes, graph.captured.values)
    if piece is not None:
        yield kind, graph, piece


def _row(
    architecture: Architecture, kind: str, key: str, instance: Instance, refused: dict[str, int]
) -> GraphRow | None:
    """Return the row of a new graph, or None if a rule refuses it, which is counted in ``refused``."""
    if instance.elements > MAX_ELEMENTS:
        refused["elements"] = refused.get("elements", 0) + 1
        return None
    instance = dataclasses.replace(instance, inputs=condition(instance.inputs))
    probe = instance.probe()
    try:
        broken = next((rule.__name__ for rule in REQUIRED for _ in rule(probe)), None)
        marks = [rule.__name__ for rule in MARKED if any(True for _ in rule(probe))] if broken is None else []
        form = normal_form(probe.pure, probe.values, sized=False) if broken is None else ""
    except Exception as error:  # eager's own failure, or an operator that no graph here may have
        broken, marks, form = f"runs: {type(error).__name__}", [], ""
    if broken is not None:
        refused[broken] = refused.get(broken, 0) + 1
        return None
    return GraphRow(
        id=key,
        form=form,
        kind=kind,
        source=instance.source,
        operators=list(instance.ops),
        dtype=instance.dtype,
        variant=instance.variant,
        inputs=[input_data(spec) for spec in instance.inputs],
        instances=[],
        marks=marks,
        architecture=architecture.case.name,
        library=architecture.library,
        version=architecture.version,
        license=architecture.license,
        family=architecture.family,
        families=[architecture.family],
        modality=architecture.case.modality,
        configuration=architecture.case.note,
        headroom=headroom(probe.pure, probe.values),
    )


def _add(row: GraphRow, instance: Instance) -> None:
    """Add another dtype or size of the same text to a row."""
    data = instance_data(instance)
    first = {"dtype": row.dtype, "variant": row.variant}
    if data not in row.instances and {"dtype": data["dtype"], "variant": data["variant"]} != first:
        row.instances.append(data)


def headroom(module: fx.GraphModule, values: Values) -> float:
    """Return the bytes that the operators of a graph read and write, one after the other, over those of the graph.

    ``values`` has the value of each node, on any device. The graph has to read its inputs and to write its outputs.
    An operator whose result lies in the memory of an operand, such as a view, moves nothing. The ratio has two
    digits, and is 0 if the graph moves nothing. It says nothing of products and convolutions, whose time is
    arithmetic, and depends on no machine.
    """
    moved = 0
    for node in module.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        operands = tensors_in([values[source] for source in node.all_input_nodes])
        memory = set(map(storage_of, operands))
        results = [tensor for tensor in tensors_in(values[node]) if storage_of(tensor) not in memory]
        if results:
            moved += sum(map(_bytes, (*operands, *results)))
    output = module.graph.output_node()
    inputs = [values[node] for node in module.graph.nodes if node.op == "placeholder" and node.users]
    least = sum(map(_bytes, tensors_in([*inputs, *map(values.get, output.all_input_nodes)])))
    return float(f"{moved / least:.2g}") if least else 0.0


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor. An expanded one has no more than its memory."""
    return int(min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()))


def instance_of(row: GraphRow) -> Instance:
    """Return a row's recorded instance."""
    return Instance(
        ops=tuple(row.operators),
        source=row.source,
        dtype=row.dtype,
        inputs=tuple(map(input_spec, row.inputs)),
        origin=row.architecture,
        modality=row.modality,
        variant=row.variant,
        provenance=f"{row.architecture} ({row.configuration})",
    )


def tasks_of(rows: Iterable[GraphRow]) -> tuple[list[Task], dict[str, str]]:
    """Return a task for each operator sequence of the rows, and the rule that refuses a row, by the row's id.

    Each row's graph is run for the suite's rules.
    """
    groups: dict[tuple[str, ...], list[Instance]] = {}
    refused: dict[str, str] = {}
    for row in rows:
        instance, refusal = measured(instance_of(row))
        if instance is None:
            refused[row.id] = refusal
        else:
            groups.setdefault(instance.ops, []).append(instance)
    return [make_task(group) for group in groups.values()], refused
