"""``comment.md``: the run in at most 60 lines of Markdown, for a comment on a pull request. The worst comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_passbench.core.escape import cell
from pytest_passbench.report.ci_annotations import Annotation
from pytest_passbench.report.report import Report
from pytest_passbench.report.tables import Table

MAX_LINES = 60
MAX_TEXT = 240  # characters of a failure
MAX_CAVEATS = 4
MAX_TASKS = 15  # rows of the slowest and fastest tasks


def render(report: Report) -> str:
    """Return the comment, ending in a newline. Everything that a candidate wrote is made inert."""
    records = report.run.records
    tasks = {(record.task, record.candidate) for record in records}
    judged = {(record.task, record.candidate) for record in records if record.judged}
    counts = [f"{len(judged) - len(report.failures)} passed, {len(report.failures)} failed"]
    counts += [f"{len(tasks - judged)} not judged"] if tasks != judged else []
    lines = [f"### PassBench: {', '.join(counts)}", "", *_table(report.board, 8), ""]
    caveats = [f"> {cell(caveat, MAX_TEXT)}" for caveat in report.caveats[:MAX_CAVEATS]]
    lines += [*caveats, ""] if caveats else []
    lines += _annotations("failed task", report.failures, (MAX_LINES - len(lines)) // 2)
    lines += _annotations("task slower than the reference", report.behind, (MAX_LINES - len(lines)) // 3)
    for compared in (table for candidate in report.candidates for table in candidate.comparisons):
        lines += _section(compared, "the worst first", MAX_LINES - len(lines) - 5)
    for candidate in report.candidates:
        ordered = replace(candidate.tasks, rows=tuple(sorted(candidate.tasks.rows, key=_speed)))
        lines += _section(ordered, "the slowest first", MAX_LINES - len(lines) - 5)
    return "\n".join(lines[:MAX_LINES]).rstrip("\n") + "\n"


def _section(table: Table, order: str, room: int) -> list[str]:
    """Return a table under its title, with as many rows as there is room for; nothing if there is none."""
    if not table.rows or room <= 1:
        return []
    return [f"**{cell(table.title)}**, {order}", "", *_table(table, min(room, MAX_TASKS)), ""]


def _annotations(title: str, annotations: Sequence[Annotation], room: int) -> list[str]:
    """Return a table of tasks. If they are more than ten, it has at most ``room`` lines, or one task."""
    if not annotations:
        return []
    first = annotations[: max(1, room - 3)] if len(annotations) > 10 else annotations
    lines = [f"| {title} | candidate | why |", "|---|---|---|"]
    lines += [f"| {cell(item.task)} | {cell(item.candidate)} | {cell(item.text, MAX_TEXT)} |" for item in first]
    if len(first) < len(annotations):
        lines.append(f"| ... and {len(annotations) - len(first)} more | | results.md has all |")
    return [*lines, ""]


def _speed(row: tuple[str, ...]) -> float:
    """Return a task's speed-up; one that has none comes first."""
    try:
        return float(row[1].partition(" ")[0])
    except ValueError:
        return 0.0


def _table(table: Table, most: int) -> list[str]:
    rows = [table.headers, ("---",) * len(table.headers), *table.rows[:most]]
    return ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
