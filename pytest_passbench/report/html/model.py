"""The page as values for its template: verdicts, board, tasks, findings and the environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite, log
from typing import Any

from pytest_passbench.core.record import Record
from pytest_passbench.core.run import Run
from pytest_passbench.report import changes, charts, tables
from pytest_passbench.report.details import COMPARISONS
from pytest_passbench.report.tables import Interval
from pytest_passbench.score import board, es
from pytest_passbench.score.subgraph import NOT_JUDGED, Judged

SIGNS = {"faster": "▲", "same": "=", "slower": "▼", "unresolved": "?", tables.NOT_MEASURED: "–", NOT_JUDGED: "–",
         "harness_fail": "–"}  # fmt: skip
"""The sign and, by its name, the colour of each way in which a subgraph ends. Any other way is a failure."""

FAILED = "✕"
GLYPH_PIXELS, MARGIN_PIXELS = 150, 6
KINDS = {charts.FASTER: "faster", charts.SLOWER: "slower", charts.LEVEL: "same"}


@dataclass(frozen=True)
class Ending:
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


@dataclass(frozen=True)
class Glyph:
    """The small interval in a row of the table, in pixels from its left edge."""

    low: float
    high: float
    ratio: float
    kind: str


@dataclass(frozen=True)
class Scale:
    """The logarithmic scale of the small intervals: the ratios at its ends."""

    low: float
    high: float

    @property
    def one(self) -> float:
        """The place of 1 in pixels."""
        return self.pixel(1.0)

    def pixel(self, ratio: float) -> float:
        """Return the place of a ratio in pixels; one beyond an end is put there."""
        inside = min(max(ratio, self.low), self.high)
        share = log(inside / self.low) / log(self.high / self.low)
        return round(MARGIN_PIXELS + (GLYPH_PIXELS - 2 * MARGIN_PIXELS) * share, 1)

    def glyph(self, interval: Interval) -> Glyph:
        """Return a small interval."""
        kind = KINDS[charts.outcome(interval)]
        return Glyph(self.pixel(interval.low), self.pixel(interval.high), self.pixel(interval.ratio), kind)


@dataclass(frozen=True)
class Task:
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
    endings: tuple[Ending, ...]
    findings: int
    records: tuple[Record, ...] = ()
    start: int = 0

    @property
    def flags(self) -> str:
        """The groups that it belongs to, for the filter."""
        said = {ending.name for ending in self.endings}
        groups = {
            "correct": self.correct == self.total,
            "wrong": self.correct < self.total,
            "findings": self.findings > 0,
            "unresolved": "unresolved" in said,
            "slower": "slower" in said,
        }
        return " ".join(name for name, holds in groups.items() if holds)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a candidate: a sentence with its speed-up in front, and one about the rest."""

    candidate: str
    lead: str
    sentence: str
    kind: str
    endings: tuple[Ending, ...]


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


@dataclass
class Page:
    """The page's values. The library, the style and the script come on top."""

    title: str
    run: Run
    verdicts: list[Verdict]
    board: tables.Table
    scale: Scale
    es: tables.Table
    tasks: list[Task]
    findings: list[FindingRow]
    notes: list[str]
    facts: list[tuple[str, str]]
    noise: str
    environment: list[tuple[str, str]]
    settings: list[tuple[str, str]]
    comparisons: list[tables.Table] = field(default_factory=list)
    parts: list[list[tuple[str, str]]] = field(default_factory=list)
    correct_when: str = ""
    unmeasured: list[str] = field(default_factory=list)


def model(run: Run) -> Page:
    """Return a run as values for the page."""
    tasks = list(_tasks(run))
    ends, _ = charts.log_axis(charts.ends(task.interval for task in tasks if task.interval is not None))
    names = ", ".join(run.names) or "no candidate"
    return Page(
        title=f"PassBench: {names}",
        run=run,
        verdicts=[_verdict(run, name, [task for task in tasks if task.candidate == name]) for name in run.names],
        board=tables.board_table(run),
        scale=Scale(*ends),
        es=tables.es_table(run),
        tasks=tasks,
        findings=_findings(tasks),
        notes=[*tables.notes(run), *changes.notes(run)],
        facts=_facts(run),
        noise=_noise(run),
        environment=_listing(run.environment),
        settings=_listing(run.settings),
        comparisons=[found for name in run.names for make in COMPARISONS if (found := make(run, name)).rows],
        parts=[_listing(part) for part in run.parts],
        correct_when=tables.correct_when(run),
        unmeasured=[row.name for row in tables.rows(run) if row.scores.as_ is None],
    )


def _tasks(run: Run) -> Iterator[Task]:
    start = number = 0
    for candidate in run.names:
        records = run.of(candidate)
        judged = board.tasks_of(run, candidate, run.criterion)
        by_task: dict[str, list[Record]] = {task: [] for task in run.tasks}
        for record in records:
            by_task.setdefault(record.task, []).append(record)
        for task, group in by_task.items():
            yield _task(run, f"t{number}", task, candidate, group, judged.get(task, ()), start)
            start, number = start + len(group), number + 1


