"""Pictures of a board by matplotlib: ES(t) of every row, and AS with its interval.

As files they are made for a column of a paper: 3.4 inches wide, 8 points, fonts within the file. Rows differ by line
style and marker as well as by colour. The colours are told apart with any kind of colour vision (Okabe and Ito 2008,
Color Universal Design). In a page they are SVG whose colours are the page's own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import middle
from pytest_passbench.report.board.standings import Board, Standing, when

WIDTH = 3.4  # inches: a column of most two-column formats
MAX_ROWS = 12
"""The most rows in a picture; a board's best. More could not be told apart."""

INK = "#333333"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "osD^vP"
MAX_NAME = 34
FORMATS = ("svg", "pdf")

Draw = Callable[[Board], Any]


def write(boards: Sequence[Board], folder: Path) -> list[Path]:
    """Write ``es-curves`` and ``forest`` of each board as SVG and PDF, and return the files.

    Of several boards the second one's are called ``es-curves-2``. Raises UserError without matplotlib, or if the
    folder cannot be written to.
    """
    made = []
    with _matplotlib("path") as pyplot:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for index, board in enumerate(boards, 1):
                for name, draw in (("es-curves", es_curves), ("forest", forest)):
                    figure = draw(board)
                    for form in FORMATS:
                        path = folder / f"{name}{f'-{index}' if index > 1 else ''}.{form}"
                        figure.savefig(path, metadata={"Date": None} if form == "svg" else {"CreationDate": None})
                        made.append(path)
                    pyplot.close(figure)
        except OSError as error:
            remedy = "choose another folder, one that you may write to"
            raise UserError(f"cannot be written: {error.strerror}", where=folder, remedy=remedy) from error
    return made


def inline(board: Board, draw: Draw, title: str, mark: str) -> str:
    """Return one picture as SVG to be put into a page: text as text, colours by the page's variables.

    ``mark`` begins the names of its parts, and no other picture of the page may have it. Raises UserError without
    matplotlib.
    """
    with _matplotlib("none") as pyplot:
        figure = draw(board)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
        pyplot.close(figure)
    return _for_page(out.getvalue(), title, mark)


def es_curves(board: Board) -> Any:
    """Return the figure of ES(t) of a board's rows."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(WIDTH, 2.3), layout="constrained")
    rows = [row for row in board.rows if row.kind != "eager" and all(value for value in row.es.values())][:MAX_ROWS]
    axes.axhline(1.0, color=INK, linewidth=0.8, label="eager")
    for index, row in enumerate(rows):
        colour, dashes, marker = _style(index)
        axes.plot(list(row.es), list(row.es.values()), color=colour, linestyle=dashes, marker=marker, markersize=3,
                  linewidth=1.2, label=_named(row, board))  # fmt: skip
    steps = list(board.rows[0].es)
    axes.axvline(-5, color=INK, linewidth=0.4, linestyle=":")
    axes.set(yscale="log", xlabel="tolerance t", ylabel="ES(t)", xticks=steps[::2])
    _plain_ticks(axes.yaxis)
    figure.legend(loc="outside lower center", ncols=1 if any(len(_named(row, board)) > 18 for row in rows) else 2)
    figure.set_size_inches(WIDTH, 2.3 + 0.14 * len(rows))
    return figure


def forest(board: Board) -> Any:
    """Return the figure of AS with its interval of a board's rows, best on top."""
    from matplotlib import pyplot

    rows = [row for row in board.rows if row.as_ is not None and row.kind != "eager"][:MAX_ROWS]
    figure, axes = pyplot.subplots(figsize=(WIDTH, 0.75 + 0.24 * max(1, len(rows))), layout="constrained")
    for index, row in enumerate(rows):
        assert row.as_ is not None
        colour = _style(index)[0]
        low, high = max(row.as_.low, 1e-3), min(row.as_.high, 1e3)  # an interval without an end leaves the picture
        error = [[row.as_.ratio - low], [high - row.as_.ratio]]
        axes.errorbar([row.as_.ratio], [-index], xerr=error, color=colour, capsize=2, linewidth=1.2,
                      marker="o" if row.kind == "candidate" else "s", markersize=4,
                      markerfacecolor=colour if row.kind == "candidate" else "none")  # fmt: skip
    axes.axvline(1.0, color=INK, linewidth=0.8)
    axes.set(xscale="log", xlabel="AS (eager: 1)", ylim=(-len(rows) + 0.4, 0.6))
    axes.set_yticks([-index for index in range(len(rows))], [_named(row, board) for row in rows])
    _plain_ticks(axes.xaxis)
    return figure


def _style(index: int) -> tuple[str, Any, str]:
    again = index // len(COLOURS)  # the second of a colour has another line and another marker
    colour, dashes, markers = COLOURS[index % len(COLOURS)], index + again, index + 3 * again
    return colour, DASHES[dashes % len(DASHES)], MARKERS[markers % len(MARKERS)]


def _named(row: Standing, board: Board) -> str:
    """Return a row's name, with the time of its run if another row has the same name."""
    alike = sum(other.name == row.name for other in board.rows) > 1
    name = middle(row.name, MAX_NAME).replace("$", r"\$")  # a dollar would begin a formula
    return f"{name} ({when(row)})" if alike else name


def _plain_ticks(axis: Any) -> None:
    """Write the ticks of a logarithmic axis as plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(
        LogLocator(subs=(1.0, 2.0, 5.0) if high / low > 4 else (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0))
    )
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())


@contextmanager
def _matplotlib(svg_text: str) -> Iterator[Any]:
    """Yield pyplot with this module's settings. Raises UserError without matplotlib.

    ``svg_text``: "path" draws letters in SVG files, so that they need no font; "none" leaves text as it is.
    """
    try:
        import matplotlib
    except ImportError:
        remedy = "pip install 'pytest-passbench[plots]'"
        raise UserError("plots are drawn by matplotlib, which is not installed", remedy=remedy) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = {
        "font.size": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7,
        "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6,
        "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
        "pdf.fonttype": 42, "svg.fonttype": svg_text, "svg.hashsalt": "passbench", "savefig.pad_inches": 0.02,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        yield pyplot


def _for_page(svg: str, title: str, mark: str) -> str:
    """Return SVG without what only a file needs: its head, its size, and names that nothing refers to."""
    from html import escape

    body = svg[svg.index("<svg") :]
    used = set(re.findall(r'(?:href="#|url\(#)([\w.-]+)', body))
    body = re.sub(r' id="([\w.-]+)"', lambda match: match.group() if match[1] in used else "", body)
    body = re.sub(r'( id="|href="#|url\(#)([\w.-]+)', rf"\g<1>{mark}-\g<2>", body)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    for name, colour in [("ink", INK), *((f"c{index}", colour) for index, colour in enumerate(COLOURS))]:
        body = body.replace(colour, f"var(--{name})")
    head, _, rest = body.partition(">")
    head = re.sub(r' (width|height|version|xmlns(:\w+)?)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(title)}">{rest}'
