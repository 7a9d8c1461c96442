"""The rows of the page's tables: of tasks, one for each candidate, and of findings; and how subgraphs end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_passbench.core.record import Record
from pytest_passbench.core.run import Run
from pytest_passbench.report import tables
from pytest_passbench.score import board, es
from pytest_passbench.score.interval import Interval
from pytest_passbench.score.subgraph import NOT_JUDGED, Judged

SIGNS = {"faster": "▲", "same": "=", "slower": "▼", "unresolved": "?", tables.NOT_MEASURED: "–", NOT_JUDGED: "–",
         "harness_fail": "–"}  # fmt: skip
"""The sign and, by its name, the colour of each way in which a subgraph ends. Any other way is a failure."""

FAILED = "✕"


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
        """At how many of the further sizes its answers are right."""
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


@dataclass(frozen=True)
class FindingRow:
    """A finding, and on how many subgraphs it was made. ``first`` is the key of the first one's task."""

    severity: str
    layer: str
    rule: str
    message: str
    place: str
    candidate: str
    task: str
    first: str
    count: int


def findings(tasks: Sequence[TaskRow]) -> list[FindingRow]:
    """Return all findings, violations first; those that say the same of several subgraphs are one."""
    places_by_finding: dict[tuple[str, str, str, str, str, str], list[tuple[str, str]]] = {}
    for task in tasks:
        for record in task.records:
            for item in record.findings:
                key = (item.severity, item.layer, item.rule, item.message, item.place, task.candidate)
                places_by_finding.setdefault(key, []).append((f"{task.name}/{record.subgraph}", task.key))
    rows = [FindingRow(*key, *places[0], len(places)) for key, places in places_by_finding.items()]
    return sorted(rows, key=lambda row: row.severity != "violation")


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
