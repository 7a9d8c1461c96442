"""The tables of the reports as text: pure functions, the same for terminal and Markdown.

Speed-ups are eager time / other time; intervals are the 95 % intervals of the records, combined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_passbench.core.criterion import Criterion
from pytest_passbench.core.escape import line as one_line
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.ladder import T_FROZEN, T_STRICT
from pytest_passbench.core.misses import causes
from pytest_passbench.core.record import HARNESS_FAIL, RAN, ArmResult, FurtherSize, Record, Speed
from pytest_passbench.core.run import Run
from pytest_passbench.report.charts import EAGER, Curve
from pytest_passbench.score import board, es, possible
from pytest_passbench.score.interval import Interval, combined, digits, quotient
from pytest_passbench.score.possible import CLASSES
from pytest_passbench.score.subgraph import ACCURACY, NOT_JUDGED, Judged, from_record

NOT_MEASURED = "not measured"
NONE = "-"
"""Shown if there is nothing to take a mean of."""

MAX_WHY = 160  # characters of why a further size failed
ABOUT_HELD_OUT = (
    "Held out: of further sizes, drawn from the run's seed, at how many the answers are right. Speed kept: the "
    "speed-up at one of them / that at the subgraph's own size, the geometric mean over subgraphs."
)
RETENTION = "speed kept"
"""The header of the column with the share of a speed-up that is left at further sizes."""

POSSIBLE = "possible %"
"""The header of the share of the possible."""


@dataclass(frozen=True)
class Table:
    """A titled table; ``headers`` and every row are as long as each other.

    ``brief``: the headers of columns that may be shown without their intervals if there is little room. ``about``:
    what the table says, in a sentence or two.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    brief: tuple[str, ...] = ()
    about: str = ""

    @property
    def widths(self) -> list[int]:
        """The width of each column: that of its longest cell, in characters."""
        return [max(map(len, column)) for column in zip(self.headers, *self.rows, strict=True)]

    def without(self, *headers: str) -> Table:
        """Return the table without the columns of these headers, as far as it has them."""
        places = [index for index, header in enumerate(self.headers) if header not in headers]
        head, *rows = (tuple(row[index] for index in places) for row in (self.headers, *self.rows))
        return replace(self, headers=head, rows=tuple(rows))

    def in_brief(self) -> Table:
        """Return the table without the intervals of its ``brief`` columns."""
        columns = {index for index, header in enumerate(self.headers) if header in self.brief}
        rows = (
            tuple(cell.partition(" [")[0] if index in columns else cell for index, cell in enumerate(row))
            for row in self.rows
        )
        return replace(self, rows=tuple(rows))


def tolerance(run: Run) -> int:
    """Return the t at which the run's cases pass or fail."""
    return int(run.settings.get("tolerance", T_STRICT))


def correct_when(run: Run) -> str:
    """Return in words when a case of the run is correct."""
    agrees, accurate = f"at t = {tolerance(run)}", "as accurate as eager"
    return {"ladder": agrees, "fp64": accurate, "either": f"{agrees}, or {accurate}"}[run.criterion]


def rows(run: Run, criterion: Criterion = "ladder", at: int = T_STRICT) -> list[board.ScoreRow]:
    """Return the board's rows of all candidates, then of all baselines, at a t and under a criterion."""
    settings = run.score_settings
    own_rows = [board.row(name, board.tasks_of(run, name, criterion), settings, at) for name in run.names]
    return own_rows + [
        board.row(name, board.baseline_of(run, name, criterion), settings, at) for name in run.baselines
    ]


