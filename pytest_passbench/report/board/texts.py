"""Boards as text for a terminal, Markdown, CSV and LaTeX. Names that a candidate's author wrote are made inert."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_passbench.core.escape import cell, line
from pytest_passbench.report import markdown, terminal
from pytest_passbench.report.board import sheets
from pytest_passbench.report.board.standings import Board, RankedRow, when
from pytest_passbench.report.tables import Table
from pytest_passbench.score.es import ladder

TITLE = "PassBench board"


def text(boards: Sequence[Board], width: int = 100) -> str:
    """Return the boards for a terminal of ``width`` columns."""
    parts = []
    for index, board in enumerate(boards, 1):
        tables = (sheets.rows_table(board, index), sheets.es_table(board))
        rows, curves = (sheets.narrow(table, board) for table in tables)
        rows = replace(rows, title="Best AS first")
        parts.append(line(f"Board {index}: {board.group.about}", 4 * width))
        parts.append(terminal.show(rows, width, sheets.SPARE, "-o FILE"))
        parts.append(terminal.show(curves, width, elsewhere="-o FILE"))
        parts.append("\n".join(line(note, 4 * width) for note in sheets.remarks(board)))
    return "\n\n".join(part for part in parts if part)


def as_markdown(boards: Sequence[Board]) -> str:
    """Return the boards as GitHub-flavoured Markdown, ending in a newline."""
    parts = [f"# {TITLE}", sheets.ABOUT]
    for index, board in enumerate(boards, 1):
        parts.append(markdown.table(replace(sheets.rows_table(board, index), about=f"{board.group.about}.")))
        parts += [f"> {cell(note)}" for note in sheets.remarks(board)]
        parts += [markdown.table(table) for table in (sheets.gap_table(board), sheets.es_table(board)) if table.rows]
        parts.append("Files: " + ", ".join(cell(str(source.path)) for source in board.group.sources))
    return "\n\n".join(parts) + "\n"


def as_csv(boards: Sequence[Board]) -> str:
    """Return the boards as CSV: a line for each row, with unrounded numbers; an empty cell is not available."""
    lines = [_values(board, index, row) for index, board in enumerate(boards, 1) for row in board.rows]
    names = list(dict.fromkeys(name for values in lines for name in values))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in values.items()} for values in lines)
    return out.getvalue()


def as_latex(boards: Sequence[Board]) -> str:
    """Return the boards as LaTeX tables for the package booktabs, to be included by ``\\input``."""
    parts = ["% Needs \\usepackage{booktabs}. Written by `passbench board`; intervals are those of 95 %."]
    for index, board in enumerate(boards, 1):
        table = sheets.rows_table(board, index)
        for header in ("content", "subgraphs"):
            table = table.without(header)
        if len({when(row) for row in board.rows if row.started}) < 2:
            table = table.without("run")
        parts.append(_tabular(table, f"tab:passbench-{index}", f"{board.group.about}."))
        parts += [f"% {line(note, 1000)}" for note in sheets.remarks(board)]
    return "\n\n".join(parts) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{char: "\\" + char for char in "&%$#_{}"},
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
}  # fmt: skip


def latex(words: str) -> str:
    """Return text on one line with every character that LaTeX gives a meaning written out."""
    return re.sub(r"[\\~^&%$#_{}<>|\"]", lambda match: _LATEX[match.group()], line(words, 300))


def _tabular(table: Table, label: str, about: str) -> str:
    columns = "".join("l" if index == 0 else "r" for index in range(len(table.headers)))
    # A row that begins with a bracket would be read as an argument of the line before.
    rows = [" & ".join(f"{{{latex(text)}}}" for text in row) + r" \\" for row in table.rows]
    head = " & ".join(map(latex, table.headers)) + r" \\"
    body = "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule"])
    return "\n".join(
        [r"\begin{table}", r"\centering", rf"\caption{{{latex(table.title)}: {latex(about)}}}",
         rf"\label{{{label}}}", r"\small", body, r"\end{tabular}", r"\end{table}"]
    ).replace("{-}", "{--}")  # fmt: skip


def _values(board: Board, index: int, row: RankedRow) -> dict[str, Any]:
    difference = row.gap.contrast if row.gap is not None else None
    ratio, over = (difference.ratio, difference.over_tasks() or (None, None)) if difference else (None, (None, None))
    steps = ladder(board.group.sources[0].run.score_settings.interpretation)
    return {
        "board": index,
        "kind": row.kind,
        "name": row.name,
        "started": row.started,
        "content": row.content,
        "AS": row.as_ and row.as_.ratio,
        "AS_low": row.as_ and row.as_.low,
        "AS_high": row.as_ and row.as_.high,
        "AS_fp64": row.as_fp64,
        "gmean": row.gmean and row.gmean.ratio,
        "gmean_low": row.gmean and row.gmean.low,
        "gmean_high": row.gmean and row.gmean.high,
        "correct": row.correct,
        "correct_fp64": row.correct_fp64,
        "fast1": row.fast1,
        "subgraphs": row.subgraphs,
        "not_judged": row.missing,
        "above_over_this": ratio and ratio.ratio,
        "above_over_this_low": ratio and ratio.low,
        "above_over_this_high": ratio and ratio.high,
        "real": row.gap.real if row.gap is not None else None,
        "alike": row.letters,
        "other_tasks_low": over[0],
        "other_tasks_high": over[1],
        "tasks_ahead": difference and difference.ahead,
        "subgraphs_in_common": difference and difference.common,
        **{f"ES({t})": row.es[t] for t in steps},
        **board.group.conditions,
        "file": row.path,
    }


def _plain(value: Any) -> Any:
    """Return a value for a cell. Text that a spreadsheet would take for a formula gets an apostrophe."""
    if not isinstance(value, str):
        return value
    safe = line(value, 1000)
    return f"'{safe}" if safe.startswith(("=", "+", "-", "@")) else safe
