"""A board as tables, and as text for a terminal, Markdown, CSV and LaTeX. Authors' names are made inert."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pytest_passbench.core.escape import cell, line
from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.report import markdown, terminal
from pytest_passbench.report.board.standings import Board, Gap, RankedRow, label, what, when
from pytest_passbench.report.tables import (
    NONE,
    NOT_MEASURED,
    POSSIBLE,
    Table,
    about_possible,
    percent,
    possible_cell,
    score,
)
from pytest_passbench.score.interval import Interval
from pytest_passbench.score.possible import ALL, CLASSES

SPARE = ("runs", "subgraphs", "fast_1 %", "AS (fp64)", "correct (fp64) %", "G-Mean", POSSIBLE)
"""The columns that a narrow terminal leaves out, in this order."""

COLUMNS = {
    "AS": "a score for all t together; eager's is 1, and one near 1 is easy to reach",
    POSSIBLE: "of what could be gained over eager, how much was gained",
    "alike": "rows that share a letter do not differ, as far as these runs can tell",
    "above / this": "the AS of the row above over that of this row, on the subgraphs that both have; all intervals "
    "of such ratios together hold with 95 %",
    "real": "yes, if that interval excludes 1; no, if it lies within the noise; else unresolved",
    "G-Mean": "the mean speed-up of what is correct at t = -5",
    "AS (fp64)": "AS if correct is what is as accurate as eager",
    "correct %": "the share that agrees with eager at t = -5",
    "correct (fp64) %": "the share that is as accurate as eager",
    "fast_1 %": "the share that is correct and not slower than eager",
    "subgraphs": "how many were judged",
    "run": "when the newest run began",
    "runs": "how many runs judged the same content, each with the same weight, and the lowest and highest AS of them",
    "content": "the first digits of the hash of the candidate's files",
}
"""What the columns of a board say."""

ABOUT = "Best AS first, with the 95 % interval that measuring leaves. " + " ".join(
    f"{name[:1].upper() + name[1:]}: {text}." for name, text in COLUMNS.items()
)

TITLE = "PassBench board"

EFFORT = ("samples", "turns", "attempts", "tokens")
"""The names of the amounts that a model's answers took, as a results file has them."""


def text(boards: Sequence[Board], width: int = 100) -> str:
    """Return the boards for a terminal of ``width`` columns."""
    parts = []
    for index, board in enumerate(boards, 1):
        tables = (rows_table(board, index), possible_table(board), es_table(board))
        rows, shares, curves = (narrow(table, board) if table.rows else table for table in tables)
        models = model_table(board)
        rows = replace(rows, title="Best AS first")
        parts.append(line(f"Board {index}: {board.group.about}", 4 * width))
        parts.append(terminal.show(rows, width, SPARE, "-o FILE"))
        parts += [terminal.show(shares, width, CLASSES[::-1], "-o FILE")] if shares.rows else []
        parts += [terminal.show(models, width, elsewhere="-o FILE")] if models.rows else []
        parts.append(terminal.show(curves, width, elsewhere="-o FILE"))
        parts.append("\n".join(line(note, 4 * width) for note in remarks(board)))
    return "\n\n".join(part for part in parts if part)


