"""``passbench profile``: how a compiler fares beside eager, by eager's time, dtype and class of operators."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_passbench.commands.results import add_file, warn_if_changed
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import BASELINES, INDUCTOR

if TYPE_CHECKING:
    from pytest_passbench.report.profile import CompilerProfile

HELP = """Show how the default compiler fares on the subgraphs of a run that judged it beside its candidates: on which
share it is slower than eager, tied and faster, by eager's time, dtype and class of operators."""
PICTURES, PAGES = (".svg", ".pdf"), (".html",)
PIXELS, INCHES = 720.0, 7.5


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("profile", help="show how TorchInductor fares beside eager", description=HELP)
    add_file(parser)
    parser.add_argument(
        "--picture", type=Path, metavar="PATH", help="write the picture of all subgraphs: .svg or .pdf"
    )
    parser.add_argument("--page", type=Path, metavar="PATH", help="write all of it as a page: .html")
    parser.add_argument("--baseline", choices=BASELINES, default=INDUCTOR,
        help=f"the compiler whose profile is shown (default: {INDUCTOR})")
    parser.add_argument("--json", action="store_true", help="print JSON, with every subgraph")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the tables, and write the picture and the page if they are asked for."""
    from pytest_passbench.core.files import write_text
    from pytest_passbench.core.run import plain
    from pytest_passbench.report import terminal
    from pytest_passbench.report.profile import profile, sentences, tables
    from pytest_passbench.report.profile_page import page
    from pytest_passbench.run import results_file

    _check_name(args.picture, "picture", PICTURES)
    _check_name(args.page, "page", PAGES)
    path = results_file.located(args.file)
    stored = results_file.read(path)
    warn_if_changed(stored, path)
    view = profile(stored, args.baseline)
    if not view.subgraphs:
        remedy = f"judge with --passbench-baseline={args.baseline}"
        raise UserError(f"has no speed of the baseline {args.baseline}", where=path, remedy=remedy)
    if args.json:
        print(json.dumps(plain(view.to_json()), indent=1, allow_nan=False))
    else:
        width = terminal.columns()
        parts = [terminal.show(table, width, spare=()) for table in tables(view)]
        print("\n\n".join([*parts, "\n".join(sentences(view))]))
    if args.picture is not None:
        _write_picture(view, args.picture)
    if args.page is not None:
        write_text(args.page, page(view, stored))
    return 0


def _check_name(path: Path | None, kind: str, endings: Sequence[str]) -> None:
    if path is not None and path.suffix not in endings:
        raise UserError(f"is no {kind}'s name", where=path, remedy=f"end it in {' or '.join(endings)}")


def _write_picture(view: CompilerProfile, path: Path) -> None:
    """Write the chart of all subgraphs. Raises UserError if the file cannot be written."""
    from pytest_passbench.report.drawing import as_file
    from pytest_passbench.report.pdf import as_pdf
    from pytest_passbench.report.profile_chart import scatter

    drawing = scatter(view)
    try:
        if path.suffix == ".pdf":
            path.write_bytes(as_pdf(drawing, PIXELS, INCHES))
        else:
            path.write_text(as_file(drawing, PIXELS, INCHES), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=path, remedy="name another file") from error
