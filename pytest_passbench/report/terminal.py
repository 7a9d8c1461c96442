"""The summary at the end of a run, for a terminal of 80 columns or more."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tabulate import tabulate

from pytest_passbench.core.escape import line, middle
from pytest_passbench.report.report import Report
from pytest_passbench.report.tables import POSSIBLE, Table

_LIGHT = ("-9", "-8", "-7", "-10", "-6", "5", "4")
"""The t of least weight in AS, in the order in which a narrow terminal leaves them out."""

SPARE = ("subgraphs", "AS published", "task AS", "covered", "fast_1 %", POSSIBLE)
"""The other columns that a narrow terminal leaves out, in this order; results.md has them all."""

_WORDS = ("outcome", "nearest")
"""Columns of words, which wrap. The first column and "pass" are names: long ones are cut in the middle."""

GAP = 2  # columns of space between two columns of a table
MIN_WIDTHS = {"name": 28, "words": 18}
MIN_NAME = 8
MAX_MISSES = 12


def columns() -> int:
    """Return the width of the terminal, or 100 without one; at least 80, which the tables need."""
    return max(80, shutil.get_terminal_size((100, 24)).columns)


def summary(report: Report, width: int = 100, full: bool = False) -> str:
    """Return board, share of the possible, ES(t), a line per task, misses and caveats.

    They are at most ``width`` columns wide (80 or more). If ``full`` is True, all misses, all failures and a line per
    subgraph follow. A candidate's names and messages are plain text: no control character survives.
    """
    parts = [show(table, width) for table in (report.board, report.possible, report.es) if table.rows]
    for candidate in report.candidates:
        parts += [show(table, width) for table in (candidate.tasks, *candidate.comparisons)]
        if full:
            brief = candidate.failures_in_brief  # a column is too narrow for a compiler's message
            parts += [show(brief, width), *candidate.failure_texts] if brief.rows else []
            parts += [show(table, width) for table in candidate.subgraph_tables]
        else:
            parts.append(_misses(candidate.misses, width))
    parts.append("\n".join(line(caveat, 4 * width) for caveat in report.caveats))
    return "\n\n".join(part for part in parts if part)


def changes(tables: Iterable[Table], sentences: Iterable[str], width: int = 100) -> str:
    """Return the tables of changes since an earlier run, with sentences at the end."""
    parts = [show(table, width) for table in tables if table.rows]
    return "\n\n".join([*parts, "\n".join(line(text, 4 * width) for text in sentences)])


def _misses(table: Table, width: int) -> str:
    if not table.rows:
        return ""
    over = len(table.rows) - MAX_MISSES
    rest = f"\n... and {over} more in results.md" if over > 0 else ""
    return show(replace(table, rows=table.rows[:MAX_MISSES]), width) + rest


def show(table: Table, width: int, spare: Sequence[str] = SPARE, elsewhere: str = "results.md") -> str:
    """Return one table with its title, made to fit ``width`` columns.

    ``spare`` are columns that may be left out, the first one first; ``elsewhere`` has them all.
    """
    fitted, left_out = _fit(_clean(table), width, spare)
    body = tabulate(
        # Headers are passed as a row: as headers, tabulate would pad them by two more columns.
        [fitted.headers, *fitted.rows],
        tablefmt="plain",
        disable_numparse=True,
        colalign=["left" if _is_text(fitted, i) else "right" for i in range(len(fitted.headers))],
        maxcolwidths=_wraps(fitted, width),
    )
    hidden = f"({elsewhere} also has: {_named(table, left_out)})" if left_out else ""
    heading = f"{fitted.title}  {hidden}".rstrip()
    if len(heading) > width:
        heading = "\n".join(filter(None, [middle(fitted.title, width), middle(hidden, width)]))
    lines = [text.rstrip() for text in body.splitlines()]
    return "\n".join([heading, lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _clean(table: Table) -> Table:
    rows = tuple(tuple(line(cell, 1000) for cell in row) for row in table.rows)
    return replace(
        table, title=line(table.title), headers=tuple(line(header, 40) for header in table.headers), rows=rows
    )


def _fit(table: Table, width: int, spare: Sequence[str]) -> tuple[Table, list[str]]:
    """Return the table without some intervals and columns, so that it fits, and the names of the columns left out."""
    left_out: list[str] = []
    if _least(table) > width:
        table = table.in_brief()
    for header in (*_LIGHT, *spare):
        if _least(table) > width and header in table.headers:
            table = table.without(header)
            left_out.append(header)
    return _cut(table, width), left_out


def _named(table: Table, left_out: Iterable[str]) -> str:
    """Return the names of columns in the table's order: ``t = -10, -9``, or ``covered, task AS``."""
    names = sorted(left_out, key=table.headers.index)
    return ("t = " if all(name in _LIGHT for name in names) else "") + ", ".join(names)


def _is_name(table: Table, index: int) -> bool:
    return index == 0 or table.headers[index] == "pass"


def _is_text(table: Table, index: int) -> bool:
    return _is_name(table, index) or table.headers[index] in _WORDS


def _floor(table: Table, index: int, width: int) -> int:
    if table.headers[index] in _WORDS:
        return min(width, MIN_WIDTHS["words"])
    return min(width, MIN_WIDTHS["name"]) if _is_name(table, index) else width


def _least(table: Table) -> int:
    """Return the width of the table with its words wrapped and its names cut as far as they may be."""
    widths = [_floor(table, index, width) for index, width in enumerate(table.widths)]
    return sum(widths) + GAP * (len(widths) - 1)


def _cut(table: Table, width: int) -> Table:
    """Return the table with names cut so that it fits beside words at their narrowest."""
    widths = table.widths
    names = [index for index in range(len(widths)) if _is_name(table, index)]
    free = width - _least(table) + sum(_floor(table, index, widths[index]) for index in names)
    limits = _share({index: widths[index] for index in names}, max(free, MIN_NAME * len(names)))
    rows = (
        tuple(middle(cell, limits[i]) if i in limits else cell for i, cell in enumerate(row)) for row in table.rows
    )
    return replace(table, rows=tuple(rows))


def _share(widths: dict[int, int], free: int) -> dict[int, int]:
    """Return ``widths`` reduced to ``free`` columns in all: the longest is shortened first."""
    limits = dict(widths)
    while sum(limits.values()) > free:
        limits[max(limits, key=limits.__getitem__)] -= 1
    return limits


def _wraps(table: Table, width: int) -> list[int | None]:
    """Return the widths at which words wrap: they share what the other columns leave."""
    widths = table.widths
    words = [index for index in range(len(widths)) if table.headers[index] in _WORDS]
    others = sum(size for index, size in enumerate(widths) if index not in words)
    free = width - others - GAP * (len(widths) - 1)
    return [max(MIN_WIDTHS["words"], free // len(words)) if i in words else None for i in range(len(widths))]