def _task(
    run: Run, key: str, name: str, candidate: str, records: list[Record], judged: Sequence[Judged], start: int
) -> Task:
    at, criterion = tables.tolerance(run), run.criterion
    correct = [record for record in records if record.correct]
    interval = tables.interval(correct, "candidate", run, at, criterion)
    endings = Counter(tables.ending(record) for record in records)
    missing = sum(item.status == NOT_JUDGED for item in judged)
    if missing:
        endings[NOT_JUDGED] += missing
    covered = tables.covered(records)
    value = es.evaluate(judged, run.score_settings).as_ if judged else None
    baselines = [
        (
            tables.speed_up(records, baseline, run, at, criterion).partition(" [")[0],
            _ratio(tables.interval(records, baseline, run, at, criterion)),
        )
        for baseline in run.baselines
    ]
    return Task(
        key=key,
        name=name,
        candidate=candidate,
        operators=" ".join(dict.fromkeys(records[0].operators)) if records else "",
        speed_up=tables.speed_up(correct, "candidate", run, at, criterion),
        interval=interval,
        baselines=tuple(baselines),
        correct=len(correct),
        total=len(judged),
        covered=covered,
        share=_share(records),
        score=tables.score(value) if judged else tables.NONE,
        as_=value,
        endings=tuple(Ending(count, ending) for ending, count in endings.most_common()),
        findings=sum(len(record.findings) for record in records),
        records=tuple(records),
        start=start,
    )


def _ratio(interval: Interval | None) -> float | None:
    return None if interval is None else interval.ratio


def _share(records: Sequence[Record]) -> float | None:
    """Return the share of the operators that passes covered, of all subgraphs together."""
    total = sum(len(record.operators) for record in records)
    covered = sum(len(item.operators) for record in records for item in record.passes if item.matches)
    return covered / total if total else None


def _verdict(run: Run, candidate: str, tasks: Sequence[Task]) -> Verdict:
    records = run.of(candidate)
    interval = tables.interval(records, "candidate", run, tables.tolerance(run), run.criterion)
    right, total = sum(task.correct for task in tasks), sum(task.total for task in tasks)
    lead, kind = _lead(interval, right, total)
    row = board.row(candidate, board.tasks_of(run, candidate, run.criterion), run.score_settings)
    when = tables.correct_when(run)
    said = [f"All {total} subgraphs are correct ({when})" if right == total else f"Right means correct {when}"]
    if row.scores.as_ is not None:
        said.append(f"AS is {tables.score(row.scores.as_)}, where eager has 1.000")
    violations = sum(finding.severity == "violation" for record in records for finding in record.findings)
    if violations:
        said.append(f"{violations} {'violation' if violations == 1 else 'violations'} of the rules")
    counts: Counter[str] = Counter()
    for task in tasks:
        counts.update({ending.name: ending.count for ending in task.endings})
    endings = tuple(Ending(count, name) for name, count in counts.most_common())
    return Verdict(candidate, lead, "; ".join(said) + ".", kind, endings)


def _lead(interval: Interval | None, right: int, total: int) -> tuple[str, str]:
    """Return what came out, in words that follow the candidate's name, and its class in the style.

    How many answers are right comes before how fast they are, unless all of them are.
    """
    if not right:
        return "has no correct answer" if total else "was not judged", "failed"
    some = f"is right on {right} of {total} subgraphs" if right < total else ""
    if interval is None:
        return " ".join(filter(None, [some or "is correct", "and no speed was measured"])), "unmeasured"
    ratio, ends = tables.digits(interval.ratio), f"95 % interval {_range(interval)}"
    where = charts.outcome(interval)
    speed = {
        charts.FASTER: f"{ratio} times as fast as eager",
        charts.SLOWER: f"slower than eager, at {ratio} times its speed",
        charts.LEVEL: f"about as fast as eager, at {ratio} times its speed",
    }[where]
    if some:
        return f"{some}, and on those {speed} ({ends})", "partly"
    return f"is {speed} ({ends})", KINDS[where]


def _range(interval: Interval) -> str:
    return f"{tables.digits(interval.low)} to {tables.digits(interval.high)}"


def _findings(tasks: Sequence[Task]) -> list[FindingRow]:
    """Return all findings, violations first; those that say the same of several subgraphs are one."""
    found: dict[tuple[str, str, str, str, str, str], list[tuple[str, str]]] = {}
    for task in tasks:
        for record in task.records:
            for item in record.findings:
                place = f"{item.file}:{item.line}" if item.file and item.line else item.file
                key = (item.severity, item.layer, item.rule, item.message, place, task.candidate)
                found.setdefault(key, []).append((f"{task.name}/{record.subgraph}", task.key))
    rows = [FindingRow(*key, *places[0], len(places)) for key, places in found.items()]
    return sorted(rows, key=lambda row: row.severity != "violation")


def _facts(run: Run) -> list[tuple[str, str]]:
    facts = [
        (f"candidate {item.get('name', '')}", f"{item.get('path', '')}, content {item.get('content_hash', '')}")
        for item in run.candidates
    ]
    judged = f"{len(run.tasks)} tasks, {len(run.records)} subgraphs judged"
    facts.append(("judged", judged + (f", edition {', '.join(run.editions)} of the suite" if run.editions else "")))
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


def _listing(values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(str(name), _flat(value)) for name, value in values.items()]


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_flat(item)}" for name, item in value.items()) or tables.NONE
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_flat, value)) or tables.NONE
    if isinstance(value, float):
        return f"{value:.4g}"
    return tables.NONE if value is None else str(value)


def overall(run: Run, candidate: str) -> list[charts.Row]:
    """Return the rows of a candidate and of the baselines over all tasks, for the forest plot."""
    at, criterion = tables.tolerance(run), run.criterion
    arms = [(f"all tasks: {candidate}", run.of(candidate), "candidate")]
    arms += [(f"all tasks: {name}", run.beside(name), name) for name in run.baselines]
    found = [(label, tables.interval(records, arm, run, at, criterion)) for label, records, arm in arms]
    return [charts.Row(label, interval) for label, interval in found if interval is not None]
