"""The values of the page's template, and the verdicts at its top, a sentence or two for each candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from markupsafe import Markup

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run
from pytest_passbench.report import charts, drawing, tables
from pytest_passbench.report.html.rows import OutcomeCount, TaskRow, findings
from pytest_passbench.report.report import Report
from pytest_passbench.report.run_text import extent, listing
from pytest_passbench.score import board, es
from pytest_passbench.score.interval import Interval, digits


def values(report: Report, tasks: Sequence[TaskRow]) -> dict[str, Any]:
    """Return the values of the page's template, by name. The style, the script and the data come on top."""
    run = report.run
    curves = charts.es_curves(report.curves, es.ladder(run.score_settings.interpretation))
    names = ", ".join(run.names) or "no candidate"
    return {
        "title": f"PassBench: {names}",
        "report": report,
        "run": run,
        "verdicts": [verdict_on(run, name, [task for task in tasks if task.candidate == name]) for name in run.names],
        "curves": Markup(drawing.in_page(curves)),
        "forests": {name: forest for name in run.names if (forest := _forest(run, name, tasks)) is not None},
        "tasks": tasks,
        "failing": any(task.correct < task.total for task in tasks),  # the first such task is then opened
        "findings": findings(tasks),
        "facts": _facts(run),
        "noise": _noise(run),
        "environment": listing(run.environment),
        "settings": listing(run.settings),
        "comparisons": [table for candidate in report.candidates for table in candidate.comparisons],
        "held_out": [candidate.held_out for candidate in report.candidates] if tables.has_held_out(run) else [],
        "about_held_out": tables.ABOUT_HELD_OUT,
        "parts": [listing(part) for part in run.parts],
        "correct_when": tables.correct_when(run),
        "unmeasured": [row.name for row in tables.rows(run) if row.scores.as_ is None],
    }


def _facts(run: Run) -> list[tuple[str, str]]:
    facts = [
        (f"candidate {item.get('name', '')}", ", ".join([
            str(item.get("path", "")), f"content {item.get('content_hash', '')}", *filter(None, [item.get("passes")]),
        ]))
        for item in run.candidates
    ]
    facts.append(("judged", extent(run)))
    if run.started:
        facts.append(("time", f"{run.started} to {run.finished or 'unknown'}"))
    facts += [(f"seed, {name}", str(value)) for name, value in run.seed.items()]
    if run.digest:
        facts.append(("digest of the results file", run.digest))
    return facts


def _noise(run: Run) -> str:
    """Return the noise floor in a sentence."""
    width, sessions = run.noise.get("width"), run.noise.get("sessions", 0)
    if not isinstance(width, (int, float)) or not isfinite(width):
        return "The noise floor was not measured: eager was not compared with itself in this run."
    shared = run.noise.get("offset", 0.0)
    often = f" in {sessions} sessions" if sessions else ""
    also = f" All ratios may share another {100 * shared:.1f} %." if isinstance(shared, float) and shared else ""
    return (
        f"Noise floor ±{100 * width:.1f} %: eager measured against eager lay within it 95 % of the time{often}.{also}"
    )


def _forest(run: Run, candidate: str, tasks: Sequence[TaskRow]) -> Markup | None:
    """Return the chart of a candidate's tasks, with the baselines over all tasks; None if no task has a speed-up."""
    rows = [
        charts.IntervalRow(task.name, task.interval, task.key)
        for task in tasks
        if task.candidate == candidate and task.interval is not None
    ]
    at, criterion = tables.tolerance(run), run.criterion
    correct = [record for record in run.of(candidate) if record.correct]
    arms = [(candidate, correct, "candidate"), *((name, run.beside(name), name) for name in run.baselines)]
    for name, records, arm in arms:
        interval = tables.interval(records, arm, run, at, criterion)
        if interval is not None and rows:
            rows.append(charts.IntervalRow(f"all tasks: {name}", interval, whole=True))
    return Markup(drawing.in_page(charts.forest(rows, "speed-up"))) if rows else None


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
    correct = [record for record in records if record.correct]
    interval = tables.interval(correct, "candidate", run, tables.tolerance(run), run.criterion)
    right, total = sum(task.correct for task in tasks), sum(task.total for task in tasks)
    lead, kind = _lead(interval, right, total)
    row = board.row(candidate, board.tasks_of(run, candidate, run.criterion), run.score_settings)
    when = tables.correct_when(run)
    all_right = 0 < total == right
    sentences = [f"All {total} subgraphs are correct ({when})" if all_right else f"Right means correct {when}"]
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
    ratio, ends = digits(interval.ratio), f"95 % interval {digits(interval.low)} to {digits(interval.high)}"
    where = charts.outcome(interval)
    speed = {
        charts.FASTER: f"{ratio} times as fast as eager",
        charts.SLOWER: f"slower than eager, at {ratio} times its speed",
        charts.LEVEL: f"about as fast as eager, at {ratio} times its speed",
    }[where]
    if some:
        return f"{some}, and on those {speed} ({ends})", "partly"
    return f"is {speed} ({ends})", charts.OUTCOMES[where][0]
