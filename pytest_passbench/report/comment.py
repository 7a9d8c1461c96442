"""``comment.md``: the run in at most 60 lines of Markdown, for a comment on a pull request. The worst comes first."""

from __future__ import annotations

from pytest_passbench.core.escape import cell
from pytest_passbench.core.run import Run
from pytest_passbench.report import tables
from pytest_passbench.report.details import COMPARISONS
from pytest_passbench.report.notes import notes
from pytest_passbench.report.notices import Notice, behind, failures
from pytest_passbench.report.tables import Table

MAX_LINES = 60
MAX_TEXT = 240  # characters of a failure
MAX_NOTES = 4
MAX_TASKS = 15  # rows of the slowest and fastest tasks


def render(run: Run) -> str:
    """Return the comment, ending in a newline. Everything that a candidate wrote is made inert."""
    found = failures(run)
    tasks = {(record.task, record.candidate) for record in run.records}
    judged = {(record.task, record.candidate) for record in run.records if record.judged}
    counts = [f"{len(judged) - len(found)} passed, {len(found)} failed"]
    counts += [f"{len(tasks - judged)} not judged"] if tasks != judged else []
    head = [f"### PassBench: {', '.join(counts)}", ""]
    head += _table(tables.board_table(run), 8)
    said = [f"> {cell(note, MAX_TEXT)}" for note in notes(run)[:MAX_NOTES]]
    lines = [*head, "", *([*said, ""] if said else [])]
    lines += _notices("failed task", found, (MAX_LINES - len(lines)) // 2)
    lines += _notices("task slower than the reference", behind(run), (MAX_LINES - len(lines)) // 3)
    for compared in (make(run, name) for name in run.names for make in COMPARISONS):
        room = MAX_LINES - len(lines) - 5
        if compared.rows and room > 1:
            lines += [f"**{cell(compared.title)}**, the worst first", "", *_table(compared, min(room, MAX_TASKS)), ""]
    for name in run.names:
        table = tables.task_table(run, name)
        room = MAX_LINES - len(lines) - 5
        if table.rows and room > 1:
            rows = sorted(table.rows, key=_speed)
            kept = Table(table.title, table.headers, tuple(rows[: min(room, MAX_TASKS)]))
            lines += [f"**{cell(table.title)}**, the slowest first", "", *_table(kept, MAX_TASKS), ""]
    return "\n".join(lines[:MAX_LINES]).rstrip("\n") + "\n"


def _notices(title: str, found: list[Notice], room: int) -> list[str]:
    """Return a table of tasks. If they are more than ten, it has at most ``room`` lines, or one task."""
    if not found:
        return []
    shown = found[: max(1, room - 3)] if len(found) > 10 else found
    lines = [f"| {title} | candidate | why |", "|---|---|---|"]
    lines += [f"| {cell(one.task)} | {cell(one.candidate)} | {cell(one.text, MAX_TEXT)} |" for one in shown]
    if len(shown) < len(found):
        lines.append(f"| ... and {len(found) - len(shown)} more | | results.md has all |")
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
