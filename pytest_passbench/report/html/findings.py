"""The rows of the page's table of findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_passbench.report.html.rows import TaskRow


@dataclass(frozen=True)
class FindingRow:
    """A finding, and on how many subgraphs it was made. ``first`` is the key of the first one's task."""

    severity: str
    layer: str
    rule: str
    message: str
    place: str
    candidate: str
    task: str
    first: str
    count: int


def findings(tasks: Sequence[TaskRow]) -> list[FindingRow]:
    """Return all findings, violations first; those that say the same of several subgraphs are one."""
    places_by_finding: dict[tuple[str, str, str, str, str, str], list[tuple[str, str]]] = {}
    for task in tasks:
        for record in task.records:
            for item in record.findings:
                place = f"{item.file}:{item.line}" if item.file and item.line else item.file
                key = (item.severity, item.layer, item.rule, item.message, place, task.candidate)
                places_by_finding.setdefault(key, []).append((f"{task.name}/{record.subgraph}", task.key))
    rows = [FindingRow(*key, *places[0], len(places)) for key, places in places_by_finding.items()]
    return sorted(rows, key=lambda row: row.severity != "violation")
