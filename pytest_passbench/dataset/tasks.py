"""Tasks of rows: a row becomes a subgraph of a task file, if it passes the suite's rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_passbench.core.task import Task
from pytest_passbench.dataset.rows import GraphRow, input_spec
from pytest_passbench.forge.curate import make_task, measured
from pytest_passbench.forge.instances import Instance


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


@dataclass(frozen=True)
class RowTasks:
    """The tasks of rows, and for each row that makes none its id and the rule that refuses it."""

    tasks: list[Task]
    refused: dict[str, str]


def tasks_of(rows: Iterable[GraphRow]) -> RowTasks:
    """Return a task for each operator sequence of the rows. Each row's graph is run for the suite's rules."""
    instances: dict[tuple[str, ...], list[Instance]] = {}
    refused: dict[str, str] = {}
    for row in rows:
        instance, refusal = measured(instance_of(row))
        if instance is None:
            refused[row.id] = refusal
        else:
            instances.setdefault(instance.ops, []).append(instance)
    return RowTasks([make_task(group) for group in instances.values()], refused)