def board_table(run: Run, at: int = T_STRICT) -> Table:
    """Return the table of AS, and of G-Mean, Correctness and fast_1 at a t: eager, candidates, then baselines.

    Columns with "(fp64)" are by accuracy, the others by agreement.
    """
    headers = (
        "", "AS", POSSIBLE, "AS (fp64)", "AS published", "G-Mean", "correct %", "correct (fp64) %", "fast_1 %",
        "subgraphs",
    )  # fmt: skip
    eager = ("eager", "1.000", "0.0", "1.000", "1.000", "1.000", "100.0", "100.0", "100.0", NONE)
    means = [speed_up(run.of(name), "candidate", run, at) for name in run.names]
    means += [speed_up(run.beside(name), name, run, at) for name in run.baselines]
    accurate = [row if run.has_accuracy else None for row in rows(run, "fp64", at)]
    left_out = [*map(run.left_out, run.names), *(0 for _ in run.baselines)]
    lines = (_board_row(*about) for about in zip(rows(run, at=at), accurate, means, left_out, strict=True))
    title = "Board" if at == T_STRICT else f"Board (correct: at t = {at})"
    about = (
        f"t is the tolerance of the comparison: smaller is stricter. AS is one score for all t together; eager's is "
        f"1, and one near 1 is easy to reach. {POSSIBLE.capitalize()}: of what could be gained over eager, how much "
        f"was gained. Of what is correct at t = {at}: G-Mean, the mean speed-up with its 95 % interval, and fast_1, "
        "the share that is not slower than eager. (fp64): correct is what is as accurate as eager, judged by the "
        "graph in float64."
    )
    return Table(title, headers, (eager, *lines), about=about)


def _board_row(row: board.ScoreRow, accurate: board.ScoreRow | None, mean: str, left_out: int) -> tuple[str, ...]:
    """Return a row of the board. ``accurate`` is the row by accuracy, None if the file does not have it.

    ``left_out`` is the number of the candidate's subgraphs that the row does not count.
    """
    return (
        row.name,
        score(row.scores.as_),
        percent(row.possible.share),
        NONE if accurate is None else score(accurate.scores.as_),
        score(row.scores.as_published),
        mean,
        percent(row.correct),
        NONE if accurate is None else percent(accurate.correct),
        percent(row.fast1, NOT_MEASURED if row.subgraphs else NONE),
        share(row.subgraphs - row.missing, row.subgraphs + left_out),
    )


def possible_table(run: Run, at: int = T_STRICT) -> Table:
    """Return the table of the share of the possible at a t, by class: candidates, then baselines.

    It has no rows if no head-room is known.
    """
    arms = [(name, board.tasks_of(run, name)) for name in run.names]
    arms += [(name, board.baseline_of(run, name)) for name in run.baselines]
    columns = [possible.with_total([item for group in tasks.values() for item in group], at) for _, tasks in arms]
    kinds = [kind for kind in (possible.ALL, *CLASSES) if any(kind in column for column in columns)]
    rows = tuple((kind, *(possible_cell(column.get(kind)) for column in columns)) for kind in kinds)
    lines = rows if len(kinds) > 1 else ()
    headers = ("class", *(name for name, _ in arms))
    return Table(f"Share of the possible ({POSSIBLE})", headers, lines, about=about_possible(at))


def about_possible(at: int) -> str:
    """Return in words what the share of the possible at a t is."""
    return (
        "The log of the speed-up over the log of the task's head-room, in %: the median, and of how many subgraphs. "
        f"What is not correct at t = {at} counts 0. Head-rooms below {possible.LEAST_HEADROOM:g} are left out."
    )


def possible_cell(value: possible.Possible | None) -> str:
    """Return a share in percent, with the number of subgraphs in brackets."""
    return NONE if value is None or not value.subgraphs else f"{percent(value.share)} ({value.subgraphs})"


def share(judged: int, subgraphs: int) -> str:
    """Return how many of all subgraphs were judged; their number alone if all were."""
    return str(subgraphs) if judged == subgraphs else f"{judged}/{subgraphs}"


