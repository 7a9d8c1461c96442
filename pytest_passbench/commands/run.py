"""``passbench run``: judge candidates without pytest, on this machine or on those of a Ray cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from pytest_passbench.api import evaluator
from pytest_passbench.api.arguments import begin_run
from pytest_passbench.api.backend import Backend, take
from pytest_passbench.core.errors import HARNESS_FAILED, UserError
from pytest_passbench.core.escape import printable
from pytest_passbench.core.options import OPTIONS, PYTEST_ONLY, Option, as_settings
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.record import Key, Record
from pytest_passbench.core.run import Run
from pytest_passbench.core.seed import commitment
from pytest_passbench.core.task import Task
from pytest_passbench.report import gates, terminal
from pytest_passbench.report.report import report_of
from pytest_passbench.run.journal import Journal, is_whole, remove
from pytest_passbench.run.ledger import Ledger, fresh_folder, writable, write

FAILED, INTERRUPTED = 1, 2
"""Exit codes, which are pytest's."""

HELP = (
    "Exit codes are those of a pytest run: 0 if all cases and gates passed, 1 if one failed, 2 after Ctrl+C, "
    f"{HARNESS_FAILED} if nothing failed and the machine could not judge some subgraph."
)
WRITTEN = ("results.json", "results.md", "report.html")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("candidates", type=Path, nargs="+", metavar="CANDIDATE", help="folder of passes to judge")
    parser.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help="judge on a Ray cluster: that at "
                        "ADDRESS, or of RAY_ADDRESS, or else a new one on this machine")  # fmt: skip
    for option in _options():
        action = "append" if option.many else "store"
        parser.add_argument(f"--{option.name}", dest=option.key, type=option.type, action=action,
                            metavar=option.metavar, help=option.help)  # fmt: skip


def _options() -> list[Option]:
    """Return the options of the table that the subcommand has. Candidates are arguments without a name."""
    return [option for option in OPTIONS if option.key not in PYTEST_ONLY | {"candidates"}]


def run(args: argparse.Namespace) -> int:
    """Judge, write the results, print the summary, and return the exit code."""
    values = {option.key: getattr(args, option.key) for option in _options()}
    settings = as_settings({**values, "candidates": args.candidates})
    if args.ray is not None and settings.against is not None:
        raise UserError("a reference is not sent to a cluster", where="--against", remedy="leave one of the two out")
    ledger, tasks = begin_run(settings)
    writable(settings.report_dir)
    name = "local" if args.ray is None else "ray"
    with closing(evaluator.make_backend(name, ledger.settings, True, args.ray or None)) as backend:
        folder = fresh_folder(settings.report_dir, ledger.started, [item.name for item in ledger.candidates])
        fault = _judge(backend, ledger, tasks, folder)
    code = _conclude(ledger, folder)
    if fault is not None:
        raise fault
    return code


def _judge(backend: Backend, ledger: Ledger, tasks: Sequence[Task], folder: Path) -> UserError | None:
    """Judge the tasks, into the ledger and a journal. Return the error that has ended it, if one has.

    Such an error is about a task that torch refuses, for example. What was judged before it is kept.
    """
    journal, progress = Journal(folder, ledger.header()), ProgressLines("run")
    total = sum(len(task.subgraphs) for task in tasks) * len(ledger.candidates)
    correct: dict[Key, bool] = {}

    def judged(record: Record) -> None:
        journal.add(record)
        correct[record.key] = record.correct
        progress.update(f"{len(correct)} of {total} subgraphs judged, {sum(correct.values())} correct")

    try:
        progress.stage(f"seed commitment {commitment(ledger.seed)}; {counted(len(tasks), 'task')}")
        take(backend, ledger, tasks, judged)
    except KeyboardInterrupt:
        ledger.interrupted = True
    except UserError as error:
        ledger.interrupted = True
        return error
    finally:
        progress.clear()
        journal.close()
    return None


def _conclude(ledger: Ledger, folder: Path) -> int:
    result = ledger.run()
    report = report_of(result)
    write(report, folder)
    if is_whole(result):
        remove(folder)
    print(terminal.summary(report, terminal.columns()))
    print("\n" + "\n".join(f"results: {printable(str(folder / name))}" for name in WRITTEN))
    print(f"seed: {ledger.seed.hex()}")
    verdicts = gates.check(result, ledger.settings.fail_under)
    for verdict in verdicts:
        print(verdict.line)
    return exit_code(result, [verdict.passed for verdict in verdicts])


def exit_code(result: Run, gates: Sequence[bool]) -> int:
    """Return the exit code of a run with these verdicts of its gates."""
    if result.interrupted:
        return INTERRUPTED
    if any(record.judged and not record.correct for record in result.records) or not all(gates):
        return FAILED
    return 0 if all(record.judged for record in result.records) else HARNESS_FAILED
