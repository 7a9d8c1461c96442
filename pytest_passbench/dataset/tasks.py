"""Tasks of rows: any row becomes a task file, if it passes the suite's rules."""

from __future__ import annotations

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Task
from pytest_passbench.dataset.rows import Row, input_spec
from pytest_passbench.forge.curate import make_task, measured
from pytest_passbench.forge.instances import Instance


def instance_of(row: Row) -> Instance:
    """Return a row's recorded instance."""
    return Instance(
        ops=tuple(row.operators),
        source=row.source,
        dtype=row.dtype,
        inputs=tuple(map(input_spec, row.inputs)),
        origin=row.architecture,
        short=row.architecture.rpartition("/")[2],
        modality=row.modality,
        variant=row.variant,
        provenance=f"{row.architecture} ({row.configuration})",
    )


def task_of(row: Row) -> Task:
    """Return a task of one row. Raises UserError with the rule that refuses it, for which the graph is run."""
    instance, refusal = measured(instance_of(row))
    if instance is None:
        raise UserError(f"makes no task: {refusal}", where=f"row {row.id}", remedy="choose another row")
    return make_task([instance])