def es_table(run: Run) -> Table:
    """Return the table of ES(t), with the null guard, at every t: eager, candidates, baselines.

    A row with "(fp64)" is by accuracy, the one before it by agreement.
    """
    steps = es.ladder(run.score_settings.interpretation)
    eager = ("eager", *("1.000" for _ in steps))
    pairs = zip(rows(run), rows(run, "fp64"), strict=True)
    named = [labelled for agreeing, accurate in pairs for labelled in ((agreeing, ""), (accurate, " (fp64)"))]
    curves = tuple(
        (
            row.name + mark + (f" ({NOT_MEASURED})" if row.scores.as_ is None else ""),
            *(score(row.scores.es[t], NONE) for t in steps),
        )
        for row, mark in named
        if run.has_accuracy or not mark
    )
    about = (
        "The mean speed-up at tolerance t, where a failure counts b (see Settings), unless t tolerates it. An answer "
        "that is no better than zeros is a failure. (fp64): correct is what is as accurate as eager, whatever t."
    )
    return Table("ES(t)", ("t", *map(str, steps)), (eager, *curves), about=about)


def curves(run: Run) -> list[Curve]:
    """Return the curves of ES(t) of eager, the candidates and the baselines, under both criteria.

    Programs with a speed that was not measured have none.
    """
    steps = es.ladder(run.score_settings.interpretation)
    reserved = {EAGER, *run.baselines}
    names = [f"{name} (candidate)" if name in reserved else name for name in run.names] + run.baselines
    agrees, accurate = "agrees with eager at t", "as accurate as eager (fp64)"
    pairs = [(name, row, agrees) for name, row in zip(names, rows(run), strict=True)]
    pairs += [(name, row, accurate) for name, row in zip(names, rows(run, "fp64"), strict=True) if run.has_accuracy]
    measured = [
        Curve(name, {t: value for t, value in row.scores.es.items() if value}, criterion, criterion == accurate)
        for name, row, criterion in pairs
        if row.scores.as_ is not None
    ]
    return [Curve(EAGER, dict.fromkeys(steps, 1.0), agrees), *measured]


def task_table(run: Run, candidate: str) -> Table:
    """Return a line per task: speed-up, baselines' speed-up, correct of judged, operators covered, outcome."""
    held_out = ("held out", RETENTION) if has_held_out(run) else ()
    headers = ("task", "speed-up", *run.baselines, "correct", *held_out, "covered", "task AS", "outcome")
    title = f"Tasks: {candidate} (correct: {correct_when(run)})"
    judged = board.tasks_of(run, candidate, run.criterion)
    groups = run.by_task(candidate).items()
    lines = tuple(_task(task, group, judged.get(task, ()), run) for task, group in groups)
    about = (
        "Speed-up: eager time / candidate time, the mean of what is correct, with its 95 % interval. Covered: "
        "operators that passes replaced." + (f" {ABOUT_HELD_OUT}" if held_out else "")
    )
    return Table(title, headers, lines, brief=(*run.baselines, RETENTION), about=about)


def _task(task: str, records: list[Record], judged: Sequence[Judged], run: Run) -> tuple[str, ...]:
    at = tolerance(run)
    missing = sum(item.status == NOT_JUDGED for item in judged)
    correct = [record for record in records if record.correct]
    return (
        task,
        speed_up(correct, "candidate", run, at, run.criterion),
        *(speed_up(records, name, run, at, run.criterion) for name in run.baselines),
        f"{len(correct)}/{len(judged)}",
        *([held_out_share(records), str(speed_retention(records) or NONE)] if has_held_out(run) else []),
        covered(records),
        score(es.evaluate(judged, run.score_settings).as_) if judged else NONE,
        ", ".join(filter(None, [tally(map(ending, records)), f"{missing} not judged" if missing else ""])),
    )


def speed_up(records: Iterable[Record], arm: str, run: Run, at: int, criterion: Criterion = "ladder") -> str:
    """Return the geometric mean speed-up of what is correct at ``at`` and was measured, with its interval."""
    measured = list(records)
    mean = interval(measured, arm, run, at, criterion)
    if mean is None:
        return NOT_MEASURED if _correct(measured, arm, at, criterion) else NONE
    return str(mean)


def interval(
    records: Iterable[Record], arm: str, run: Run, at: int = T_STRICT, criterion: Criterion = "ladder"
) -> Interval | None:
    """Return the speed-up as :func:`speed_up` does, as numbers; None if nothing that is correct was measured."""
    results = _correct(records, arm, at, criterion)
    return combined([result.speed for result in results if result.speed is not None], offset(run))


