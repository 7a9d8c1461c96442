"""The rows of a board: every candidate and baseline of comparable runs, best first, and what is known of each gap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from math import log, log1p
from typing import Literal

from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run
from pytest_passbench.report import run_text, tables
from pytest_passbench.report.board.conditions import ComparableRuns, RunFile
from pytest_passbench.score import board, es
from pytest_passbench.score.as_interval import Contrast, Terms, contrast, eager_terms, mean_terms, score, terms
from pytest_passbench.score.interval import Interval
from pytest_passbench.score.possible import ALL, Possible, with_total
from pytest_passbench.score.subgraph import NOT_JUDGED, Judged

Kind = Literal["candidate", "baseline", "eager"]
Real = Literal["yes", "no", "unresolved"]

EAGER = "eager"
KINDS: dict[Kind, str] = {"candidate": "", "baseline": "baseline", "eager": "reference"}
BETWEEN_RUNS = 0.12
"""The largest difference of a candidate's runs on one machine, a share (benchmarks/LOG.md, "From day to day")."""

DELTA = 0.02
"""The difference (a share) that counts as none if a run does not state one (``noise.delta``)."""


@dataclass(frozen=True)
class Gap:
    """The ratio of the AS of the row above to that of the row that has this gap, and whether it is real.

    "no" means that the difference, whatever it is, is below the noise.
    """

    above: str
    contrast: Contrast
    real: Real


@dataclass(frozen=True)
class RankedRow:
    """A row of the board. Shares are in 0 .. 1; None means: not available. ``as_`` has the interval of measuring.

    Several complete runs that judged the same content have one row: ``each`` has the AS of each run, in the order of
    time. ``started``, ``path`` and the counts are those of the newest.
    """

    name: str
    kind: Kind
    started: str
    content: str
    path: str
    as_: Interval | None
    as_fp64: float | None
    gmean: Interval | None
    correct: float | None
    correct_fp64: float | None
    fast1: float | None
    subgraphs: int
    missing: int
    es: Mapping[int, float | None]
    possible: Mapping[str, Possible]  # of each class, and of all
    left_out: int = 0  # subgraphs that are not among the row's, since Triton's interpreter runs smaller ones
    gap: Gap | None = None
    passes: str = ""  # what passes a candidate has, in words
    effort: Mapping[str, int] = field(default_factory=dict)  # of a model: its samples, turns, attempts and tokens
    each: tuple[float, ...] = ()
    letters: str = ""  # rows that share a letter do not differ as far as is known

    @property
    def judged(self) -> str:
        """The number of subgraphs judged, with that of all subgraphs if some were not."""
        return tables.share(self.subgraphs - self.missing, self.subgraphs + self.left_out)


