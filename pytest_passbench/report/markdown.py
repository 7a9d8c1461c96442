"""``results.md``: the whole run for people. Everything that a candidate wrote is made inert."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pytest_passbench.core.escape import cell
from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.core.run import Run
from pytest_passbench.report import changes as since
from pytest_passbench.report import tables
from pytest_passbench.report.details import DETAILS
from pytest_passbench.report.facts import extent, listing
from pytest_passbench.report.notes import notes
from pytest_passbench.report.tables import Table

NAME = "results.md"


def render(run: Run, at: int = T_STRICT, said: Sequence[str] = ()) -> str:
    """Return the report as GitHub-flavoured Markdown, ending in a newline.

    The board counts what is correct at ``at``. ``said`` are further notes.
    """
    parts = ["# PassBench results", _facts(run), *(f"> {cell(note)}" for note in (*said, *notes(run)))]
    parts += [table(tables.board_table(run, at)), table(tables.es_table(run))]
    for candidate in run.names:
        parts.append(table(tables.task_table(run, candidate)))
        details = [make(run, candidate) for make in DETAILS]
        parts += [table(item) for item in details if item.rows]
    parts.append(_listing("Settings", "The options of the run. A dash: not given.", run.settings))
    parts.append(_listing("Environment", "Where the run took place.", run.environment))
    parts.append(_listing("Noise", "Eager measured against eager here (docs/results.md).", run.noise))
    parts.append(_listing("Seed", "All inputs were drawn from it. The commitment was shown at the start.", run.seed))
    about = "A shard of the run, as its own file says."
    parts += [_listing(f"Part {index}", about, part) for index, part in enumerate(run.parts, 1)]
    return "\n\n".join(part for part in parts if part) + "\n"


def changes(run: Run, said: Iterable[str]) -> str:
    """Return how a run's candidates changed since an earlier run as Markdown, after the sentences ``said``."""
    found = [since.table(run, candidate) for candidate in run.names]
    parts = [*(f"> {cell(text, 1000)}" for text in said), *(table(item) for item in found if item.rows)]
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


def table(found: Table) -> str:
    """Return a table under its title, which is a heading of the second level, and what it says."""
    lines = [_row(found.headers), "|" + "---|" * len(found.headers), *map(_row, found.rows)]
    return "\n\n".join(filter(None, [f"## {cell(found.title)}", found.about, "\n".join(lines)]))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(cell, cells)) + " |"


def _listing(title: str, about: str, values: dict[str, Any]) -> str:
    if not values:
        return ""
    lines = [f"- {cell(name)}: {cell(value)}" for name, value in listing(values)]
    return f"## {cell(title)}\n\n{about}\n\n" + "\n".join(lines)