def as_markdown(boards: Sequence[Board]) -> str:
    """Return the boards as GitHub-flavoured Markdown, ending in a newline."""
    parts = [f"# {TITLE}", ABOUT]
    for index, board in enumerate(boards, 1):
        parts.append(markdown.table(replace(rows_table(board, index), about=f"{board.group.about}.")))
        parts += [f"> {cell(note)}" for note in remarks(board)]
        parts += [markdown.table(table) for table in details(board)]
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
        table = rows_table(board, index).without("content", "subgraphs", "runs")
        if len({when(row) for row in board.rows if row.started}) < 2:
            table = table.without("run")
        parts.append(_tabular(table, f"tab:passbench-{index}", f"{board.group.about}."))
        parts += [f"% {line(note, 1000)}" for note in remarks(board)]
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
    return {
        "board": index,
        "kind": row.kind,
        "name": row.name,
        "started": row.started,
        "content": row.content,
        "passes": row.passes,
        **_columns_of("AS", row.as_),
        "runs": len(row.each),
        "AS_least": min(row.each, default=None),
        "AS_most": max(row.each, default=None),
        "AS_fp64": row.as_fp64,
        "possible": row.possible[ALL].share,
        "possible_subgraphs": row.possible[ALL].subgraphs,
        **_columns_of("gmean", row.gmean),
        "correct": row.correct,
        "correct_fp64": row.correct_fp64,
        "fast1": row.fast1,
        "subgraphs": row.subgraphs,
        "not_judged": row.missing,
        **{part: row.effort.get(part) for part in EFFORT},
        **_columns_of("above_over_this", ratio),
        "real": row.gap.real if row.gap is not None else None,
        "alike": row.letters,
        "other_tasks_low": over[0],
        "other_tasks_high": over[1],
        "tasks_ahead": difference and difference.ahead,
        "subgraphs_in_common": difference and difference.common,
        **{f"ES({t})": value for t, value in row.es.items()},
        **board.group.conditions,
        "file": row.path,
    }


def _columns_of(column: str, value: Interval | None) -> dict[str, float | None]:
    """Return a ratio with the ends of its interval, in three columns."""
    ratio, low, high = (None, None, None) if value is None else (value.ratio, value.low, value.high)
    return {column: ratio, f"{column}_low": low, f"{column}_high": high}


def _plain(value: Any) -> Any:
    """Return a value for a cell. Text that a spreadsheet would take for a formula gets an apostrophe."""
    if not isinstance(value, str):
        return value
    safe = line(value, 1000)
    return f"'{safe}" if safe.startswith(("=", "+", "-", "@")) else safe


def rows_table(board: Board, index: int) -> Table:
    """Return the table of a board's rows, the ``index``-th board from 1."""
    rows = tuple(tuple(text_of(row) for text_of in _CELLS.values()) for row in board.rows)
    table = Table(f"Board {index}", tuple(_CELLS), rows, brief=("G-Mean", "above / this"), about=ABOUT)
    return table if any(len(row.each) > 1 for row in board.rows) else table.without("runs")


def es_table(board: Board) -> Table:
    """Return the table of ES(t) of a board's rows."""
    steps = board.rows[0].es
    rows = tuple((name(row), when(row), *(score(row.es[t], NONE) for t in steps)) for row in board.rows)
    about = "The mean speed-up at tolerance t, where a failure counts b, unless t tolerates it."
    return Table("ES(t)", ("t", "run", *map(str, steps)), rows, about=about)


def possible_table(board: Board) -> Table:
    """Return the table of the share of the possible of a board's rows, by class; no rows if none has one."""
    kinds = [kind for kind in (ALL, *CLASSES) if any(kind in row.possible for row in board.rows)]
    rows = tuple(
        (name(row), when(row), *(possible_cell(row.possible.get(kind)) for kind in kinds)) for row in board.rows
    )
    lines = rows if len(kinds) > 1 else ()  # a share of all, without a class, is eager's alone
    return Table(f"Share of the possible ({POSSIBLE})", ("", "run", *kinds), lines, about=about_possible(T_STRICT))


def model_table(board: Board) -> Table:
    """Return the table of what the models' answers took; no rows if there are no models."""
    rows = tuple(
        (label(row), interval(row.as_), *(f"{row.effort[part]:,}" for part in EFFORT))
        for row in board.rows
        if row.effort
    )
    about = (
        "Each model's best judged attempt at each task, chosen by a reward that was measured then: of more "
        "attempts more of the speed may be chance. Turns are answers of the model, of all tasks and samples "
        "together."
    )
    return Table("Models", ("", "AS", *EFFORT), rows, brief=("AS",), about=about)