@dataclass(frozen=True)
class Board:
    """A group's rows, best first, and what a reader must know, a sentence each."""

    group: ComparableRuns
    rows: tuple[RankedRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Judgement:
    """A candidate or baseline as one run judged it: the subgraphs of each task, by agreement and by accuracy."""

    source: RunFile
    name: str
    kind: Kind
    agreeing: Mapping[str, list[Judged]]
    accurate: Mapping[str, list[Judged]]
    content: str = ""
    passes: str = ""
    effort: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def terms(self) -> Terms | None:
        """The terms of its AS."""
        return terms(self.agreeing, self.source.run.score_settings)

    @property
    def identity(self) -> tuple[str, ...]:
        """A key that judgements of one row share. A judgement that lacks subgraphs has a row of its own."""
        missing = any(item.status == NOT_JUDGED for group in self.agreeing.values() for item in group)
        apart = self.source.run.digest if missing or self.terms is None else ""
        return self.kind, self.name, self.content, apart


@dataclass(frozen=True)
class _UnrankedRow:
    """A row before it has its place: its terms of AS, and what its runs say of noise. Eager's row has no run."""

    row: RankedRow
    terms: Terms | None
    runs: tuple[Run, ...]
    offset: float


def standings(group: ComparableRuns, latest: bool = False, between: float = BETWEEN_RUNS) -> Board:
    """Return the board of a group of comparable runs.

    ``latest``: of every candidate (by name) and baseline only the newest run counts. ``between`` is what two runs of
    the same candidate may differ by, as a share.
    """
    judgements = [judgement for source in group.sources for judgement in _judgements(source)]
    judgements.sort(key=lambda item: item.source.run.started)
    if latest:
        judgements = list({(item.kind, item.name): item for item in judgements}.values())
    entries = [_entry(same) for same in grouped(judgements, lambda item: item.identity).values()]
    all_terms = [entry.terms for entry in entries if entry.terms is not None]
    entries.append(_eager(group.sources[0].run, all_terms))
    entries.sort(key=lambda entry: (-(entry.row.as_.ratio if entry.row.as_ else 0.0), entry.row.name))
    gaps = _gaps(entries, between)
    apart = {pair for pair, gap in gaps.items() if gap.real == "yes"}
    ranked = [index for index, entry in enumerate(entries) if entry.terms is not None]
    named = letters(ranked, apart)
    rows = [
        replace(entry.row, gap=gaps.get((index - 1, index)), letters=named.get(index, ""))
        for index, entry in enumerate(entries)
    ]
    return Board(group, tuple(rows), tuple(_notes(group, entries, between)))


def letters(items: Sequence[int], apart: Set[tuple[int, int]]) -> dict[int, str]:
    """Return letters for places in a ranking, so that two of them share one if and only if they are not ``apart``.

    The method is "insert and absorb" (Piepho 2004, J. Comput. Graph. Stat. 13:456). ``apart`` has pairs in order.
    """
    columns = [frozenset(items)]
    for a, b in sorted(apart):
        both = [column for column in columns if {a, b} <= column]
        parts = [column - {item} for column in both for item in (a, b)]
        others = [column for column in columns if column not in both]
        columns = others + [part for part in parts if not any(part < other for other in (*others, *parts))]
        columns = list(dict.fromkeys(columns))
    columns.sort(key=sorted)
    names = {column: _letter(index) for index, column in enumerate(columns)}
    return {item: " ".join(name for column, name in names.items() if item in column) for item in items}


def _letter(index: int) -> str:
    """Return a, b, ... z, aa, ab and so on."""
    last = "abcdefghijklmnopqrstuvwxyz"[index % 26]
    return last if index < 26 else _letter(index // 26 - 1) + last


def _judgements(source: RunFile) -> Iterable[_Judgement]:
    run = source.run
    described = {str(item.get("name")): item for item in run.candidates}
    for name in run.names:
        item = described.get(name, {})
        agreeing, accurate = board.tasks_of(run, name, "ladder"), board.tasks_of(run, name, "fp64")
        yield _Judgement(source, name, "candidate", agreeing, accurate, str(item.get("content_hash", ""))[:8],
                         str(item.get("passes", "")), item.get("model", {}))  # fmt: skip
    for name in run.baselines:
        agreeing, accurate = board.baseline_of(run, name, "ladder"), board.baseline_of(run, name, "fp64")
        yield _Judgement(source, name, "baseline", agreeing, accurate)


def _entry(judgements: Sequence[_Judgement]) -> _UnrankedRow:
    """Return the row of one content's judgements, the newest last. Each of them has the same weight."""
    newest = judgements[-1]
    runs = tuple(item.source.run for item in judgements)
    settings, offset = runs[-1].score_settings, max(map(tables.offset, runs))
    agreeing, accurate = (_together([getattr(item, by) for item in judgements]) for by in ("agreeing", "accurate"))
    row, precise = (board.row(newest.name, tasks, settings) for tasks in (agreeing, accurate))
    count = board.row(newest.name, dict(newest.agreeing), settings)
    all_terms = [item.terms for item in judgements]
    row_terms = mean_terms([part for part in all_terms if part is not None]) if None not in all_terms else None
    has_accuracy, candidate = all(run.has_accuracy for run in runs), newest.kind == "candidate"
    records = [record for run in runs for record in (run.of if candidate else run.beside)(newest.name)]
    standing = RankedRow(
        name=newest.name,
        kind=newest.kind,
        started=runs[-1].started,
        content=newest.content,
        path=str(newest.source.path),
        as_=None if row_terms is None else score(row_terms, offset),
        as_fp64=precise.scores.as_ if has_accuracy else None,
        gmean=tables.interval(records, "candidate" if candidate else newest.name, runs[-1]),
        correct=row.correct,
        correct_fp64=precise.correct if has_accuracy else None,
        fast1=row.fast1,
        subgraphs=count.subgraphs,
        missing=count.missing,
        es=row.scores.es,
        possible=with_total([item for group in agreeing.values() for item in group]),
        left_out=runs[-1].left_out(newest.name) if candidate else 0,
        passes=newest.passes,
        effort=newest.effort,
        each=tuple(score(part, 0.0).ratio for part in all_terms if part is not None),
    )
    return _UnrankedRow(standing, row_terms, runs, offset)


def _together(tasks: Sequence[Mapping[str, list[Judged]]]) -> dict[str, list[Judged]]:
    """Return the subgraphs of several judgements, by task."""
    names = dict.fromkeys(name for groups in tasks for name in groups)
    return {name: [item for groups in tasks for item in groups.get(name, [])] for name in names}


def _eager(run: Run, all_terms: Sequence[Terms]) -> _UnrankedRow:
    """Return eager's row: 1 by definition, on every subgraph of any row."""
    like = {task: group for row_terms in all_terms for task, group in row_terms.items()}
    exact, steps = Interval(1.0, 1.0, 1.0), es.ladder(run.score_settings.interpretation)
    row = RankedRow(
        EAGER, "eager", "", "", "", Interval(1.0, 1.0, 1.0), 1.0, exact, 1.0, 1.0, 1.0,
        sum(map(len, like.values())), 0, dict.fromkeys(steps, 1.0), {ALL: Possible(0.0, 0)},
    )  # fmt: skip
    return _UnrankedRow(row, eager_terms(like), (), 0.0)


def _gaps(entries: Sequence[_UnrankedRow], between: float) -> dict[tuple[int, int], Gap]:
    """Return what is known of the difference of every two rows, by their places."""
    pairs = list(combinations(range(len(entries)), 2))
    gaps = {(a, b): _gap(entries[a], entries[b], len(pairs), between) for a, b in pairs}
    return {pair: gap for pair, gap in gaps.items() if gap is not None}


def _gap(upper: _UnrankedRow, lower: _UnrankedRow, comparisons: int, between: float) -> Gap | None:
    if upper.terms is None or lower.terms is None:
        return None
    one_run = not upper.runs or not lower.runs or set(map(id, upper.runs)) == set(map(id, lower.runs))
    shared = upper.offset + lower.offset + (0.0 if one_run else log1p(between))
    difference = contrast(upper.terms, lower.terms, shared, comparisons)
    if difference is None:
        return None
    deltas = [float(run.noise.get("delta", DELTA)) for entry in (upper, lower) for run in entry.runs]
    return Gap(label(upper.row), difference, real(difference.ratio, max(deltas, default=DELTA)))


def real(ratio: Interval, delta: float) -> Real:
    """Return whether a difference is real: "yes" if its interval excludes 1.

    It is "no" if the interval lies within ``delta`` of 1, in logs, and "unresolved" otherwise.
    """
    if ratio.low > 1.0 or ratio.high < 1.0:
        return "yes"
    band = log1p(delta)
    inside = ratio.low > 0.0 and -log(ratio.low) <= band and log(ratio.high) <= band
    return "no" if inside else "unresolved"


def label(row: RankedRow) -> str:
    """Return a row's name with the time of its newest run, and with what it is."""
    marks = [*filter(None, [what(row), when(row)])]
    return f"{row.name} ({', '.join(marks)})" if marks else row.name


def what(row: RankedRow) -> str:
    """Return what a row is: a reference, a baseline, or a candidate's passes if they are not all by patterns."""
    return KINDS[row.kind] or (row.passes if "region" in row.passes else "")


def when(row: RankedRow) -> str:
    """Return the time of a row's newest run to the second, or nothing for eager."""
    return row.started[:19].replace("T", " ")


def _notes(group: ComparableRuns, entries: Sequence[_UnrankedRow], between: float) -> Iterable[str]:
    runs = [run for entry in entries for run in entry.runs]
    sources = [source for source in group.sources if any(source.run is run for run in runs)]
    if len(sources) > 1:
        yield (
            f"The same candidate, judged in two runs, may differ by {100 * between:g} % (docs/board.md): the "
            "interval of a difference between different runs includes that. In one run smaller differences show."
        )
    for source in sources:
        run, about = source.run, f"{source.path}: "
        if run.interrupted:
            yield about + "the run was interrupted."
        failed = sum(not record.judged for record in run.records)
        if failed:
            count = counted(failed, "subgraph")
            yield f"{about}{count} could not be judged, through no candidate's fault; no score has them."
        if "offset" not in run.noise:
            yield about + "no noise of the machine was measured, so intervals are those of the subgraphs alone."
    for entry in entries:
        if entry.row.missing:
            b = group.sources[0].run.score_settings.b
            lacking = counted(entry.row.missing, "subgraph was", "subgraphs were")
            yield f"{label(entry.row)}: {lacking} not judged, for each of which b = {b:g} counts."
        if entry.runs and entry.row.left_out:
            yield run_text.left_out_sentence(entry.runs[-1], entry.row.name, label(entry.row))
        if entry.terms is None:
            yield f"{label(entry.row)}: a speed was not measured, so AS is not available."
    harnesses = {str(source.run.hashes.get("harness", "")) for source in sources}
    if len(harnesses) > 1:
        yield f"The runs were judged by {len(harnesses)} versions of this package."
