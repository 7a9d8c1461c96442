"""Boards as one HTML file that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.report.board import charts, sheets
from pytest_passbench.report.board.standings import Board
from pytest_passbench.report.board.texts import TITLE

TEMPLATE = Path(__file__).with_name("page.html")


def render(boards: Sequence[Board]) -> str:
    """Return the page. Without matplotlib it has no charts, and says how to get them."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["plain"] = lambda text: line(str(text), 500)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=TITLE,
        boards=[_board(board, index) for index, board in enumerate(boards, 1)],
        about=sheets.ABOUT,
    )


def _board(board: Board, index: int) -> dict[str, Any]:
    pictures, missing = _charts(board, index)
    table = sheets.rows_table(board, index)
    return {
        "index": index,
        "conditions": board.group.unusual,
        "table": table,
        "rows": list(zip(board.rows, table.rows, strict=True)),
        "remarks": sheets.remarks(board),
        "details": [found for found in (sheets.gap_table(board), sheets.es_table(board)) if found.rows],
        "files": [str(source.path) for source in board.group.sources],
        "charts": pictures,
        "missing": missing,
    }


def _charts(board: Board, index: int) -> tuple[list[tuple[str, Any]], str]:
    """Return the board's pictures with their captions, and why there are none."""
    from markupsafe import Markup

    captions = {
        f"AS with its 95 % interval, board {index}": charts.forest,
        f"ES(t) at every tolerance t, board {index}": charts.es_curves,
    }
    if all(row.kind == "eager" or row.as_ is None for row in board.rows):
        return [], ""
    try:
        # Safe as Markup: matplotlib escapes the text that it writes into SVG.
        made = [
            (title, Markup(charts.inline(board, draw, title, f"{draw.__name__}-{index}")))
            for title, draw in captions.items()
        ]
        return made, ""
    except UserError as error:
        return [], str(error)