def offset(run: Run) -> float:
    """Return the error (log) that all ratios of a run may share on its machine."""
    return float(run.noise.get("offset", 0.0))


def _correct(records: Iterable[Record], arm: str, at: int, criterion: Criterion) -> list[ArmResult]:
    counted_records = [record for record in records if arm == "candidate" or arm in record.baselines]
    return [record.result(arm) for record in counted_records if from_record(record, arm, criterion).correct_at(at)]


def covered(records: Sequence[Record]) -> str:
    """Return how many operators passes covered, of all: ``2/3``; a range if the subgraphs differ."""
    shares = sorted(
        (sum(len(item.operators) for item in record.passes if item.matches), len(record.operators))
        for record in records
        if record.operators
    )
    if not shares:
        return NONE
    low, high = shares[0], shares[-1]
    return f"{low[0]}/{low[1]}" if low == high else f"{low[0]}-{high[0]}/{high[1]}"


def tally(endings: Iterable[str]) -> str:
    """Return how often each ending is among these, the most frequent first: ``4 faster, 1 slower, 1 crash``."""
    return ", ".join(f"{count} {what}" for what, count in Counter(endings).most_common())


def ending(record: Record) -> str:
    """Return how a subgraph ended: the verdict on its speed if it is correct, else how it failed."""
    if record.arm.status != RAN:
        return record.arm.status
    if not record.correct:
        return ACCURACY
    return record.arm.speed.verdict.lower() if record.arm.speed is not None else NOT_MEASURED


def subgraph_table(run: Run, candidate: str) -> Table:
    """Return a line per subgraph: both times in microseconds per call, the speed-up, the verdict.

    The verdict of a subgraph that is not correct is how it failed.
    """
    headers = ("task", "subgraph", "eager us", "candidate us", "speed-up", "verdict")
    lines = tuple(
        (record.task, record.subgraph, *timed(record.arm.speed), _verdict(record)) for record in run.of(candidate)
    )
    about = (
        "Times in microseconds per call. Speed-up: eager us / candidate us, with its 95 % interval. The verdict of a "
        "subgraph that is not correct is how it failed. Unresolved: the interval allows no verdict on the speed."
    )
    return Table(f"Subgraphs: {candidate}", headers, lines, about=about)


def _verdict(record: Record) -> str:
    speed = record.arm.speed
    return ending(record) + (", launch-bound" if speed is not None and speed.launch_bound else "")


def timed(speed: Speed | None) -> tuple[str, str, str]:
    """Return both times in microseconds per call, and the ratio with its interval."""
    if speed is None:
        return NONE, NONE, NONE
    return digits(speed.eager_us), digits(speed.other_us), str(Interval.of(speed))


def miss_table(run: Run, candidate: str) -> Table:
    """Return the table of passes on subgraphs that no pass changed, grouped by cause, nearest to a match first."""
    counts = Counter(
        (record.task, cause)
        for record in run.of(candidate)
        if record.arm.status == "pass_miss"
        for cause in causes(record.passes)
    )
    tasks = list(dict.fromkeys(task for task, _ in counts))
    nearest = sorted(counts.items(), key=lambda item: (tasks.index(item[0][0]), -item[0][1].nearness))
    lines = tuple((task, cause.who, str(count), cause.text or NONE) for (task, cause), count in nearest)
    about = "Passes on subgraphs where no pass matched, and why. The one nearest to a match leads."
    return Table(f"Misses: {candidate}", ("task", "pass", "subgraphs", "nearest"), lines, about=about)


