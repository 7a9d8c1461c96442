"""The values of the page's template: its verdicts, a sentence or two for each candidate, and the rows of its tables.

The tables show tasks (a row for each candidate), findings, and how subgraphs end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from markupsafe import Markup

from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Finding, Record
from pytest_passbench.core.run import Run
from pytest_passbench.report import charts, drawing, tables
from pytest_passbench.report.report import Report
from pytest_passbench.report.run_text import extent, listing
from pytest_passbench.score import board, es
from pytest_passbench.score.interval import Interval, digits
from pytest_passbench.score.subgraph import NOT_JUDGED, Judged

SIGNS = {"faster": "▲", "same": "=", "slower": "▼", "unresolved": "?", tables.NOT_MEASURED: "–", NOT_JUDGED: "–",
         "harness_fail": "–"}  # fmt: skip
"""The sign and, by its name, the colour of each way in which a subgraph ends. Any other way is a failure."""

FAILED = "✕"


def values(report: Report, tasks: Sequence[TaskRow]) -> dict[str, Any]:
    """Return the values of the page's template, by name, without the style, the script and the data."""
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
    """Return the verdict in words that follow the candidate's name, and its class in the style sheet.

    Unless all answers are right, the number of right ones comes before their speed.
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


@dataclass(frozen=True)
class TaskRow:
    """A row of the table of tasks: one task for one candidate. ``start`` and ``count``: its subgraphs in the data."""

    key: str
    name: str
    candidate: str
    operators: str
    speed_up: str
    interval: Interval | None
    baselines: tuple[tuple[str, float | None], ...]
    correct: int
    total: int
    covered: str
    share: float | None
    score: str
    as_: float | None
    endings: tuple[OutcomeCount, ...]
    findings: int
    records: tuple[Record, ...] = ()
    start: int = 0

    @property
    def held_out(self) -> str:
        """The number of further sizes at which its answers are right, and that of all, as text."""
        return tables.held_out_share(self.records)

    @property
    def held_out_share(self) -> float | None:
        """The same as a number, None if no further size was judged."""
        total = sum(len(record.held_out_judged) for record in self.records)
        return 1 - sum(len(record.held_out_failures) for record in self.records) / total if total else None

    @property
    def retention(self) -> Interval | None:
        """The part of its speed-up that is left at further sizes."""
        return tables.speed_retention(self.records)

    @property
    def flags(self) -> str:
        """The groups that it belongs to, for the filter."""
        names = {ending.name for ending in self.endings}
        groups = {
            "correct": 0 < self.total == self.correct,
            "wrong": self.correct < self.total,
            "findings": self.findings > 0,
            "unresolved": "unresolved" in names,
            "slower": "slower" in names,
        }
        return " ".join(name for name, holds in groups.items() if holds)


def rows(run: Run) -> Iterator[TaskRow]:
    """Yield a row for each candidate and task.

    Those with a wrong or failed answer come first. Else candidates are in order, each with all of the run's tasks.
    """
    groups = [
        (task, candidate, group, judged.get(task, ()))
        for candidate in run.names
        for judged in (board.tasks_of(run, candidate, run.criterion),)
        for task, group in run.by_task(candidate).items()
    ]
    groups.sort(key=lambda item: sum(record.correct for record in item[2]) >= len(item[3]))
    start = 0
    for number, (task, candidate, group, judged) in enumerate(groups):
        yield _task(run, f"t{number}", task, candidate, group, judged, start)
        start += len(group)


def _task(
    run: Run, key: str, name: str, candidate: str, records: list[Record], judged: Sequence[Judged], start: int
) -> TaskRow:
    at, criterion = tables.tolerance(run), run.criterion
    correct = [record for record in records if record.correct]
    interval = tables.interval(correct, "candidate", run, at, criterion)
    endings = Counter(tables.ending(record) for record in records)
    missing = sum(item.status == NOT_JUDGED for item in judged)
    if missing:
        endings[NOT_JUDGED] += missing
    value = es.evaluate(judged, run.score_settings).as_ if judged else None
    means = [tables.interval(records, baseline, run, at, criterion) for baseline in run.baselines]
    texts = [tables.speed_up(records, baseline, run, at, criterion) for baseline in run.baselines]
    ratios = [None if mean is None else mean.ratio for mean in means]
    return TaskRow(
        key=key,
        name=name,
        candidate=candidate,
        operators=" ".join(dict.fromkeys(records[0].operators)) if records else "",
        speed_up=tables.speed_up(correct, "candidate", run, at, criterion),
        interval=interval,
        baselines=tuple(zip([text.partition(" [")[0] for text in texts], ratios, strict=True)),
        correct=len(correct),
        total=len(judged),
        covered=tables.covered(records),
        share=_share(records),
        score=tables.score(value) if judged else tables.NONE,
        as_=value,
        endings=tuple(OutcomeCount(count, ending) for ending, count in endings.most_common()),
        findings=sum(len(record.findings) for record in records),
        records=tuple(records),
        start=start,
    )


def _share(records: Sequence[Record]) -> float | None:
    """Return the share of the operators that passes covered, of all subgraphs together."""
    total = sum(len(record.operators) for record in records)
    covered = sum(len(item.operators) for record in records for item in record.passes if item.matches)
    return covered / total if total else None


def findings(tasks: Sequence[TaskRow]) -> list[list[tuple[Finding, Record, TaskRow]]]:
    """Return findings with their subgraphs and tasks, violations first. Equal ones of a candidate are in one list."""
    places = [(finding, record, task) for task in tasks for record in task.records for finding in record.findings]
    alike = grouped(places, lambda item: (repr(item[0]), item[2].candidate)).values()
    return sorted(alike, key=lambda group: group[0][0].severity != "violation")


@dataclass(frozen=True)
class OutcomeCount:
    """A way in which subgraphs ended, and how many did."""

    count: int
    name: str

    @property
    def sign(self) -> str:
        """A character that stands for it."""
        return SIGNS.get(self.name, FAILED)

    @property
    def kind(self) -> str:
        """Its class in the style sheet."""
        named = self.name if self.name in ("faster", "same", "slower", "unresolved") else "failed"
        return "unmeasured" if SIGNS.get(self.name) == "–" else named
