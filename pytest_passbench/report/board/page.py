"""Boards as one HTML file that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pytest_passbench.core.escape import line
from pytest_passbench.report.board import charts, sheets
from pytest_passbench.report.board.standings import Board
from pytest_passbench.report.board.texts import TITLE
from pytest_passbench.report.drawing import in_page

TEMPLATE = Path(__file__).with_name("page.html")


def render(boards: Sequence[Board]) -> str:
    """Return the page."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["plain"] = lambda text: line(str(text), 500)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=TITLE,
        boards=[_board(board, index) for index, board in enumerate(boards, 1)],
        about=sheets.ABOUT,
    )


def _board(board: Board, index: int) -> dict[str, Any]:
    table = sheets.rows_table(board, index)
    return {
        "index": index,
        "conditions": board.group.unusual,
        "table": table,
        "rows": list(zip(board.rows, table.rows, strict=True)),
        "remarks": sheets.remarks(board),
        "details": [table for table in (sheets.gap_table(board), sheets.es_table(board)) if table.rows],
        "files": [str(source.path) for source in board.group.sources],
        "charts": _charts(board, index),
    }


def _charts(board: Board, index: int) -> list[tuple[str, Markup]]:
    """Return the board's charts with their captions; none if no candidate has a score."""
    if all(row.kind == "eager" or row.as_ is None for row in board.rows):
        return []
    return [
        (f"AS with its 95 % interval, board {index}", Markup(in_page(charts.forest(board)))),
        (f"ES(t) at every tolerance t, board {index}", Markup(in_page(charts.es_curves(board)))),
    ]