def failure_table(run: Run, candidate: str, causes: bool = True) -> Table:
    """Return the table of subgraphs that are not correct by the run's criterion, with messages and findings.

    Subgraphs of a task that failed alike share a row. Without ``causes`` the messages and findings are left out.
    """
    failed = (record for record in run.of(candidate) if not record.correct)
    alike = grouped(
        failed, lambda item: (item.task, ending(item), item.arm.phase or NONE, *([why(item)] if causes else []))
    )
    more = {key: f" and {len(group) - 1} more" if len(group) > 1 else "" for key, group in alike.items()}
    lines = tuple((key[0], group[0].subgraph + more[key], *key[1:]) for key, group in alike.items())
    about = f"Subgraphs that are not correct ({correct_when(run)})" + (", and why." if causes else ".")
    headers = ("task", "subgraph", "status", "phase", *(["why"] if causes else []))
    return Table(f"Failures: {candidate}", headers, lines, about=about)


def has_held_out(run: Run) -> bool:
    """Return True if the run judged further sizes."""
    return bool(run.settings.get("held_out"))


def held_out_share(records: Iterable[Record]) -> str:
    """Return at how many of the further sizes that were judged the answers are right: ``3/4``."""
    pairs = [(len(record.held_out_judged), len(record.held_out_failures)) for record in records]
    judged = sum(count for count, _ in pairs)
    return f"{judged - sum(failures for _, failures in pairs)}/{judged}" if judged else NONE


def speed_retention(records: Iterable[Record]) -> Interval | None:
    """Return the speed-up at a further size over that at the own size, the geometric mean; None if unmeasured."""
    pairs = [(record.held_out_speed, record.arm.speed) for record in records]
    ratios = [quotient(there, here) for there, here in pairs if there is not None and here is not None]
    return combined(ratios)


def held_out_table(run: Run, candidate: str) -> Table:
    """Return a line per further size at which the candidate is not right, or was not judged."""
    records = run.of(candidate)
    lines = tuple(
        (record.task, record.subgraph, f"batch {item.batch}, size {item.size}", *_held_out(record, item))
        for record in records
        for item in (record.held_out if record.correct else ())
        if item.arm.status == HARNESS_FAIL or item in record.held_out_failures
    )
    what = "at which the candidate is not right, though it is at the task's own" if lines else "none of which fails"
    about = (
        f"Sizes drawn from the run's seed, {what}. Of all that were judged: {_outcomes(records)}. "
        f"Speed kept: {speed_retention(records) or NONE}."
    )
    return Table(f"Held-out sizes: {candidate}", ("task", "subgraph", "size", "status", "why"), lines, about=about)


def _outcomes(records: Iterable[Record]) -> str:
    """Return how many further sizes ended in which way."""
    pairs = [(record, item) for record in records for item in record.held_out_judged]
    return tally(item.outcome(record.criterion, record.tolerance) for record, item in pairs) or "none"


def _held_out(record: Record, item: FurtherSize) -> tuple[str, str]:
    """Return how a further size ended, in words, and why in one line."""
    arm, outcome = item.arm, item.outcome(record.criterion, record.tolerance)
    status = f"{outcome} ({arm.status})" if item.judged and arm.status != RAN else outcome
    return status, one_line(arm.message or arm.worst, MAX_WHY) or NONE


def why(record: Record) -> str:
    """Return the text on a failure: the message or the worst element, and every finding."""
    texts = [record.arm.message or record.arm.worst]
    if record.arm.status == RAN and not texts[0] and not record.correct and record.arm.first_correct <= T_FROZEN:
        texts = [f"agrees with eager from t = {record.arm.first_correct} on"]
    for finding in record.findings:
        place = f" ({finding.place})" if finding.place else ""
        texts.append(f"{finding.severity} [{finding.layer}/{finding.rule}] {finding.message}{place}")
    if record.arm.status == RAN and record.nearer:
        texts.append("nearer to float64 than eager is")
    return "; ".join(part for part in texts if part) or NONE


def score(value: float | None, absent: str = NOT_MEASURED) -> str:
    """Return a score with three decimals, or ``absent`` if there is none."""
    return absent if value is None else f"{value:.3f}"


def percent(value: float | None, absent: str = NONE) -> str:
    """Return a share as percent with one decimal, or ``absent`` if there is none."""
    return absent if value is None else f"{100.0 * value:.1f}"
