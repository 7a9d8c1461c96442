"""A stored run seen at another t, by another criterion, or of some of its tasks. Nothing is judged anew.

Records keep the smallest t at which each output passes, and its errors against float64. So what is correct follows
for any t and criterion. What the audit found was found at the run's own t, and :func:`caveats` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

from pytest_passbench.core.criterion import Criterion
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.run import Run
from pytest_passbench.report.tables import tolerance

MAX_NAMED = 10  # tasks in the message about one that is not there


def rescored(
    run: Run, at: int | None = None, criterion: Criterion | None = None, tasks: Sequence[str] = (), where: str = ""
) -> Run:
    """Return the run as if it had been made at t = ``at``, by ``criterion``, on ``tasks`` alone.

    None, and an empty sequence, leave the run's own. Raises UserError, which names the file ``where``, for a task
    that the run does not have. It does so too for a criterion that needs errors against float64 if there are none.
    """
    changed = {"tolerance": at, "criterion": criterion}
    settings = {**run.settings, **{name: value for name, value in changed.items() if value is not None}}
    if criterion not in (None, "ladder") and not run.has_accuracy:
        remedy = "judge again with this version, or leave --criterion out"
        what = f"has no errors against float64, so nothing is known by {criterion}"
        raise UserError(what, where=where, remedy=remedy)
    for name in tasks:
        if name not in run.tasks:
            named = nearest(name, run.tasks)[:MAX_NAMED]
            remedy = f"the run has: {', '.join(named)}" + (", ..." if len(run.tasks) > len(named) else "")
            raise UserError(f"has no task {abbreviated(name)}", where=where, remedy=remedy)
    selected = [name for name in run.tasks if name in tasks] if tasks else run.tasks
    records = [
        replace(
            record,
            tolerance=record.tolerance if at is None else at,
            criterion=record.criterion if criterion is None else criterion,
        )
        for record in run.records
        if not tasks or record.task in tasks
    ]
    return replace(run, settings=settings, tasks=selected, records=records)


def nearest(name: str, tasks: Sequence[str]) -> list[str]:
    """Return the tasks in the order of their likeness to a name. The ids that hold the name lead."""
    alike = get_close_matches(name, tasks, n=max(1, len(tasks)), cutoff=0.0)
    return sorted(alike, key=lambda task: name not in task)


def caveats(run: Run, view: Run) -> list[str]:
    """Return what ``view``, made of ``run`` by :func:`rescored`, does not say or says of less, a sentence each."""
    sentences = []
    run_tolerance = tolerance(run)
    if tolerance(view) != run_tolerance:
        sentences.append(
            f"Seen at t = {tolerance(view)}: what is correct was computed again. The audit's findings and the "
            f"greatest errors in messages are still those of the run, which was judged at t = {run_tolerance}."
        )
    if view.criterion != run.criterion:
        sentences.append(f"Seen by the criterion {view.criterion}; the run's own is {run.criterion}.")
    if len(view.tasks) < len(run.tasks):
        counts = f"{len(view.tasks)} of the run's {len(run.tasks)}"
        sentences.append(f"Only {counts} tasks: all scores are of these alone.")
    return sentences
