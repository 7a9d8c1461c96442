"""A run's settings, environment and extent as text."""

from __future__ import annotations

from typing import Any

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run
from pytest_passbench.report.tables import NONE


def extent(run: Run) -> str:
    """Return how many tasks and subgraphs were judged, and of which edition of the suite."""
    edition = f", edition {', '.join(run.editions)} of the suite" if run.editions else ""
    return f"{counted(len(run.tasks), 'task')}, {counted(len(run.records), 'subgraph')} judged{edition}"


def listing(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return each name with its value as text: numbers with four digits, a dash for a value that was not given."""
    return [(str(name), _flat(value)) for name, value in values.items()]


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_flat(item)}" for name, item in value.items()) or NONE
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_flat, value)) or NONE
    if isinstance(value, float):
        return f"{value:.4g}"
    return NONE if value is None else str(value)
