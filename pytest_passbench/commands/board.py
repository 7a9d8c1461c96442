"""``passbench board``: the candidates of several runs, best first, beside those that they can be compared with."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pytest_passbench.commands.results import add_file
from pytest_passbench.core.checks import share
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated, printable
from pytest_passbench.core.files import write_text
from pytest_passbench.report import terminal
from pytest_passbench.report.board import conditions, page, standings, texts
from pytest_passbench.report.board.conditions import RunFile
from pytest_passbench.report.board.standings import Board
from pytest_passbench.run import results_file

FORMATS = (".html", ".md", ".csv", ".tex")
TERMINAL = "-"


HELP = "Show the candidates of several runs, best first, beside those that they can be compared with."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser, "files", nargs="+")
    parser.add_argument(
        "-o",
        "--output",
        action="append",
        default=[],
        metavar="OUT",
        help=f"file to write, its form by its suffix: {', '.join(FORMATS)}; {TERMINAL} prints; may be repeated "
        f"(default: {TERMINAL})",
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help="folder for ES(t) and AS as SVG and PDF")
    parser.add_argument("--latest", action="store_true", help="of each candidate only the newest run")
    parser.add_argument(
        "--between-runs",
        type=share,
        metavar="SHARE",
        help="by how much two runs of the same candidate may differ, 0 to 1 (default: 0.12)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the boards."""
    outputs = [_checked(out) for out in args.output] or [TERMINAL]
    groups = conditions.grouped(_sources(args.files))
    between = standings.BETWEEN_RUNS if args.between_runs is None else args.between_runs
    boards = [standings.standings(group, args.latest, between) for group in groups]
    files = [Path(out) for out in outputs if out != TERMINAL]
    for path in files:
        _write(boards, path)
    if args.plots is not None:
        files += page.write(boards, args.plots)
    for path in files:
        print(printable(str(path)), file=sys.stderr if TERMINAL in outputs else sys.stdout)
    if TERMINAL in outputs:
        print(texts.text(boards, terminal.columns()))
    return 0


def _checked(out: str) -> str:
    if out != TERMINAL and Path(out).suffix not in FORMATS:
        remedy = f"end it in {', '.join(FORMATS)}, or give {TERMINAL}"
        raise UserError(f"unknown suffix {abbreviated(Path(out).suffix)}", where=out, remedy=remedy)
    return out


def _sources(files: Sequence[Path]) -> list[RunFile]:
    """Return the runs in the files, each once. Raises UserError for a file that was changed."""
    sources: dict[str, RunFile] = {}
    for file in files:
        path = results_file.located(file)
        read = results_file.read(path)
        results_file.check_untouched(read, path, "leave it out")
        if read.digest in sources:
            same = f"{path} is the same run as {sources[read.digest].path}: counted once"
            print(f"passbench: {printable(same)}", file=sys.stderr)
        sources.setdefault(read.digest, RunFile(path, read))
    return list(sources.values())


def _write(boards: Sequence[Board], path: Path) -> None:
    make: dict[str, Callable[[Sequence[Board]], str]] = {
        ".html": partial(page.render, folder=path.parent),
        ".md": texts.as_markdown,
        ".csv": texts.as_csv,
        ".tex": texts.as_latex,
    }
    write_text(path, make[path.suffix](boards))
