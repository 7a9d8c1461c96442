"""``results.md``: the whole run for people. Everything that a candidate wrote is made inert."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_passbench.core.escape import cell
from pytest_passbench.core.run import Run
from pytest_passbench.report.report import Report
from pytest_passbench.report.run_text import extent, listing
from pytest_passbench.report.tables import Table

NAME = "results.md"


def render(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown, ending in a newline."""
    run = report.run
    parts = ["# PassBench results", _facts(run), *(f"> {cell(caveat)}" for caveat in report.caveats)]
    parts += [table(report.board), table(report.es)]
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
    path, content = str(item.get("path", "")), str(item.get("content_hash", ""))
    return f"**{cell(str(item.get('name', '')))}** ({cell(path)}, content {cell(content)})"


def table(values: Table) -> str:
    """Return a table under its title, which is a heading of the second level, and what it says."""
    lines = [_row(values.headers), "|" + "---|" * len(values.headers), *map(_row, values.rows)]
    return "\n\n".join(filter(None, [f"## {cell(values.title)}", values.about, "\n".join(lines)]))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(cell, cells)) + " |"


def _listing(title: str, about: str, values: dict[str, Any]) -> str:
    if not values:
        return ""
    lines = [f"- {cell(name)}: {cell(value)}" for name, value in listing(values)]
    return f"## {cell(title)}\n\n{about}\n\n" + "\n".join(lines)
