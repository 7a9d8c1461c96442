"""``passbench profile``: how a compiler fares beside eager, by eager's time, dtype and class of operators."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path

from pytest_passbench.commands.own_model import MODEL_HELP, SPECS, add_inputs, case_of, refuse_inputs, without_logs
from pytest_passbench.commands.results import warn_if_changed
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import write_text, writing
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.run import Run, plain
from pytest_passbench.core.settings import BASELINES, INDUCTOR, SUITES
from pytest_passbench.report import terminal
from pytest_passbench.report.pdf import save
from pytest_passbench.report.profile import page, profile, scatter, sentences, tables
from pytest_passbench.run import results_file

HELP = """\
Show how the default compiler fares on the subgraphs of a run that judged it
beside its candidates: on which share it is slower than eager, tied and faster,
by eager's time, dtype and class of operators. Or judge a model of your own with
it: a subgraph for each of its sizes.
"""
PICTURES, PAGES = (".svg", ".pdf"), (".html",)
MODEL = re.compile(r"\.py:\w+$")
PIXELS, INCHES = 720.0, 7.5


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog, parser.formatter_class = SPECS, argparse.RawDescriptionHelpFormatter
    about = f"results.json, a run's folder, or FILE.py:NAME: {MODEL_HELP}"
    parser.add_argument("file", type=Path, metavar="FILE", help=about)
    add_inputs(parser, "the model")
    parser.add_argument(
        "--picture", type=Path, metavar="PATH", help="write the picture of all subgraphs: .svg or .pdf"
    )
    parser.add_argument("--page", type=Path, metavar="PATH", help="write all of it as a page: .html")
    parser.add_argument("--baseline", choices=BASELINES, default=INDUCTOR,
        help=f"the compiler whose profile is shown (default: {INDUCTOR})")
    parser.add_argument("--json", action="store_true", help="print JSON, with every subgraph")


def run(args: argparse.Namespace) -> int:
    """Print the tables, and write the picture and the page if they are asked for."""
    _check_name(args.picture, PICTURES)
    _check_name(args.page, PAGES)
    stored = _judged(args) if MODEL.search(str(args.file)) else _stored(args)
    view = profile(stored, args.baseline)
    if not view.subgraphs:
        judged = [record.baselines[args.baseline] for record in stored.records if args.baseline in record.baselines]
        reason = next((f": {result.message}" for result in judged if result.message), "")
        remedy = "" if judged else f"judge with --passbench-baseline={args.baseline}"
        raise UserError(f"has no speed of the baseline {args.baseline}{reason}", where=args.file, remedy=remedy)
    if args.json:
        print(json.dumps(plain(view.to_json()), indent=1, allow_nan=False))
    else:
        width = terminal.columns()
        parts = [terminal.show(table, width, spare=()) for table in tables(view)]
        print("\n\n".join([*parts, "\n".join(sentences(view))]))
    if args.picture is not None:
        with writing(args.picture, "name another file"):
            save(scatter(view), args.picture, PIXELS, INCHES)
    if args.page is not None:
        write_text(args.page, page(view, stored))
    return 0


def _stored(args: argparse.Namespace) -> Run:
    """Return the run that is stored in a file. Raises UserError if there is none."""
    refuse_inputs(args)
    if str(args.file) in SUITES and not args.file.exists():
        command = f"pytest --passbench --candidate=DIR --passbench-suite={args.file}"
        remedy = f"judge it with {command} --passbench-baseline={args.baseline}"
        raise UserError("is a suite, not a run of it", where=args.file, remedy=remedy)
    path = results_file.located(args.file)
    stored = results_file.read(path)
    warn_if_changed(stored, path)
    return stored


def _judged(args: argparse.Namespace) -> Run:
    """Judge the model that is named, and return the run. Raises UserError for one that is not one graph."""
    import torch

    from pytest_passbench.api.whole_model import profiled

    torch.set_num_threads(1)
    args.model = str(args.file)
    with ProgressLines("profile") as progress, without_logs():
        case, remedy = case_of(args)
        return profiled(case, args.baseline, progress.stage, remedy)


def _check_name(path: Path | None, endings: Sequence[str]) -> None:
    if path is not None and path.suffix not in endings:
        raise UserError(f"the name must end in {' or '.join(endings)}", where=path)