def details(board: Board) -> list[Table]:
    """Return the tables that follow a board's rows, if they have rows."""
    tables = (model_table(board), possible_table(board), gap_table(board), es_table(board))
    return [table for table in tables if table.rows]


def narrow(table: Table, board: Board) -> Table:
    """Return a table without the columns of runs and contents. If names are repeated, they have the runs' times."""
    repeated = len({row.name for row in board.rows}) < len(board.rows)
    names = [label(row) if repeated else name(row) for row in board.rows]
    rows = tuple((label_text, *cells[1:]) for label_text, cells in zip(names, table.rows, strict=True))
    return replace(table, rows=rows).without("run", "content")


def gap_table(board: Board) -> Table:
    """Return the table of the gaps between neighbours: the ratio of their AS, and where it comes from."""
    headers = ("above", "this", "above / this", "real", "on other tasks", "tasks ahead", "subgraphs in common")
    rows = tuple((row.gap.above, label(row), *_gap(row.gap)) for row in board.rows if row.gap is not None)
    about = (
        "On other tasks: the 95 % interval of the same ratio if the tasks are a sample of more tasks like them "
        f"(bootstrap over tasks), without the errors that runs share. {NONE}: too few tasks. Tasks ahead: those on "
        "which the row above has the higher AS."
    )
    return Table("Gaps between neighbours", headers, rows, about=about)


def name(row: RankedRow) -> str:
    """Return a row's name, with what it is."""
    return f"{row.name} ({what(row)})" if what(row) else row.name


def remarks(board: Board) -> Sequence[str]:
    """Return why the board is apart from others, and its notes, a sentence each."""
    return [*filter(None, [board.group.apart]), *board.notes]


def interval(ratio: Interval | None) -> str:
    """Return a ratio with its interval as the other tables write it."""
    return NOT_MEASURED if ratio is None else str(ratio)


_CELLS: dict[str, Callable[[RankedRow], str]] = {
    "": name,
    "AS": lambda row: "1.000" if row.kind == "eager" else interval(row.as_),
    POSSIBLE: lambda row: percent(row.possible[ALL].share),
    "alike": lambda row: row.letters or NONE,
    "above / this": lambda row: NONE if row.gap is None else interval(row.gap.contrast.ratio),
    "real": lambda row: NONE if row.gap is None else row.gap.real,
    "G-Mean": lambda row: "1.000" if row.kind == "eager" else str(row.gmean or NONE),
    "AS (fp64)": lambda row: score(row.as_fp64, NONE),
    "correct %": lambda row: percent(row.correct),
    "correct (fp64) %": lambda row: percent(row.correct_fp64),
    "fast_1 %": lambda row: percent(row.fast1),
    "subgraphs": lambda row: row.judged,
    "run": lambda row: when(row) or NONE,
    "runs": lambda row: f"{len(row.each)}: {spread(row)}" if len(row.each) > 1 else NONE,
    "content": lambda row: row.content or NONE,
}
"""The text of each column of a board, by its header."""


def spread(row: RankedRow) -> str:
    """Return the lowest and the highest AS of a row's runs."""
    return f"{min(row.each):.3f} to {max(row.each):.3f}"


def heading(board: Board) -> str:
    """Return what a board compares, as a title."""
    about = board.group.conditions
    edition = f"edition {about['suite edition']} of the suite"
    return f"{about['tasks']} tasks of {edition} on {about['machine']}, {about['device']}, {about['pipeline']}"


def _gap(gap: Gap) -> tuple[str, ...]:
    contrast = gap.contrast
    over = contrast.over_tasks()
    shared = str(contrast.common) if contrast.common == contrast.all else f"{contrast.common} of {contrast.all}"
    return (
        interval(contrast.ratio),
        gap.real,
        NONE if over is None else f"[{over[0]:.3f}, {over[1]:.3f}]",
        f"{contrast.ahead} of {len(contrast.tasks)}",
        shared,
    )
