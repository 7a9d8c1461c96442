"""A board's charts, and boards as one HTML file that needs no network. Its script sorts and filters rows.

As files the charts are made for a column of a paper: 3.4 inches wide, with letters of 8 points.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from pytest_passbench.core.files import writing
from pytest_passbench.report import charts, pages
from pytest_passbench.report.board import texts
from pytest_passbench.report.board.standings import Board, RankedRow, when
from pytest_passbench.report.board.texts import TITLE
from pytest_passbench.report.drawing import Drawing, in_page
from pytest_passbench.report.html import NAME as REPORT
from pytest_passbench.report.pdf import save
from pytest_passbench.report.tables import NONE

INCHES, PIXELS = 3.4, 382.0  # of a column of most two-column formats: 12 pixels are 8 points
ES_PIXELS = 230.0
MAX_ROWS = 12
"""The most rows in a chart; a board's best. More could not be told apart."""

ELSEWHERE = ("", "run", "runs", "content")
"""The columns that the page has in a row's first cell."""
TEXTS = ("alike", "real")
"""The columns that hold no numbers."""


def render(boards: Sequence[Board], folder: Path | None = None) -> str:
    """Return the page. Its links to reports and results are relative to ``folder``; without one it has none."""
    return pages.render(
        "board.html",
        TITLE,
        pages.with_sorting(pages.FOLDER / "board.js"),
        boards=[_board(board, index, folder) for index, board in enumerate(boards, 1)],
        columns=texts.COLUMNS,
    )


def _board(board: Board, index: int, folder: Path | None) -> dict[str, Any]:
    table = texts.rows_table(board, index).without(*ELSEWHERE)
    return {
        "index": index,
        "heading": texts.heading(board),
        "conditions": board.group.unusual,
        "headers": [(header, "text" if header in TEXTS else "number") for header in table.headers],
        "rows": [
            {"kind": row.kind, "name": texts.name(row), "about": _about(row), "links": _links(row, folder),
             "cells": list(zip(table.headers, cells, map(_sorted_by, table.headers, cells), strict=True))}
            for row, cells in zip(board.rows, table.rows, strict=True)
        ],
        "remarks": texts.remarks(board),
        "details": texts.details(board),
        "files": [str(source.path) for source in board.group.sources],
        "charts": _charts(board, index),
    }  # fmt: skip


def _sorted_by(header: str, cell: str) -> str:
    """Return the value by which a column is sorted: a cell's number without its interval, empty if there is none."""
    value = cell if header in TEXTS else cell.partition(" [")[0].partition("/")[0]
    return "" if value == NONE else value


def _about(row: RankedRow) -> str:
    """Return what distinguishes rows of one name: the candidate's content, its newest run, and its number of runs."""
    runs = f"{len(row.each)} runs: AS {texts.spread(row)}" if len(row.each) > 1 else ""
    return ", ".join(filter(None, [row.content, when(row), runs]))


def _links(row: RankedRow, folder: Path | None) -> list[tuple[str, str]]:
    """Return the label and the URL of the report and the results of a row's newest run, as far as they exist."""
    if folder is None or not row.path:
        return []
    path = Path(row.path)
    files = [("report", path.with_name(REPORT)), ("results", path)]
    return [(text, quote(os.path.relpath(file, folder))) for text, file in files if file.is_file()]


def _charts(board: Board, index: int) -> list[tuple[str, Markup]]:
    """Return the board's charts with their captions; none if no candidate has a score."""
    if all(row.kind == "eager" or row.as_ is None for row in board.rows):
        return []
    return [
        (f"AS with its 95 % interval, board {index}", Markup(in_page(forest(board)))),
        (f"ES(t) at every tolerance t, board {index}", Markup(in_page(es_curves(board)))),
    ]


def write(boards: Sequence[Board], folder: Path) -> list[Path]:
    """Write ``es-curves`` and ``forest`` of each board as SVG and PDF, and return the files.

    The files of a second board are called ``es-curves-2`` and so on. Raises UserError if the folder cannot be
    written to.
    """
    paths = []
    with writing(folder, "choose another folder, one that you may write to"):
        folder.mkdir(parents=True, exist_ok=True)
        for index, board in enumerate(boards, 1):
            for name, drawing in (("es-curves", es_curves(board)), ("forest", forest(board))):
                for suffix in ("svg", "pdf"):
                    paths.append(folder / f"{name}{f'-{index}' if index > 1 else ''}.{suffix}")
                    save(drawing, paths[-1], PIXELS, INCHES)
    return paths


def es_curves(board: Board) -> Drawing:
    """Return the chart of ES(t) of a board's rows, and of eager."""
    steps = list(board.rows[0].es)
    rows = [row for row in board.rows if row.kind != "eager" and all(value for value in row.es.values())][:MAX_ROWS]
    curves = [charts.Curve(_named(row, board), {t: value for t, value in row.es.items() if value}) for row in rows]
    return charts.es_curves([charts.Curve(charts.EAGER, dict.fromkeys(steps, 1.0)), *curves], steps, ES_PIXELS)


def forest(board: Board) -> Drawing:
    """Return the chart of AS with its interval of a board's rows, best on top."""
    rows = [row for row in board.rows if row.as_ is not None and row.kind != "eager"][:MAX_ROWS]
    intervals = [charts.IntervalRow(_named(row, board), row.as_) for row in rows if row.as_ is not None]
    return charts.forest(intervals, "AS, eager = 1")


def _named(row: RankedRow, board: Board) -> str:
    """Return a row's name, with month, day and time of its run if another row has the same name."""
    alike = sum(other.name == row.name for other in board.rows) > 1
    return f"{row.name} ({when(row)[5:]})" if alike else row.name
