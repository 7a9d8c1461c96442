"""Counts of a suite: what its tasks come from, what they compute, and how much faster they could be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_passbench.core.task import Task
from pytest_passbench.suite.find import edition_of
from pytest_passbench.suite.source import parse

CONVOLUTION = "conv"
"""How the names of convolutions begin."""


def counts(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the counts, JSON-ready.

    A task counts for every library that it comes from. A subgraph is anchored at a convolution if it has one.
    """
    subgraphs = sum(len(task.subgraphs) for task in tasks)
    anchored = sum(len(task.subgraphs) for task in tasks if any(op.startswith(CONVOLUTION) for op in task.header.ops))
    single = Counter(task.header.sources[0] for task in tasks if len(task.header.sources) == 1)
    libraries = Counter(name for task in tasks for name in {s.partition("/")[0] for s in task.header.sources})
    return {
        "editions": sorted({edition for task in tasks if (edition := edition_of(task.path))}),
        "conv_anchored_subgraphs": anchored,
        "conv_anchored_share": round(anchored / subgraphs, 4) if subgraphs else 0.0,
        "tasks_by_library": dict(libraries.most_common()),
        "architectures": len({source for task in tasks for source in task.header.sources}),
        "tasks_of_one_architecture": sum(single.values()),
        "tasks_with_two_outputs": sum(outputs(task) >= 2 for task in tasks),
        "tasks_with_a_possible_2x": sum(task.header.headroom >= 2 for task in tasks),
        "operators": len({op for task in tasks for op in task.header.ops}),
        "tasks_with_the_operators_of_another": len(tasks) - len({task.header.ops for task in tasks}),
        "subgraphs_with_the_code_and_shapes_of_another": subgraphs - len(set(_computations(tasks))),
    }


def _computations(tasks: Sequence[Task]) -> Iterator[tuple[object, ...]]:
    for task in tasks:
        for subgraph in task.subgraphs:
            yield task.graphs[subgraph.graph], *((spec.shape, spec.dtype) for spec in subgraph.inputs)


def outputs(task: Task) -> int:
    """Return the greatest number of outputs of a task's graphs."""
    return max(_returned(source, str(task.path)) for source in task.graphs.values())


def _returned(source: str, origin: str) -> int:
    value = parse(source, origin).body[-1].value  # type: ignore[attr-defined]
    return len(getattr(value, "elts", [value]))
