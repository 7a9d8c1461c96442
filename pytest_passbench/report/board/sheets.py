"""A board as tables of text: what the terminal, Markdown, LaTeX and the page show of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_passbench.report.board.standings import KINDS, Board, Gap, RankedRow, label, when
from pytest_passbench.report.tables import NONE, NOT_MEASURED, Table
from pytest_passbench.score import es
from pytest_passbench.score.interval import Interval

SPARE = ("subgraphs", "fast_1 %", "AS (fp64)", "correct (fp64) %", "G-Mean")
"""The columns that a narrow terminal does without, in the order in which it leaves them out."""

ABOUT = (
    "Best AS first, with the 95 % interval that measuring leaves. AS: a score for all t together; eager's is 1. "
    "Alike: rows that share a letter do not differ, as far as these runs can tell. Above / this: the AS of the row "
    "above over that of this row, on the subgraphs that both have; all intervals of such ratios together hold with "
    "95 %. Real: yes, if the interval excludes 1; no, if it lies within the noise; else unresolved. G-Mean and "
    "fast_1: the mean speed-up of what is correct at t = -5, and the share that is faster than eager. (fp64): "
    "correct is what is as accurate as eager."
)


def rows_table(board: Board, index: int) -> Table:
    """Return the table of a board's rows, the ``index``-th board from 1."""
    headers = (
        "", "AS", "alike", "above / this", "real", "G-Mean", "AS (fp64)", "correct %", "correct (fp64) %", "fast_1 %",
        "subgraphs", "run", "content",
    )  # fmt: skip
    rows = tuple(_row(row) for row in board.rows)
    return Table(f"Board {index}", headers, rows, brief=("G-Mean", "above / this"), about=ABOUT)


def es_table(board: Board) -> Table:
    """Return the table of ES(t) of a board's rows."""
    steps = es.ladder(board.group.sources[0].run.score_settings.interpretation)
    rows = tuple((name(row), when(row), *(_number(row.es[t]) for t in steps)) for row in board.rows)
    about = "The mean speed-up at tolerance t, where a failure counts b, unless t tolerates it."
    return Table("ES(t)", ("t", "run", *map(str, steps)), rows, about=about)


def narrow(table: Table, board: Board) -> Table:
    """Return a table of all rows without their runs, whose times are with the names if names are repeated."""
    repeated = len({row.name for row in board.rows}) < len(board.rows)
    names = [label(row) if repeated else name(row) for row in board.rows]
    rows = tuple((label_text, *cells[1:]) for label_text, cells in zip(names, table.rows, strict=True))
    narrowed = replace(table, rows=rows).without("run")
    return narrowed.without("content") if "content" in narrowed.headers else narrowed


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
    """Return a row's name, with what it is if it is no candidate."""
    return f"{row.name} ({KINDS[row.kind]})" if KINDS[row.kind] else row.name


def remarks(board: Board) -> Sequence[str]:
    """Return why the board is apart from others, and its notes, a sentence each."""
    return [*filter(None, [board.group.apart]), *board.notes]


def interval(ratio: Interval | None) -> str:
    """Return a ratio with its interval as the other tables write it."""
    return NOT_MEASURED if ratio is None else str(ratio)


def _row(row: RankedRow) -> tuple[str, ...]:
    exact = row.kind == "eager"
    return (
        name(row),
        "1.000" if exact else interval(row.as_),
        row.letters or NONE,
        NONE if row.gap is None else interval(row.gap.contrast.ratio),
        NONE if row.gap is None else row.gap.real,
        "1.000" if exact else NONE if row.gmean is None else str(row.gmean),
        _number(row.as_fp64),
        _percent(row.correct),
        _percent(row.correct_fp64),
        _percent(row.fast1),
        row.judged,
        when(row) or NONE,
        row.content or NONE,
    )


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


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100.0 * value:.1f}"
