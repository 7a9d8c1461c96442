"""``passbench plan``: a forecast of a run's duration, from the durations in a results file. Imports no torch."""

from __future__ import annotations

import argparse
import json
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_passbench.commands.results import add_file
from pytest_passbench.core.checks import count
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.plurals import counted

if TYPE_CHECKING:
    from pytest_passbench.core.run import Run
    from pytest_passbench.timing.forecast import Forecast


HELP = "Forecast a run's duration from the durations in a results file."


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("plan", help="forecast how long a run will take", description=HELP)
    add_file(parser)
    parser.add_argument("--workers", "-n", type=count, default=1, metavar="N", help="as pytest -n (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON: seconds, elapsed, phases, tasks")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the forecast, longest task first."""
    from pytest_passbench.run import results_file
    from pytest_passbench.timing.forecast import plan

    stored = results_file.read(args.file)
    durations = [(record.task, record.durations) for record in stored.records]
    try:
        made = plan(durations, unknown=_unmeasured(stored), workers=args.workers)
    except ValueError as error:
        raise UserError(str(error), where=args.file, remedy="give a file that a run wrote") from error
    print(json.dumps(to_json(made), indent=1) if args.json else render(made))
    return 0


def _unmeasured(stored: Run) -> dict[str, int]:
    """Return the run's tasks without a record (it was cut short), each with the median task's number of subgraphs."""
    counts: dict[str, int] = {}
    for record in stored.records:
        counts[record.task] = counts.get(record.task, 0) + 1
    typical = round(median(counts.values())) if counts else 1
    return {task: typical for task in stored.tasks if task not in counts}


def to_json(made: Forecast) -> dict[str, Any]:
    """Return the forecast as plain data: workers, seconds, elapsed, phases, tasks."""
    tasks = [
        {"task": t.task, "seconds": t.seconds, "subgraphs": t.subgraphs, "guessed": t.guessed} for t in made.tasks
    ]
    head = {"workers": made.workers, "seconds": made.seconds, "elapsed": made.elapsed}
    return {**head, "phases": made.phases, "tasks": tasks}


def render(made: Forecast) -> str:
    """Return one line per task, the seconds by phase, and the estimate."""
    lines = [f"{'seconds':>9}  {'subgraphs':>9}  task"]
    for t in made.tasks:
        lines.append(f"{t.seconds:9.2f}  {t.subgraphs:9}  {t.task}{'  (guessed)' if t.guessed else ''}")
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in made.phases.items())
    lines += ["", f"by phase: {phases or 'no durations stored'}"]
    lines.append(
        f"estimated: {_clock(made.elapsed)} on {counted(made.workers, 'worker')} ({_clock(made.seconds)} of work)"
    )
    return "\n".join(lines)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{seconds:.1f} s" if seconds < 60 else f"{whole // 60} min {whole % 60:02} s"
