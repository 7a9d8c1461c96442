"""The tables of a head to head run: each candidate's ratio to the reference, measured in the same rounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log

from pytest_passbench.core.record import RAN, Record
from pytest_passbench.core.run import Run
from pytest_passbench.report.tables import NONE, NOT_MEASURED, Table, ending, offset, tally, timed
from pytest_passbench.score.interval import combined
from pytest_passbench.score.subgraph import ACCURACY

ALL = "all tasks"


def task_table(run: Run, candidate: str) -> Table:
    """Return a line per task of a candidate's ratio to the reference, the worst first, and one for all tasks.

    The table has no rows if the run has no reference.
    """
    records = [record for record in run.of(candidate) if record.against is not None]
    grouped = {task: [record for record in records if record.task == task] for task in run.tasks}
    rows = [(_rank(group), _row(task, group, offset(run))) for task, group in grouped.items() if group]
    rows.sort(key=lambda item: item[0])
    last = (_row(ALL, records, offset(run)),) if len(rows) > 1 else ()
    about = (
        "Ratio: the reference's time / the candidate's in the same rounds, the mean of what is correct in both, with "
        "its 95 % interval. Above 1 the candidate is faster."
    )
    headers = ("task", "ratio", "compared", "outcome")
    return Table(_title(run, candidate), headers, (*(row for _, row in rows), *last), about=about)


def subgraph_table(run: Run, candidate: str) -> Table:
    """Return a line per subgraph: both times in microseconds per call, the ratio, and the verdict or why it has none.

    The table has no rows if the run has no reference.
    """
    headers = ("task", "subgraph", "reference us", "candidate us", "ratio", "verdict")
    rows = tuple(
        (record.task, record.subgraph, *timed(record.head_to_head), _verdict(record))
        for record in run.of(candidate)
        if record.against is not None
    )
    about = "Times in microseconds per call. Ratio: reference us / candidate us, with its 95 % interval."
    return Table(f"{_title(run, candidate)}, by subgraph", headers, rows, about=about)


def reference(run: Run) -> str:
    """Return the name of the run's reference."""
    return str(run.against.get("name", "the reference"))


def why_not(record: Record) -> str:
    """Return why a subgraph has no ratio to the reference; empty if it has one."""
    if record.head_to_head is not None:
        return ""
    if not record.correct:
        return f"candidate: {ending(record)}"
    arm = record.result("reference")
    if arm.status != RAN:
        return f"reference: {arm.status}"
    if arm.correct_from and not record.is_correct("reference"):
        return f"reference: {ACCURACY}"
    return NOT_MEASURED


def _title(run: Run, candidate: str) -> str:
    return f"Head to head: {candidate} against {reference(run)}"


def _row(task: str, records: Sequence[Record], shared: float) -> tuple[str, ...]:
    speeds = [record.head_to_head for record in records if record.head_to_head is not None]
    mean, compared = combined(speeds, shared), f"{len(speeds)}/{len(records)}"
    return task, NONE if mean is None else str(mean), compared, tally(map(_verdict, records))


def _rank(records: Sequence[Record]) -> tuple[bool, float]:
    logs = [log(record.head_to_head.ratio) for record in records if record.head_to_head is not None]
    return not logs, sum(logs) / len(logs) if logs else inf


def _verdict(record: Record) -> str:
    return record.head_to_head.verdict.lower() if record.head_to_head is not None else why_not(record)
