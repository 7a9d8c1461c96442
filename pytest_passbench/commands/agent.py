"""``passbench agent``: have a model write passes, turn by turn, with the judge as its tool (Inspect AI)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pytest_passbench.api.arguments import TaskShelf
from pytest_passbench.core.checks import whole
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import printable
from pytest_passbench.core.task import Task
from pytest_passbench.suite import find

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


HELP = """Have a model write passes for tasks: it writes files, has them judged, reads the feedback, and tries again.
Its best judged attempt counts. The same command goes on with an evaluation that was interrupted, and judges nothing
twice. Needs the extra agents. inspect view --log-dir DIR shows each attempt, and passbench board compares
models by the results files below DIR."""

INSTALL = "pip install 'pytest-passbench[agents]'"
OUT = Path("reports") / "agents"
RETRIES = 6
"""How often an endpoint is asked again, after 3 seconds and then after twice as many each time: 3 minutes in all."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--model", required=True, metavar="M", help="a model as Inspect names it: provider/name "
                        "(openai-api/NAME/MODEL for an endpoint of your own, hf/MODEL for a local one)")  # fmt: skip
    parser.add_argument("--tasks", action="append", metavar="TASKS", help="a suite, a task's id or file, or a folder "
                        "of tasks; may be given again (default: lite)")  # fmt: skip
    parser.add_argument("--turns", type=whole(1, 1000), default=10, metavar="N", help="answers of the model for a "
                        "task (default: 10)")  # fmt: skip
    parser.add_argument("--best-of", type=whole(1, 100), default=1, metavar="K", help="samples of each task: "
                        "the best and the mean are reported (default: 1)")  # fmt: skip
    parser.add_argument("--tokens", type=whole(1, 10**9), metavar="N", help="the most tokens for a sample")
    parser.add_argument("--seconds", type=whole(1, 10**6), metavar="N", help="the most seconds of work for a sample, "
                        "without waiting for the judge")  # fmt: skip
    parser.add_argument("--retries", type=whole(0, 100), default=RETRIES, metavar="N", help="how often an endpoint "
                        f"that fails is asked again before a sample is given up (default: {RETRIES})")  # fmt: skip
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="folder of the logs (default: "
                        "reports/agents)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Evaluate the model, print its scores, and return the exit code: 1 if a sample has none."""
    try:
        from pytest_passbench.agents.inspect_task import evaluate, passbench
    except ImportError as error:
        raise UserError(f"passbench agent needs {error.name or 'inspect_ai'}", remedy=INSTALL) from error
    from pytest_passbench.agents.environment import AnswerJournal
    from pytest_passbench.agents.inspect_results import write_results

    words, journal = args.tasks or ["lite"], args.out / "judged"
    tasks = TaskShelf().named(words)
    _check_names(words, tasks)
    task = passbench(",".join(words), args.turns, args.best_of, args.tokens, args.seconds, str(journal))
    log = evaluate(task, args.model, args.out, args.retries)
    complete = _print(log)
    results = write_results(log, tasks, AnswerJournal(journal), args.out / "results")
    print(printable(f"results: {results}") if results else "no results: nothing was judged")
    return 0 if complete else 1


def _check_names(words: Sequence[str], tasks: Sequence[Task]) -> None:
    """Raise UserError for a path or a name of a folder that does not say by itself which task is meant."""
    if with_comma := next((word for word in words if "," in word), None):
        raise UserError("there is a comma in it", where=with_comma, remedy="rename it")
    for task in tasks:
        if task.path.is_dir() and find.single(task.path.absolute()).id != task.id:
            what = "another folder, or a task, has the same name"
            raise UserError(what, where=task.path, remedy="give the folders different names")


def _print(log: EvalLog) -> bool:
    """Print a model's scores, and why samples have none. Return True if each sample has a score."""
    from pytest_passbench.agents.inspect_results import tokens_of

    samples = log.samples or []
    rows = [[item.name, metric.name.rpartition("/")[2], item.reducer or "", f"{metric.value:.3f}"]
            for item in (log.results.scores if log.results else [])
            for metric in item.metrics.values()]  # fmt: skip
    print(tabulate(rows, headers=["score", "metric", "of samples", "value"], disable_numparse=True))
    print(f"\n{log.eval.model}: {len(samples)} samples, {sum(map(tokens_of, samples)):,} tokens; log: {log.location}")
    failed = [sample for sample in samples if not sample.scores]
    for sample in failed:
        print(printable(f"{sample.id}: no score: {_reason(sample)}"))
    return bool(samples) and not failed


def _reason(sample: Any) -> str:
    return str(sample.error.message).splitlines()[-1] if sample.error and sample.error.message else "it did not end"
