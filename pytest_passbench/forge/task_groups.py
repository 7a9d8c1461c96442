"""The grouping of instances into tasks: one operator sequence each, with many sources, dtypes and shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_passbench.core.task import Task, TaskHeader
from pytest_passbench.forge.canonical import digest
from pytest_passbench.forge.instances import Instance


def spread(instances: Sequence[Instance], limit: int) -> list[Instance]:
    """Return at most ``limit`` of them: the least represented dtype, architecture and size comes next."""
    left, selection = list(instances), list[Instance]()
    counters: dict[str, Counter[object]] = {name: Counter() for name in ("dtype", "origin", "variant", "source")}
    while left and len(selection) < limit:
        best = min(
            left, key=lambda instance: sum(counts[getattr(instance, name)] for name, counts in counters.items())
        )
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
    ordered = sorted(
        instances, key=lambda instance: (instance.origin, instance.dtype, instance.elements, instance.key)
    )
    ops = ordered[0].ops
    graphs = {text: f"g{i}" for i, text in enumerate(dict.fromkeys(instance.source for instance in ordered))}
    names = unique(f"{instance.short}-{instance.dtype}-{instance.variant}" for instance in ordered)
    subgraphs = tuple(
        instance.subgraph(name, graphs[instance.source]) for name, instance in zip(names, ordered, strict=True)
    )
    modality = Counter(instance.modality for instance in ordered).most_common(1)[0][0]
    sources = tuple(sorted({instance.origin for instance in ordered}))
    header = TaskHeader(task_id(ops), tuple(ops), sources, tuple(tags), len(subgraphs), modality)
    return Task(header, path_of(header), {key: text for text, key in graphs.items()}, subgraphs)


def path_of(header: TaskHeader) -> Path:
    """Return the place of the task file below the tasks' folder."""
    return Path(header.modality) / f"{header.id}.task.yaml"


def unique(names: Iterable[str]) -> list[str]:
    """Return the names, repeated ones numbered: ``a``, ``a-2``."""
    counts: Counter[str] = Counter()
    unique_names = []
    for name in names:
        counts[name] += 1
        unique_names.append(name if counts[name] == 1 else f"{name}-{counts[name]}")
    return unique_names
