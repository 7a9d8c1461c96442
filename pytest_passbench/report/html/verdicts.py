"""The verdicts at the top of the page, a sentence or two for each candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run
from pytest_passbench.report import charts, tables
from pytest_passbench.report.html.rows import OutcomeCount, TaskRow
from pytest_passbench.score import board
from pytest_passbench.score.interval import Interval, digits


@dataclass(frozen=True)
class Verdict:
    """The verdict on a candidate: a sentence with its speed-up in front, and one about the rest."""

    candidate: str
    lead: str
    sentence: str
    kind: str
    endings: tuple[OutcomeCount, ...]


def verdict_on(run: Run, candidate: str, tasks: Sequence[TaskRow]) -> Verdict:
    """Return the verdict on a candidate, from its tasks' rows."""
    records = run.of(candidate)
    interval = tables.interval(records, "candidate", run, tables.tolerance(run), run.criterion)
    right, total = sum(task.correct for task in tasks), sum(task.total for task in tasks)
    lead, kind = _lead(interval, right, total)
    row = board.row(candidate, board.tasks_of(run, candidate, run.criterion), run.score_settings)
    when = tables.correct_when(run)
    sentences = [f"All {total} subgraphs are correct ({when})" if right == total else f"Right means correct {when}"]
    if row.scores.as_ is not None:
        sentences.append(f"AS is {tables.score(row.scores.as_)}, where eager has 1.000")
    violations = sum(finding.severity == "violation" for record in records for finding in record.findings)
    if violations:
        sentences.append(f"{counted(violations, 'violation')} of the rules")
    counts: Counter[str] = Counter()
    for task in tasks:
        counts.update({ending.name: ending.count for ending in task.endings})
    endings = tuple(OutcomeCount(count, name) for name, count in counts.most_common())
    return Verdict(candidate, lead, "; ".join(sentences) + ".", kind, endings)


def _lead(interval: Interval | None, right: int, total: int) -> tuple[str, str]:
    """Return what came out, in words that follow the candidate's name, and its class in the style.

    How many answers are right comes before how fast they are, unless all of them are.
    """
    if not right:
        return "has no correct answer" if total else "was not judged", "failed"
    some = f"is right on {right} of {total} subgraphs" if right < total else ""
    if interval is None:
        return " ".join(filter(None, [some or "is correct", "and no speed was measured"])), "unmeasured"
    ratio, ends = digits(interval.ratio), f"95 % interval {_range(interval)}"
    where = charts.outcome(interval)
    speed = {
        charts.FASTER: f"{ratio} times as fast as eager",
        charts.SLOWER: f"slower than eager, at {ratio} times its speed",
        charts.LEVEL: f"about as fast as eager, at {ratio} times its speed",
    }[where]
    if some:
        return f"{some}, and on those {speed} ({ends})", "partly"
    return f"is {speed} ({ends})", charts.OUTCOMES[where][0]


def _range(interval: Interval) -> str:
    return f"{digits(interval.low)} to {digits(interval.high)}"
