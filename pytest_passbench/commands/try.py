"""``passbench try``: a whole model with a candidate's passes, beside eager and TorchInductor."""  # noqa: N999 - named as its subcommand is

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pytest_passbench.commands.own_model import HUB_HELP, MODEL_HELP, SPECS, add_inputs, case_of, without_logs
from pytest_passbench.core.checks import count
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.run import plain
from pytest_passbench.core.settings import Settings
from pytest_passbench.report import terminal, whole_model

HELP = """\
Judge a whole model with a candidate's passes: is it right, how fast is it beside
eager and TorchInductor in the same rounds, and where does the time go? The model
is captured as one graph, whose weights are drawn anew for each call. The exit
code is 1 if an answer does not agree with eager's.
"""
EXAMPLES = """\
a model whose inputs are token ids, at batch 1 with 128 tokens:
  passbench try model.py:Model --input="int1000 b n" --size=1,128 --candidate=DIR
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog, parser.formatter_class = EXAMPLES + SPECS, argparse.RawDescriptionHelpFormatter
    # fmt: off
    parser.add_argument("model", nargs="?", metavar="FILE.py:NAME", help=MODEL_HELP)
    parser.add_argument("--hub", metavar="ID|DIR", help=HUB_HELP)
    parser.add_argument("--candidate", type=Path, required=True, metavar="DIR", help="folder of passes to judge")
    add_inputs(parser, "the model")
    parser.add_argument("--pipeline", choices=("dynamo", "direct", "inductor"), default="dynamo",
                        help="how passes are applied (default: dynamo, as a backend of torch.compile)")
    parser.add_argument("--threads", type=count, default=1, metavar="N", help="threads of every program (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON, with eager's time of every call")
    # fmt: on


def run(args: argparse.Namespace) -> int:
    """Judge the model, print the result at each size, and return the exit code."""
    import torch

    from pytest_passbench.api.whole_model import TIMEOUT_SECONDS, tried

    if (args.model is None) == (args.hub is None):
        raise UserError("one model is to be named", where="try", remedy="give FILE.py:NAME, or --hub")
    torch.set_num_threads(1)
    settings = Settings(candidates=(args.candidate.resolve(),), suite="all", pipeline=args.pipeline,
                        threads=args.threads, timeout=TIMEOUT_SECONDS)  # fmt: skip
    with ProgressLines("try") as progress, without_logs():
        case, remedy = case_of(args)
        reports = tried(case, settings, progress.stage, remedy)
    if args.json:
        print(json.dumps(plain([report.to_json() for report in reports]), indent=1, allow_nan=False))
    else:
        width = terminal.columns()
        print(printable("\n\n\n".join(whole_model.text(report, width) for report in reports), LINES))
    return 0 if all(report.record.correct for report in reports) else 1
