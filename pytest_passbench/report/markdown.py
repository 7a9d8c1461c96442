"""``results.md``: the whole run, and ``comment.md``: its worst results in at most 60 lines, for a pull request.

Everything that a candidate wrote is made inert.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pytest_passbench.core.escape import cell, line
from pytest_passbench.core.run import Run
from pytest_passbench.report.ci_annotations import Annotation
from pytest_passbench.report.report import Report
from pytest_passbench.report.run_text import extent, listing
from pytest_passbench.report.tables import Table

MAX_LINES = 60
MAX_TEXT = 240  # characters of a failure
MAX_CAVEATS = 4
MAX_TASKS = 15  # rows of the slowest and fastest tasks


def render(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown, ending in a newline."""
    run = report.run
    parts = ["# PassBench results", _facts(run), *(f"> {cell(caveat)}" for caveat in report.caveats)]
    parts += [table(values) for values in (report.board, report.possible, report.es) if values.rows]
    for candidate in report.candidates:
        failures = (candidate.failures,) if candidate.failures.rows else ()
        parts += map(table, (candidate.tasks, *candidate.comparisons, *failures, *candidate.subgraph_tables))
    parts.append(_listing("Settings", "The options of the run. A dash: not given.", run.settings))
    parts.append(_listing("Environment", "Where the run took place.", run.environment))
    parts.append(_listing("Noise", "Eager measured against eager here (docs/results.md).", run.noise))
    parts.append(_listing("Seed", "All inputs were drawn from it. The commitment was shown at the start.", run.seed))
    about = "A shard of the run, as its own file says."
    parts += [_listing(f"Part {index}", about, part) for index, part in enumerate(run.parts, 1)]
    return "\n\n".join(part for part in parts if part) + "\n"


def changes(tables: Iterable[Table], sentences: Iterable[str]) -> str:
    """Return the tables of changes since an earlier run as Markdown, after sentences."""
    parts = [*(f"> {cell(text, 1000)}" for text in sentences), *(table(item) for item in tables if item.rows)]
    return "\n\n".join(["# PassBench comparison", *parts]) + "\n"


def _facts(run: Run) -> str:
    lines = [f"- candidate {_candidate(item)}" for item in run.candidates]
    lines += [f"- against {_candidate(run.against)}"] if run.against else []
    lines.append(f"- {cell(extent(run))}")
    if run.started:
        lines.append(f"- from {cell(run.started)} to {cell(run.finished or 'unknown')}")
    return "\n".join(lines)


def _candidate(item: dict[str, Any]) -> str:
    facts = [str(item.get("path", "")), f"content {item.get('content_hash', '')}", str(item.get("passes", ""))]
    return f"**{cell(str(item.get('name', '')))}** ({cell(', '.join(filter(None, facts)))})"


def table(values: Table) -> str:
    """Return a table below its title, which is a heading of the second level, and its explanation."""
    body = "\n".join(_lines(values.headers, values.rows))
    return "\n\n".join(filter(None, [f"## {cell(values.title)}", values.about, body]))


def _lines(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table without a title, a line for each row."""
    head, *body = ("| " + " | ".join(map(cell, row)) + " |" for row in (headers, *rows))
    return [head, "|" + "---|" * len(headers), *body]


def _listing(title: str, about: str, values: dict[str, Any]) -> str:
    if not values:
        return ""
    lines = [f"- {cell(name)}: {cell(value)}" for name, value in listing(values)]
    return f"## {cell(title)}\n\n{about}\n\n" + "\n".join(lines)


def comment(report: Report) -> str:
    """Return the comment, ending in a newline. Everything that a candidate wrote is made inert."""
    lines = [f"### PassBench: {_counts(report)}", "", *_lines(report.board.headers, report.board.rows[:8]), ""]
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


def _counts(report: Report) -> str:
    """Return how many cases (a task with a candidate) passed, failed, and were not completely judged."""
    run = report.run
    cases = {(task, name) for name in run.names for task in run.selected.get(name, run.tasks)}
    judged = Counter((record.task, record.candidate) for record in run.records if record.judged)
    failed = {(item.task, item.candidate) for item in report.failures}
    passed = {(task, name) for task, name in cases if judged[task, name] >= run.count(name, task)} - failed
    missing = len(cases - passed - failed)
    counts = [f"{len(passed)} passed, {len(failed)} failed", *([f"{missing} not judged"] if missing else [])]
    return ", ".join(counts)


def _section(table: Table, order: str, room: int) -> list[str]:
    """Return a table under its title, with as many rows as there is room for; nothing if there is none."""
    if not table.rows or room <= 1:
        return []
    rows = table.rows[: min(room, MAX_TASKS)]
    return [f"**{cell(table.title)}**, {order}", "", *_lines(table.headers, rows), ""]


def _annotations(title: str, annotations: Sequence[Annotation], room: int) -> list[str]:
    """Return a table of tasks. If they are more than ten, it has at most ``room`` lines, or one task."""
    if not annotations:
        return []
    first = annotations[: max(1, room - 3)] if len(annotations) > 10 else annotations
    rows = [(item.task, item.candidate, line(item.text, MAX_TEXT)) for item in first]
    if len(first) < len(annotations):
        rows.append((f"... and {len(annotations) - len(first)} more", "", "results.md has all"))
    return [*_lines((title, "candidate", "why"), rows), ""]


def _speed(row: tuple[str, ...]) -> float:
    """Return a task's speed-up; one that has none comes first."""
    try:
        return float(row[1].partition(" ")[0])
    except ValueError:
        return 0.0
